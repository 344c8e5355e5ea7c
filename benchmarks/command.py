"""`isthmus bench`: a command for each measurement, which imports what it needs when it is called."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(help="Measure speed on this machine, always as a ratio to a named rival.", no_args_is_help=True)

Rows = Sequence[Mapping[str, Any]]
Repeats = Annotated[int, typer.Option(min=1, help="Interleaved rounds; the median counts.")]
Threads = Annotated[int, typer.Option(min=1, help="CPU threads of the arithmetic.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@contextmanager
def measuring() -> Iterator[None]:
    from isthmus.cli import terminal

    with terminal.err.status("measuring …"):
        yield


def keep(path: Path | None, found: Mapping[str, Any], threads: int) -> None:
    """Write a measurement with the machine and the versions that it was measured with."""
    from isthmus.core.files import write_json
    from isthmus.core.machine import machine, versions

    if path is not None:
        write_json(path, {**found, "threads": threads, "machine": machine(), "versions": versions()})


def read_kept(path: Path | None, **fields: Collection[str]) -> dict[str, Any]:
    """What an earlier call wrote, whose rows by name have these fields; empty if there is no file."""
    from isthmus.core.errors import UserError
    from isthmus.core.files import read_json

    found = read_json(path) if path is not None and path.exists() else {}
    parts = [(found.get(name, []), {*each}) for name, each in fields.items()] if isinstance(found, dict) else [(0, {0})]
    for rows, needed in parts:
        if not isinstance(rows, list) or not all(isinstance(row, dict) and row.keys() >= needed for row in rows):
            raise UserError(f"{path} holds something else than this measurement; give another --out")
    return dict(found)


def answer(found: Rows | Mapping[str, Rows], as_json: bool, **titles: str) -> None:
    """Print the rows of a measurement, or several tables of rows by their names."""
    from isthmus.cli import terminal

    if as_json:
        terminal.print_json(found)
        return
    for name, rows in found.items() if isinstance(found, Mapping) else [("", found)]:
        lines = [list(rows[0]), *(list(row.values()) for row in rows)]
        columns = list(zip(*lines, strict=True))
        is_wide = sum(2 + max(len(str(cell)) for cell in column) for column in columns) > terminal.out.width
        if is_wide and len(rows) < len(columns):  # a few rows with many fields are read downwards
            lines = [list(column) for column in columns]
        terminal.print_table(titles.get(name, ""), list(map(str, lines[0])), lines[1:])


@app.command()
def training(repeats: Repeats = 7, threads: Threads = 2, as_json: Json = False) -> None:
    """Our loop against the barest PyTorch loop of the same model, and against the machine's GEMM rate."""
    from benchmarks.training import measure

    with measuring():
        lines = measure(repeats, threads)
    answer(lines, as_json)


@app.command()
def search(
    seeds: Annotated[int, typer.Option(min=1, help="Study seeds of every sampler.")] = 8,
    workers: Annotated[int, typer.Option(min=1, help="Processes that train the grids.")] = 2,
    only: Annotated[list[str] | None, typer.Option(help="Measure this sampler again, and what is missing.")] = None,
    syne_tune: Annotated[
        Path | None, typer.Option(help="Also measure MOASHA, with the Python of an environment that has syne-tune.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Read grids and earlier curves from this folder, and write there.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Hypervolume over training steps: grid, random, Optuna's samplers, MOASHA and our own. It resumes."""
    from benchmarks.curves import compare, save, summary
    from benchmarks.search import SAMPLERS, measure, run_moasha
    from isthmus.cli import terminal
    from isthmus.core.errors import UserError, nearest

    if unknown := sorted({*(only or ())} - {*SAMPLERS}):
        raise UserError(f"--only {unknown[0]}: there is no such sampler; {nearest(unknown[0], SAMPLERS)}")
    if syne_tune is not None and out is None:
        raise UserError("--syne-tune reads the grids from a folder; add --out results/bench")
    if syne_tune is not None and out is not None:
        run_moasha(syne_tune, out, seeds)
    curves = measure(seeds, workers, lambda line: terminal.err.print(line, highlight=False), out, only or ())
    if out is not None:
        save(curves, out)
    answer({"summary": summary(curves), "comparisons": compare(curves)}, as_json)


@app.command()
def studies(
    trials: Annotated[int, typer.Option(min=1, help="Trials over which the driver is measured.")] = 200,
    as_json: Json = False,
) -> None:
    """Two workers of one thread against one of two, and the driver's share of a study's time."""
    from benchmarks.studies import measure

    with measuring():
        lines = measure(trials)
    answer(lines, as_json)


@app.command()
def stacks(
    repeats: Repeats = 3,
    workers: Annotated[int, typer.Option(min=1, help="Processes that train.")] = 2,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of every training.")] = 50,
    out: Annotated[Path | None, typer.Option(help="Also write everything into this JSON file.")] = None,
    as_json: Json = False,
) -> None:
    """Small networks that train together against the same networks one after the other: a step, and whole trainings."""
    from benchmarks.stacks import measure_steps, measure_trainings

    with measuring():
        found = {"steps": measure_steps(repeats), "trainings": measure_trainings(repeats, workers, epochs)}
    keep(out, found, 1)
    answer(found, as_json, steps="A step", trainings="A table of 10 columns and 500 rows")


@app.command()
def studio(
    runs: Annotated[int, typer.Option(min=0, help="Runs in the home; 0 leaves out the pages.")] = 5000,
    starts: Annotated[int, typer.Option(min=0, help="Starts of the server; 0 times no page.")] = 3,
    rounds: Annotated[int, typer.Option(min=0, help="Interleaved rounds of a study with and without a page.")] = 5,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of the study's trainings.")] = 100,
    out: Annotated[
        Path | None, typer.Option(help="Also write everything into this JSON file; rounds that it has are kept.")
    ] = None,
    as_json: Json = False,
) -> None:
    """The studio's pages with many runs, how soon an event arrives, and a study with a page open against none."""
    from benchmarks.studio import compare_slowdown, measure_pages, measure_slowdown

    found = read_kept(out, load=["runs"], studies=["round", "epochs"])
    found = {name: found[name] for name in ("pages", "load", "studies") if name in found}
    studies = [row for row in found.pop("studies", ()) if row["epochs"] == epochs]
    with measuring():
        if runs:
            kept = [row for row in found.get("load", ()) if row["runs"] != runs]
            found |= measure_pages(runs, starts)
            found["load"] = [*kept, *found["load"]]
        if rounds:
            studies += measure_slowdown(rounds, epochs, 1 + max((row["round"] for row in studies), default=-1))
    if studies:
        found |= {"study": compare_slowdown(studies, os.cpu_count() or 1), "studies": studies}
    keep(out, found, 1)
    titles = {"pages": "Pages and events", "load": "The server's processor time"}
    answer(found, as_json, **titles, study="A study beside the studio", studies="Its rounds")


@app.command()
def mixers(repeats: Repeats = 15, threads: Threads = 2, as_json: Json = False) -> None:
    """Permuted, plain and sparse rivals of the mixers, and Table S.3 of the wide-and-sparse paper on this machine."""
    from benchmarks import mixers, sparse
    from isthmus.papers.widesparse.table_s3 import measure_table

    with measuring():
        # The layer first: after large networks its rival's matrices would come from memory that these have left behind.
        ratios = [*sparse.measure_layer(repeats, threads), *mixers.measure(repeats, threads)]
        table = measure_table(threads)
    answer({"ratios": ratios, "table_s3": table}, as_json, table_s3="Table S.3")


@app.command()
def hyperset(repeats: Repeats = 15, threads: Threads = 1, as_json: Json = False) -> None:
    """One softmax against two, streamed attention against explicit, an iteration against a Transformer's; Sudoku."""
    from benchmarks.hyperset import measure

    with measuring():
        lines = measure(repeats, threads)
    answer(lines, as_json)


@app.command()
def pathways(
    only: Annotated[list[str] | None, typer.Argument(metavar="[PATHWAY]...", help="Pathways or presets.")] = None,
    depth: Annotated[int, typer.Option(min=1, help="Blocks of the residual MLP.")] = 256,
    repeats: Repeats = 5,
    threads: Threads = 1,
    out: Annotated[
        Path | None, typer.Option(help="Also write every row into this JSON file as it is measured.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Keep the rows that are in the file.")] = False,
    as_json: Json = False,
) -> None:
    """Time, memory, parameters and multiply-adds of every pathway as ratios to plain, at d_h = 16, 64 and 4d."""
    from benchmarks.pathways import measure

    before = read_kept(out if resume else None, rows=["pathway"])
    rows = {row["pathway"]: row for row in before.get("rows", []) if before.get("depth") == depth}
    with measuring():
        for row in measure(repeats, threads, depth, tuple(only or ()), rows.keys()):
            rows[row["pathway"]] = row
            keep(out, {"depth": depth, "rows": list(rows.values())}, threads)
    answer(list(rows.values()), as_json)


@app.command()
def vit(repeats: Repeats = 15, threads: Threads = 2, as_json: Json = False) -> None:
    """Our ViT-Tiny and Mixer-S/16 against timm's, and what the augmentation of Table 11 adds to a training step."""
    from benchmarks.vit import measure

    with measuring():
        lines = measure(repeats, threads)
    answer(lines, as_json)


@app.command()
def projections(repeats: Repeats = 15, threads: Threads = 2, as_json: Json = False) -> None:
    """The Hadamard input projection against the dense product of the same map, forward and backward."""
    from benchmarks.projections import measure

    with measuring():
        lines = measure(repeats, threads)
    answer(lines, as_json)


@app.command()
def inference(
    rows: Annotated[list[str] | None, typer.Argument(help="Rows such as `T7.13` (default: all of Tables 6–9).")] = None,
    repeats: Repeats = 5,
    threads: Threads = 2,
    eager_only: Annotated[
        bool, typer.Option("--eager-only", help="Leave out torch.compile, which takes long.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Also write everything into this JSON file.")] = None,
    as_json: Json = False,
) -> None:
    """The narrow form of the published Hourglass networks against their straightforward forward pass."""
    from benchmarks import inference
    from isthmus.cli import terminal

    chosen = inference.cases(rows or ())
    if not eager_only and inference.compiler() is None:
        terminal.err.print("no C++ compiler is here: torch.compile is left out", highlight=False)
        eager_only = True
    say = lambda line: terminal.err.print(line, highlight=False)  # noqa: E731
    ratios = inference.measure(chosen, inference.BATCHES, repeats, threads, not eager_only, say)
    found = {"rows": inference.lines(ratios), "groups": inference.summary(ratios)}
    keep(out, found, threads)
    answer(found, as_json)


@app.command()
def int8(
    out: Annotated[Path | None, typer.Option(help="Also write everything into this JSON file.")] = None,
    as_json: Json = False,
) -> None:
    """int8 weights of six trained networks in onnxruntime: bytes, quality and time beside float32, by layer."""
    from benchmarks.int8 import measure, summarise
    from isthmus.cli import terminal

    rows = measure(lambda line: terminal.err.print(line, highlight=False))
    found = {"rows": rows, "summary": [summarise(rows)]}
    keep(out, found, 1)
    answer(found, as_json, summary="Of six networks")


@app.command()
def estimators(
    seeds: Annotated[int, typer.Option(min=1, help="Splits and initialisations of every data set.")] = 5,
    threads: Threads = 1,
    out: Annotated[
        Path | None, typer.Option(help="Also write everything into this JSON file, and the table beside it (.md).")
    ] = None,
    as_json: Json = False,
) -> None:
    """The scikit-learn estimators against its own MLP of equally many parameters: quality and training time."""
    from benchmarks.estimators import measure, summary
    from isthmus.cli import terminal
    from isthmus.core.files import write_text
    from isthmus.reports.tables import markdown_table

    rows = measure(seeds, threads, lambda line: terminal.err.print(line, highlight=False))
    if out is not None:
        write_text(out.with_suffix(".md"), "\n".join([*markdown_table(summary(rows)), ""]))
    keep(out, {"summary": summary(rows), "rows": rows}, threads)
    answer(summary(rows), as_json)


@app.command()
def find(
    splits: Annotated[int, typer.Option(min=1, help="Random splits of every data set.")] = 10,
    within: Annotated[str, typer.Option(help="The time of every search.")] = "1m",
    rows: Annotated[Path, typer.Option(help="Keeps the measured splits, one per line.")] = Path("find.jsonl"),
    out: Annotated[Path | None, typer.Option(help="Also write the tables into this JSON file.")] = None,
    as_json: Json = False,
) -> None:
    """`isthmus find` against linear models, scikit-learn's MLP and our default estimator on eight tables; resumes."""
    from benchmarks.find import compare, measure, summarise
    from isthmus.cli import terminal

    measured = measure(splits, within, rows, lambda line: terminal.err.print(line, highlight=False))
    found = {"summary": summarise(measured), "comparisons": compare(measured)}
    keep(out, {**found, "rows": measured}, 1)
    answer(found, as_json)


@app.command()
def engine(
    seeds: Annotated[int, typer.Option(min=0, help="Splits of every data set; 0 only summarises what is kept.")] = 5,
    within: Annotated[float, typer.Option(min=5, help="Seconds of every method on its two cores.")] = 120,
    cells: Annotated[Path, typer.Option(help="Keeps the measured cells, one per line.")] = Path("engine.jsonl"),
    out: Annotated[
        Path | None, typer.Option(help="Also write tables and cells into this JSON file; it resumes from them too.")
    ] = None,
    as_json: Json = False,
) -> None:
    """`isthmus find` against tuned MLPs and the older `study shape` at equal time, on eight data sets; resumes."""
    from benchmarks.engine import RANKED, SHOWN, list_failures, measure, pivot, restore
    from benchmarks.find import compare, summarise
    from isthmus.cli import terminal
    from isthmus.core.errors import UserError
    from isthmus.core.files import read_json

    if out is not None and out.is_file() and not cells.exists():
        restore(read_json(out)["cells"], cells)
    measured = measure(seeds, within, cells, lambda line: terminal.err.print(line, highlight=False))
    rows = pivot(measured)
    if not rows:
        raise UserError(f"{cells} has no data set that every method has seen; add --seeds 1 to measure")
    found = {"summary": summarise(rows, RANKED, SHOWN), "comparisons": compare(rows, RANKED)}
    if failures := list_failures(measured):
        found["without an answer"] = failures
    keep(out, {**found, "cells": measured}, 1)
    answer(found, as_json)


@app.command()
def shared(
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of the super-networks.")] = 3,
    epochs: Annotated[int | None, typer.Option(min=1, help="Of each super-network (default: the study's).")] = None,
    slices: Annotated[int | None, typer.Option(min=1, help="Candidates in a step (default: the study's).")] = None,
    grids: Annotated[Path, typer.Option(help="The folder of the recorded grids.")] = Path("results/bench"),
    out: Annotated[Path | None, typer.Option(help="Also write everything into this JSON file.")] = None,
    as_json: Json = False,
) -> None:
    """How well `isthmus study --shared` ranks the recorded grid of 240 MLPs, and the steps that it needs; resumes."""
    from benchmarks.shared import measure, summarise
    from isthmus.cli import terminal
    from isthmus.core.config import Shared

    given = {"epochs": epochs, "slices": slices}
    chosen = Shared.model_validate({name: value for name, value in given.items() if value is not None})
    rows = measure(seeds, chosen, grids, lambda line: terminal.err.print(line, highlight=False))
    summary = summarise(rows)
    keep(out, {"settings": chosen.model_dump(), "summary": summary, "rows": rows}, 1)
    answer(summary, as_json)


@app.command()
def within(
    rows: Annotated[list[int] | None, typer.Option(min=20, help="Rows of the data; repeatable.")] = None,
    wish: Annotated[list[str] | None, typer.Option(help="A time that a search may take; repeatable.")] = None,
    resumed: Annotated[bool, typer.Option(help="Also measure searches that were stopped before.")] = True,
    kept: Annotated[Path, typer.Option(help="Keeps the measured cases, one per line.")] = Path("within.jsonl"),
    out: Annotated[Path | None, typer.Option(help="Also write the table into this JSON file.")] = None,
    as_json: Json = False,
) -> None:
    """Whether `isthmus find` ends in its time: 15 s to 10 min on tables of 150 to a million rows; resumes."""
    from benchmarks.within import ROWS, WISHES, measure
    from isthmus.cli import terminal

    say = lambda line: terminal.err.print(line, highlight=False)  # noqa: E731
    found = measure(tuple(rows or ROWS), tuple(wish or WISHES), resumed, kept, say)
    keep(out, {"rows": found}, 1)
    answer(found, as_json)
