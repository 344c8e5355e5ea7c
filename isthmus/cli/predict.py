"""``isthmus predict``: apply a trained run to files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.options import Json
from isthmus.core.errors import UserError


def predict(
    run: Annotated[str, typer.Argument(help="A finished run (its id, or its folder), or the folder of an export.")],
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Tables (csv, tsv, parquet), npy and npz arrays, images or folders of them, Sudoku puzzles as text."
        ),
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
    """Apply a trained run, or its export, to files.

    A table gives a csv file with a header: what names the rows (or their number), the prediction, and the probability
    of each class. Images may have any size and mode. They are restored in tiles that overlap, or resized and
    classified: those of a folder and its subfolders into one csv, those given by name into `images.predicted.csv`.
    Images that cannot be read are listed and skipped. Files of rows may be larger than memory; only tables of words and
    dates are read whole. A masked-image run hides a fraction of each image and fills it in again. In csv results, an
    apostrophe precedes text that a spreadsheet would run as a formula, never numbers.

    For example: `isthmus predict RUN new.csv`
    """
    if iterations is not None and iterations < 1:
        raise UserError(f"--iterations {iterations}: at least 1 is needed; leave it out for the trained number")
    if masked is not None and not 0 < masked <= 1:
        raise UserError(f"--masked {masked:g}: the fraction to hide is above 0 and at most 1; 0.4 hides 40 %")
    from rich.text import Text

    from isthmus.cli import terminal
    from isthmus.export.prediction import load

    options = {"trace": trace or None, "iterations": iterations, "masked": masked}
    predictions = []
    with terminal.err.status("predicting …") as status, warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_: terminal.err.print(Text(str(message)), soft_wrap=True)
        predictor = load(run).open(**{name: value for name, value in options.items() if value is not None})
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
