"""``isthmus export``: write a trained run in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.options import Json


def export(
    run: Annotated[str, typer.Argument(help="A finished run: its id, a unique prefix of it, or its folder.")],
    to: Annotated[str, typer.Option(help="`onnx`, `torch` (a torch.export program), `safetensors` or `narrow`.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the export (default: `RUN-FORMAT`).")] = None,
    bare: Annotated[
        bool, typer.Option("--bare", help="`onnx`, `torch`: the model alone, for scaled inputs and outputs.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a trained run as one folder: the model, the state of its task and a model card.

    For tables and rows of features, `onnx` and `torch` take raw columns (float64; NaN is missing; the model card lists
    the codes of categories) and give values in the units of the targets, or probabilities.
    `narrow` gives the same outputs without materialising the residual stream, if that is faster. The outputs of every
    export are compared with the run's. `isthmus predict` accepts the folder like a run.

    For example: `isthmus export RUN --to onnx --out my-model`
    """
    from isthmus.cli import terminal
    from isthmus.core.record import find_run
    from isthmus.export import export_run

    with terminal.err.status("writing, and comparing with the run …"):
        written = export_run(run, to, out or Path(f"{find_run(run).name}-{to}"), bare=bare)
    if as_json:
        terminal.print_json({**vars(written), "folder": str(written.folder)})
        return
    if written.note:
        terminal.out.print(written.note)
    size, error = terminal.size(written.bytes), f"outputs differ by {written.error:.1g} of the largest"
    terminal.out.print(f"{written.folder}: {size} bytes, {error}", soft_wrap=True)
