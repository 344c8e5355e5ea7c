"""The command line. Every command imports what it needs when it is called, so that help answers at once."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from isthmus.bench.command import app as bench_app
from isthmus.errors import UserError

app = typer.Typer(
    help="Find, train and explain the shape of residual networks: wide skips, narrow computation.",
    epilog="Runs, reports and caches live in ISTHMUS_HOME (default ~/.isthmus), data files in ISTHMUS_DATA.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
runs_app = typer.Typer(help="List, compare and remove runs.", no_args_is_help=True)
app.add_typer(runs_app, name="runs")
app.add_typer(bench_app, name="bench")

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Fields to change, such as `model.d_h=64`.")
]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="Where data files are (default: `ISTHMUS_DATA`).", show_default=False)
]


def main() -> None:
    """Run the command line. What a user did wrong is one line and exit code 2; a stop is 130."""
    try:
        app(prog_name="isthmus")
    except UserError as error:
        _fail(str(error))
    except SystemExit as end:
        if end.code == 130:  # what Typer makes of a KeyboardInterrupt
            _fail("stopped; the same command goes on where it stopped", 130)
        raise
    except BrokenPipeError:  # `isthmus runs list | head`
        sys.stderr.close()
    except MemoryError:
        _fail("out of memory; a smaller model or batch would fit")
    except RuntimeError as error:  # torch's own kinds of it
        if "memory" not in str(error):
            raise
        _fail("out of memory; a smaller model or batch would fit")
    except OSError as error:  # a full or unwritable disk, where no message of ours was nearer
        _fail(f"{error.filename or 'the disk'}: {error.strerror or error}")


def _fail(message: str, code: int = 2) -> None:
    print(f"isthmus: {' '.join(message.splitlines())}", file=sys.stderr)
    sys.exit(code)


@contextmanager
def _asked_to_stop() -> Iterator[Any]:
    """Turns the first Ctrl-C into a request to save and stop; the second ends the program."""
    asked: list[int] = []

    def first(number: int, frame: object) -> None:
        asked.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, first)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)


def _settings(target: str, overrides: list[str] | None) -> dict[str, Any]:
    """The settings of a recipe or of a JSON or YAML file, with the overrides applied."""
    from isthmus.config import RunConfig, overridden, read_settings
    from isthmus.registry import find

    if Path(target).suffix in (".json", ".yaml", ".yml"):
        settings = read_settings(Path(target))
    else:
        config = find("recipes", target)()
        if not isinstance(config, RunConfig):
            raise UserError(
                f"recipe {target!r} is a study of many runs, for `isthmus study {target}`; `isthmus recipes` lists all"
            )
        settings = config.model_dump(mode="json", exclude_defaults=True)
    return overridden(settings, overrides or [])


@app.command()
def demo(
    workers: Annotated[int, typer.Option(min=1, help="Processes, of one thread each.")] = 2,
    out: Annotated[Path | None, typer.Option(help="Folder of the page (default: in ISTHMUS_HOME).")] = None,
    as_json: Json = False,
) -> None:
    """The main job on embedded data: both shapes, many sizes, two seeds; ends in a table and a page.

    Run again, it answers from its records; interrupted, it goes on.
    """
    from isthmus.recipes.hourglass import demo as recipe
    from isthmus.run import Options
    from isthmus.studies.command import answer, complete

    answer(complete(recipe(), Options(command=_command()), workers), out, as_json)


@app.command()
def study(
    target: Annotated[str, typer.Argument(help="A study recipe, a JSON or YAML file, or `shape`.")],
    overrides: Overrides = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes here (default: cores / threads).")] = None,
    cluster: Annotated[str | None, typer.Option(help="A Ray cluster: `auto`, or its address.")] = None,
    storage: Annotated[
        str | None, typer.Option(help="Database URL, `postgresql://…` (default: SQLite in ISTHMUS_HOME).")
    ] = None,
    time_budget: Annotated[str | None, typer.Option(help="Fit the study into `30m`, `2h` or `90s`.")] = None,
    data: Annotated[str | None, typer.Option(help="For `shape`: a file of rows, a folder of images, a source.")] = None,
    task: Annotated[str | None, typer.Option(help="For `shape`: `regression`, `denoise`, …")] = None,
    budget: Annotated[str | None, typer.Option(help="For `shape`: parameters at most, such as `200k`.")] = None,
    target_column: Annotated[
        list[str] | None, typer.Option("--target", help="For `shape`: the column or array to predict.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the page (default: in ISTHMUS_HOME).")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Find the best shape: many candidates, repeated over seeds, ending in fronts, an answer and a page.

    The same command goes on where it stopped; several at once share the work. For example:

    `isthmus study shape --data table.csv --task regression --budget 200k`

    `isthmus study mnist5k-shapes sampling.name=tpe sampling.candidates=24 --workers 2 --time-budget 20m`
    """
    from isthmus.run import Options
    from isthmus.studies.command import answer, complete, recommend

    options = Options(data_dir=data_dir, command=_command())
    seconds = None if time_budget is None else _seconds(time_budget)
    config = _study_config(target, overrides, options, data, task, budget, target_column)
    found = complete(
        config, options, workers or _workers(config.base.threads), cluster=cluster, url=storage, time_budget=seconds
    )
    answer(found, out, as_json)
    if target == "shape" and not as_json:
        recommend(found)


def _workers(threads: int) -> int:
    import os

    return max(1, (os.cpu_count() or 1) // threads)


def _seconds(text: str) -> float:
    import re

    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text.strip())
    if not match or not float(match[1]):
        raise UserError(f"--time-budget {text!r} is not a time such as 90s, 30m or 2h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


def _study_config(
    target: str,
    overrides: list[str] | None,
    options: Any,
    data: str | None,
    task: str | None,
    budget: str | None,
    columns: list[str] | None,
) -> Any:
    from isthmus.config import StudyConfig, overridden, read_settings, study_config
    from isthmus.registry import catalogue, find
    from isthmus.space import amount

    if target == "shape":
        if data is None or task is None or budget is None:
            raise UserError("`isthmus study shape` needs --data, --task and --budget")
        params = amount(budget)
        if not isinstance(params, int) or params < 1:
            raise UserError(f"--budget {budget!r} is not a number of parameters such as 200k")
        from isthmus.studies.shape import shape_study

        return shape_study(data, task, params, options, columns or (), overrides or ())
    if Path(target).suffix in (".json", ".yaml", ".yml"):
        settings = read_settings(Path(target))
    else:
        config = find("recipes", target)()
        if not isinstance(config, StudyConfig):
            studies = [name for name in catalogue("recipes") if isinstance(find("recipes", name)(), StudyConfig)]
            raise UserError(
                f"recipe {target!r} is one run, for `isthmus train`; studies are: {', '.join(studies)}, shape"
            )
        settings = config.model_dump(mode="json", exclude_defaults=True)
    return study_config(overridden(settings, overrides or []))


@app.command()
def reproduce(
    paper: Annotated[str, typer.Argument(help="A paper, such as `hourglass`.")],
    table: Annotated[
        str, typer.Argument(help="A table, figure or section: `T1`, `T6`–`T9`, `F3`, `F4`, `F6`–`F9`, `S4`.")
    ],
    scale: Annotated[
        str, typer.Option(help="`smoke`: seconds, embedded data; `cpu`: about an hour; `paper`: the exact protocol.")
    ] = "cpu",
    workers: Annotated[int | None, typer.Option(min=1, help="Processes of one thread (default: cores).")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the results (default: in ISTHMUS_HOME).")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Measure a paper's table or figure again: measured beside published, row by row, and which claims hold.

    For example: `isthmus reproduce hourglass T8 --scale smoke`
    """
    from isthmus.reproduction import reproduce as measure_again

    measure_again(paper, table, scale, out, workers or _workers(1), data_dir, as_json)


@app.command()
def models(as_json: Json = False) -> None:
    """The registered architectures, ours and those of installed packages."""
    from isthmus import terminal
    from isthmus.registry import catalogue

    homes = catalogue("models")
    if as_json:
        terminal.print_json(homes)
    else:
        terminal.print_table("", ["model", "defined in"], [[name, home] for name, home in homes.items()])


@app.command()
def recipes(as_json: Json = False) -> None:
    """The complete configs that `train` and `study` know by name."""
    from isthmus import terminal
    from isthmus.registry import catalogue, find

    lines = {name: _first_line(find("recipes", name).__doc__) for name in catalogue("recipes")}
    if as_json:
        terminal.print_json(lines)
    else:
        for name, line in lines.items():
            terminal.out.print(f"[bold]{name}[/bold]  {line}", highlight=False)


@app.command()
def describe(
    name: Annotated[str, typer.Argument(help="A model, such as `hourglass_mlp`.")],
    fields: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Its fields, `d_z=785`.")] = None,
    as_json: Json = False,
) -> None:
    """What a model costs: parameters, multiply-adds, training FLOPs and bytes. Takes no memory, whatever its size.

    Without fields: the fields that the model has.
    """
    from isthmus import terminal
    from isthmus.config import parse_override
    from isthmus.counting import cost
    from isthmus.registry import component, find

    if not fields:
        _print_fields(name, find("models", name), as_json)
        return
    settings: dict[str, Any] = {"name": name}
    for text in fields:
        path, value = parse_override(text)
        settings[path[-1] if path[0] == "model" else ".".join(path)] = value
    config = component("models", settings)
    counted = cost(settings).as_dict()
    if as_json:
        terminal.print_json({"model": config.model_dump(mode="json"), **counted})
    else:
        rows = [[key.replace("_", " "), value, terminal.size(value)] for key, value in counted.items()]
        terminal.print_table(name, ["per input", "count", "about"], rows)


def _print_fields(name: str, model: Any, as_json: bool) -> None:
    from isthmus import terminal

    properties = model.Config.model_json_schema()["properties"]
    if as_json:
        terminal.print_json(model.Config.model_json_schema())
        return
    rows = [
        [field, "required" if info.is_required() else str(info.default), _accepts(properties[field])]
        for field, info in model.Config.model_fields.items()
        if field != "name"
    ]
    terminal.out.print(_first_line(sys.modules[model.__module__].__doc__), highlight=False)
    terminal.print_table(f"fields of {name}", ["field", "default", "accepts"], rows)


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def _accepts(schema: dict[str, Any]) -> str:
    """The values that a field takes, from its JSON schema."""
    if "anyOf" in schema:
        return " or ".join(_accepts(part) for part in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    low = f" ≥ {schema['minimum']}" if "minimum" in schema else ""
    return f"{schema.get('type', 'value')}{low}"


@app.command()
def shapes(
    omega: Annotated[str, typer.Option(help="Connections of a layer on average: `2^18`, `262144`, `2.6e8`.")],
    gamma: Annotated[float, typer.Option(help="Expansion of the hidden layers; 1 for S-Mixers.")] = 1.0,
    channels: Annotated[
        list[int] | None, typer.Option("--channels", min=1, help="Only this C; may be repeated.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Mixers with equally many connections, from narrow to widest to narrow: whole S and C, width and density.

    For example: `isthmus shapes --omega 2^19 --gamma 2`
    """
    from dataclasses import asdict

    from isthmus import terminal
    from isthmus.shape_theory import parse_amount, widest_side
    from isthmus.shape_theory import shapes as of_equal_cost

    wanted = parse_amount(omega)
    found = of_equal_cost(wanted, gamma, channels)
    if as_json:
        terminal.print_json([asdict(each) for each in found])
        return
    rows = [
        [each.C, each.S, each.m, f"{each.p:.4g}", f"{each.omega:,.0f}", f"{each.deviation:.2%}".replace("-", "–")]
        for each in found
    ]
    title = f"omega {wanted:,.0f}, gamma {gamma:g}: widest at C = S = {widest_side(wanted, gamma):.4g}"
    terminal.print_table(title, ["C", "S", "m", "p", "omega", "deviation"], rows)


@app.command()
def doctor(as_json: Json = False) -> None:
    """What this machine has, and what is missing."""
    from isthmus import terminal
    from isthmus.diagnosis import diagnose

    findings = diagnose()
    if as_json:
        terminal.print_json([vars(finding) for finding in findings])
    else:
        marks = {True: "[green]✓[/green]", False: "[yellow]–[/yellow]"}
        rows = [[marks[finding.good], finding.subject, finding.found, finding.advice] for finding in findings]
        terminal.print_table("", ["", "what", "found", "what to do"], rows)
    raise typer.Exit(0 if all(finding.good or finding.optional for finding in findings) else 1)


@app.command()
def train(
    target: Annotated[
        str, typer.Argument(help="A recipe (`isthmus recipes`) or a JSON or YAML file of the same fields.")
    ],
    overrides: Overrides = None,
    data_dir: DataDir = None,
    init: Annotated[str | None, typer.Option(help="Start from the weights of this run (fine-tuning).")] = None,
    devices: Annotated[int | None, typer.Option(min=1, help="Processes of one device each.")] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also log for TensorBoard, in the run's folder.")
    ] = False,
    other_code: Annotated[bool, typer.Option("--other-code", help="Go on with a run that other code began.")] = False,
    save_every: Annotated[float, typer.Option(min=0, help="Seconds between two saved states.")] = 30.0,
    as_json: Json = False,
) -> None:
    """Train one model. The same command goes on where it stopped, and answers from its record once it is done.

    For example: `isthmus train mnist5k-denoise model.d_h=64 train.epochs=3 seed=1`
    """
    from isthmus import terminal
    from isthmus.config import overridden, run_config
    from isthmus.record import find_run, read_record
    from isthmus.registry import find
    from isthmus.run import Options, prepare, run
    from isthmus.training.devices import is_another
    from isthmus.training.loop import Stopped

    settings = _settings(target, overrides)
    start = find_run(init) if init is not None else None
    if start is not None:
        settings["init"] = read_record(start).id
    if devices is not None:
        settings = overridden(settings, [f"train.devices={devices}"])
    config = run_config(settings)
    prepared = prepare(config, Options(data_dir=data_dir, init_folder=start))
    display = terminal.TrainingDisplay(find("tasks", config.task.name).objective)
    with _asked_to_stop() as stop:
        options = Options(
            data_dir=data_dir, init_folder=start, save_every=save_every, other_code=other_code, tensorboard=tensorboard,
            command=_command(), stop=stop, heard=display.heard,
        )  # fmt: skip
        terminal.err.print(f"run {prepared.id} in {prepared.folder}", highlight=False, soft_wrap=True)
        try:
            with display:
                record = run(prepared, options, display.step)
        except Stopped:
            raise KeyboardInterrupt from None
    if as_json and not is_another():
        terminal.print_json(vars(record))
    elif not is_another():
        _print_record(record, prepared.folder)
    raise typer.Exit(0 if record.status == "finished" else 1)


def _command() -> str:
    return shlex.join(["isthmus", *sys.argv[1:]])


def _print_record(record: Any, folder: Path) -> None:
    from isthmus import terminal

    if record.status != "finished":
        terminal.out.print(f"[red]failed:[/red] {record.reason}", highlight=False)
        return
    names = list(record.metrics["test"])
    rows = [[split, *(_number(values.get(name)) for name in names)] for split, values in record.metrics.items()]
    terminal.print_table("", ["split", *names], rows)
    chosen = record.selected
    terminal.out.print(
        f"weights of epoch {chosen['epoch']:g} ({chosen['by']}), {terminal.size(record.cost['params'])} parameters, "
        f"{terminal.duration(record.wall_seconds)}",
        highlight=False,
    )
    terminal.out.print(f"isthmus predict {record.id} FILES    isthmus report {record.id}", highlight=False)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


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
        int | None, typer.Option(min=1, help="Of a Sudoku run: other than the trained number.", show_default=False)
    ] = None,
    masked: Annotated[
        float | None, typer.Option(min=0, max=1, help="Of a masked-image run: the part to hide.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Apply a trained run, or its export, to files. Images of any size are restored by tiles; a Sudoku is solved.

    Files of rows may be larger than memory: they are read, computed and written piece by piece. A run on masked images
    hides a part of each and fills it in again.
    """
    from isthmus import terminal
    from isthmus.masked_images import filled, fills_masks
    from isthmus.puzzles import answers, solves_puzzles

    if solves_puzzles(run):
        solved = list(answers(run, files, iterations, trace))
        if as_json:
            terminal.print_json([{"file": answer.file, **answer.as_dict()} for answer in solved])
        else:
            for text in (text for answer in solved for text in answer.lines(trace)):
                print(text)
        return
    if trace or iterations is not None:
        raise UserError(f"--trace and --iterations are for runs on Sudoku puzzles; {run} is none")
    if fills_masks(run):
        answers_to = [*filled(run, files, out, masked)]
        if as_json:
            terminal.print_json([answer.as_dict() for answer in answers_to])
        else:
            for answer in answers_to:
                print(answer.line())
        return
    if masked is not None:
        raise UserError(f"--masked is for runs on masked images; {run} is none")
    from isthmus.prediction import predict_files

    results = {}
    for file, result in predict_files(run, files, out):
        results[str(file)] = result
        if not as_json:
            terminal.out.print(f"{file} → {result}", highlight=False, soft_wrap=True)
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
    terminal.out.print(str(write_report(folders, out, title, _command())), highlight=False, soft_wrap=True)


@runs_app.command("list")
def runs_list(as_json: Json = False) -> None:
    """Every run, finished or not."""
    from isthmus import terminal
    from isthmus.runs import overview

    lines = overview()
    if as_json:
        terminal.print_json(lines)
    elif not lines:
        terminal.out.print("no runs yet; `isthmus demo` makes some")
    else:
        terminal.print_table("", list(lines[0]), [list(line.values()) for line in lines])


@runs_app.command("diff")
def runs_diff(
    first: Annotated[str, typer.Argument(help="A run: its id, the beginning of it, or its folder.")],
    second: Annotated[str, typer.Argument(help="Another one.")],
    as_json: Json = False,
) -> None:
    """Where two runs differ: settings, cost and metrics."""
    from isthmus import terminal
    from isthmus.runs import differences

    lines = differences(first, second)
    if as_json:
        terminal.print_json(lines)
    else:
        rows = [[name, str(a), str(b)] for name, (a, b) in lines.items()]
        terminal.print_table("", ["field", first, second], rows)


@runs_app.command("clean")
def runs_clean(
    runs: Annotated[
        list[str] | None, typer.Argument(help="Runs to remove (default: those that never finished).")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Also the ones that failed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove runs: the ones named, or the unfinished ones. A run in use stays."""
    from isthmus import terminal
    from isthmus.runs import removable, remove

    folders = removable(runs or [], failed)
    for folder in folders:
        terminal.out.print(str(folder), highlight=False, soft_wrap=True)
    if not folders:
        terminal.out.print("nothing to remove")
    elif yes or typer.confirm(f"remove {len(folders)} run(s)?"):
        for folder in folders:
            if not remove(folder):
                terminal.err.print(f"{folder.name} is in use by another process and stays", highlight=False)


if __name__ == "__main__":
    main()
