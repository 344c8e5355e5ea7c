"""``isthmus export``: write a trained run in another format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from isthmus.cli.options import DataDir, Json, Run

if TYPE_CHECKING:
    from isthmus.export.int8_format import Choice


def export(
    run: Run,
    to: Annotated[str, typer.Option(help="`onnx`, `torch` (a torch.export program), `safetensors` or `narrow`.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the export (default: `RUN-FORMAT`).")] = None,
    bare: Annotated[
        bool, typer.Option("--bare", help="`onnx`, `torch`: the model alone, for scaled inputs and outputs.")
    ] = False,
    int8: Annotated[
        bool, typer.Option("--int8", help="`onnx`: store the layers as int8 that lose little quality.")
    ] = False,
    cost: Annotated[str, typer.Option(help="`--int8`: what to save, `bytes` or `latency`.")] = "bytes",
    tolerance: Annotated[
        float | None,
        typer.Option(help="`--int8`: the most loss on validation data (default: 0.1 dB, 0.002 of an accuracy, 1 %)."),
    ] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Write a trained run as one folder: the model, the state of its task and a model card.

    For tables and rows of features, `onnx` and `torch` take raw columns (float64; NaN is missing; the model card lists
    the codes of categories) and give values in the units of the targets, or probabilities.
    `narrow` gives the same outputs without materialising the residual stream, if that is faster. The outputs of every
    export are compared with the run's. `isthmus predict` accepts the folder like a run.

    With `--int8`, the layers of an `onnx` file that lose little quality are stored as int8; quality is measured on
    validation data to choose them, and on test data with the network that is written.

    For example: `isthmus export RUN --to onnx --out my-model`
    """
    from dataclasses import asdict

    from isthmus.cli import terminal
    from isthmus.core.errors import UserError
    from isthmus.core.record import find_run
    from isthmus.export import export_run
    from isthmus.export.formats import Int8

    if not int8 and (cost != "bytes" or tolerance is not None):
        raise UserError("--cost and --tolerance choose int8 layers; type --int8 too")
    with terminal.err.status("writing, and comparing with the run …") as status:
        policy = Int8(cast("Any", cost), tolerance, data_dir, status.update) if int8 else None
        written = export_run(run, to, out or Path(f"{find_run(run).name}-{to}"), bare=bare, int8=policy)
    if as_json:
        terminal.print_json({**asdict(written), "folder": str(written.folder)})
        return
    if written.int8 is not None:
        _print_policies(written.int8)
    if written.note:
        terminal.out.print(written.note)
    size, error = terminal.size(written.bytes), f"outputs differ by {written.error:.1g} of the largest"
    terminal.out.print(f"{written.folder}: {size} bytes, {error}", soft_wrap=True)


def _print_policies(choice: Choice) -> None:
    from isthmus.cli import terminal
    from isthmus.export.int8_format import ROWS

    rows = []
    known = {"float32": choice.float32, "int8 everywhere": choice.uniform, "int8 in some layers": choice.some}
    for title, policy in (known | {"written": choice.chosen}).items():
        if policy is None or policy.test is None:
            continue
        quality = f"{policy.test[choice.objective]:.5g}"
        rows.append([title, len(policy.layers), policy.bytes, quality, f"{policy.latency:.3g}"])
    columns = ["weights", "int8 layers", "bytes", f"test {choice.objective}", f"ms per {ROWS} rows"]
    terminal.print_table("", columns, rows)
    kept = [name for name in choice.layers.values() if name not in choice.chosen.layers]
    if kept:
        terminal.out.print(f"float32 within a loss of {choice.tolerance:.3g} on validation data: {', '.join(kept)}")
