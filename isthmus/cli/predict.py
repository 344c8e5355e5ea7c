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
    trace: Annotated[bool, typer.Option("--trace", help="Of a Sudoku run: show the board at each iteration.")] = False,
    iterations: Annotated[
        int | None, typer.Option(help="Of recurrent depth: another number than the trained one.", show_default=False)
    ] = None,
    masked: Annotated[
        float | None, typer.Option(help="Of a masked-image run: the part to hide, up to 1.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Apply a trained run, or its export, to files. Images of any size are restored by tiles; a Sudoku is solved.

    Files of rows may be larger than memory: they are read, computed and written piece by piece. A run on masked images
    hides a part of each and fills it in again. In csv results, a class whose name a spreadsheet would run as a formula
    begins with an apostrophe; numbers never do.
    """
    from isthmus.cli import terminal
    from isthmus.export.masked_images import filled, fills_masks
    from isthmus.export.puzzles import answers, solves_puzzles

    if iterations is not None and iterations < 1:
        raise UserError(f"--iterations {iterations}: at least one is needed; leave it out for the trained number")
    if masked is not None and not 0 < masked <= 1:
        raise UserError(
            f"--masked {masked:g}: the part to hide is above 0 and at most 1; leave it out for the run's own"
        )
    if masked is not None and not fills_masks(run):
        raise UserError(f"--masked is for runs on masked images; {run} is none, leave it out")
    if solves_puzzles(run):
        with terminal.err.status("solving …"):
            solved = list(answers(run, files, iterations, trace))
        if as_json:
            terminal.print_json([{"file": answer.file, **answer.as_dict()} for answer in solved])
        else:
            for text in (text for answer in solved for text in answer.lines(trace)):
                print(text)
        return
    if trace:
        raise UserError(f"--trace is for runs on Sudoku puzzles; {run} is none, leave it out")
    if fills_masks(run):
        with terminal.err.status("filling in …"):
            answers_to = [*filled(run, files, out, masked, iterations)]
        if as_json:
            terminal.print_json([answer.as_dict() for answer in answers_to])
        else:
            for answer in answers_to:
                print(answer.line())
        return
    from rich.text import Text

    from isthmus.export.prediction import predict_files

    results = {}
    with terminal.err.status("reading …") as status:
        show = lambda file, rows: status.update(Text(f"{file}: {rows:,} rows" if rows else f"{file} …"))  # noqa: E731
        for file, result in predict_files(run, files, out, iterations, show):
            results[str(file)] = result
            if not as_json:
                status.stop()  # both consoles may be one terminal
                terminal.out.print(f"{file} → {result}", highlight=False, soft_wrap=True)
                status.start()
    if as_json:
        terminal.print_json(results)
