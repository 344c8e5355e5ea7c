"""``isthmus evaluate``: an authors' checkpoint on our test rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.options import DataDir, Json, Overrides


def evaluate(
    path: Annotated[Path, typer.Argument(help="The checkpoint, as safetensors.")],
    network: Annotated[str, typer.Option("--as", help="The authors' network, such as `hyper_set/sudoku`.")],
    overrides: Overrides = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Evaluate a checkpoint of the authors of Hyper-SET, CRATE, iMixer or timm's Mixers on test rows.

    For example: `isthmus evaluate sudoku.safetensors --as hyper_set/sudoku`
    """
    from isthmus.api.checkpoints import evaluate_checkpoint
    from isthmus.cli import terminal

    found = evaluate_checkpoint(path, network, overrides or (), data_dir)
    if as_json:
        terminal.print_json(found)
        return
    title = f"{found['as']}, {found['parameters']:,} parameters, on {found['rows']:,} test rows of {found['source']}"
    terminal.print_table(
        title, ["metric", "value"], [[name, f"{value:.4g}"] for name, value in found["metrics"].items()]
    )
