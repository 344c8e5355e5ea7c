"""What is done with a trained run: export it, apply it, look into it, show it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.options import DataDir, Json, command_line
from isthmus.errors import UserError

app = typer.Typer()


@app.command()
def export(
    run: Annotated[str, typer.Argument(help="A finished run: its id, the beginning of it, or its folder.")],
    to: Annotated[str, typer.Option(help="`onnx`, `torch` (a torch.export program), `safetensors` or `narrow`.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the export (default: `RUN-FORMAT`).")] = None,
    as_json: Json = False,
) -> None:
    """Take a trained run elsewhere: one folder with the model, what its task learned, and a model card.

    `narrow` computes the same without the residual stream, where that is faster. Every export is compared with the run
    before it is kept. `isthmus predict` takes its folder like a run.

    For example: `isthmus export RUN --to onnx --out my-model`
    """
    from isthmus import terminal
    from isthmus.export import export_run
    from isthmus.record import find_run

    with terminal.err.status("writing, and comparing with the run …"):
        written = export_run(run, to, out or Path(f"{find_run(run).name}-{to}"))
    if as_json:
        terminal.print_json({**vars(written), "folder": str(written.folder)})
        return
    if written.note:
        terminal.out.print(written.note, highlight=False)
    size = terminal.size(written.bytes)
    line = f"{written.folder}: {size} bytes, outputs differ by {written.error:.1g} of the largest"
    terminal.out.print(line, highlight=False, soft_wrap=True)


@app.command()
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
    from isthmus import terminal
    from isthmus.masked_images import filled, fills_masks
    from isthmus.puzzles import answers, solves_puzzles

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

    from isthmus.prediction import predict_files

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


@app.command()
def analyze(
    run: Annotated[str, typer.Argument(help="A finished run: its id, the beginning of it, or its folder.")],
    against: Annotated[
        str | None, typer.Option(help="Compare it with this run (CKA), or with its `untrained` self.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only this analysis, such as `cka`; may be repeated.")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """What can be read off a trained run: numbers, and figures beside its record. Each is measured once.

    For example: `isthmus analyze RUN --only cka --against untrained`
    """
    from isthmus import terminal
    from isthmus.analysis.command import analyze as measured
    from isthmus.analysis.command import show

    answer = measured(run, only or (), against, data_dir)
    if as_json:
        terminal.print_json(answer)
    else:
        show(answer)


@app.command()
def report(
    paths: Annotated[list[str] | None, typer.Argument(help="Runs, or folders of runs (default: all runs).")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the page.")] = Path("report"),
    title: Annotated[str, typer.Option(help="Headline of the page.")] = "Shapes of residual networks",
) -> None:
    """One self-contained page from records, with PNG and CSV beside it."""
    from isthmus import terminal
    from isthmus.record import find_run, run_folders, runs_folder
    from isthmus.reports import write_report

    folders: list[Path] = []
    for path in paths or [str(runs_folder())]:
        inside = list(run_folders(Path(path))) if Path(path).is_dir() else []
        folders += inside or [find_run(path)]
    terminal.out.print(str(write_report(folders, out, title, command_line())), highlight=False, soft_wrap=True)
