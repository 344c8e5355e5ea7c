"""``isthmus predict``: apply a trained run to files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.options import Json
from isthmus.core.errors import UserError


def predict(
    run: Annotated[str, typer.Argument(help="A finished run (its id, or its folder), or the folder of an export.")],
    files: Annotated[
        list[Path], typer.Argument(help="Images, npy, npz, csv and parquet files of rows, or Sudoku puzzles as text.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("predicted"),
    trace: Annotated[bool, typer.Option("--trace", help="Sudoku: show the board after each iteration.")] = False,
    iterations: Annotated[
        int | None,
        typer.Option(help="Recurrent models: the number of iterations.", show_default=False),
    ] = None,
    masked: Annotated[
        float | None, typer.Option(help="Masked images: the fraction to hide, up to 1.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Apply a trained run, or its export, to files. Images of any size are restored in tiles; Sudokus are solved.

    Files of rows may be larger than memory: they are read, predicted and written piece by piece. A masked-image run
    hides a fraction of each image and fills it in again. In csv results, an apostrophe precedes class names that a
    spreadsheet would run as a formula, never numbers.
    """
    if iterations is not None and iterations < 1:
        raise UserError(f"--iterations {iterations}: at least 1 is needed; leave it out for the trained number")
    if masked is not None and not 0 < masked <= 1:
        raise UserError(f"--masked {masked:g}: the fraction to hide is above 0 and at most 1; 0.4 hides 40 %")
    from rich.text import Text

    from isthmus.cli import terminal
    from isthmus.export.prediction import open_predictor

    options = {"trace": trace or None, "iterations": iterations, "masked": masked}
    predictions = []
    with terminal.err.status("predicting …") as status:
        predictor = open_predictor(run, **{name: value for name, value in options.items() if value is not None})
        show = lambda file, rows: status.update(Text(f"{file}: {rows:,} rows" if rows else f"{file} …"))  # noqa: E731
        for prediction in predictor.predict(files, out, show):
            predictions.append(prediction)
            if not as_json:
                status.stop()  # both consoles may be one terminal
                for line in prediction.lines:
                    terminal.out.print(line, highlight=False, soft_wrap=True)
                status.start()
    if as_json:
        terminal.print_json(predictor.as_json(predictions))
