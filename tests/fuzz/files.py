"""Damaged runs, studies, searches, exports and data, and the commands that read them.

Wrong: a command that succeeds with another answer than it gave before the damage. `runs list` may call a run damaged,
and a report leaves out a run whose record was removed. Times are not compared: such a run may be trained again.
Tables (csv, parquet, npy) carry no checksum: of damaged ones, only tracebacks are counted.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import json
import os
import random
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pyarrow
import pyarrow.parquet
import torch
import yaml
from PIL import Image

import isthmus
from isthmus.core.errors import UserError
from tests.fuzz.cases import Answer, Failure, call
from tests.fuzz.damage import damage

COUNT, AT_ONCE, SECONDS = 500, 1, 150.0
MODEL = {"name": "hourglass_mlp", "d_z": 9, "d_h": 3, "depth": 1}
TABLE = {"name": "arrays", "path": "table.csv", "targets": "y", "kind": "regression"}
PICTURES = {"name": "image_folder", "path": "pictures"}
BASE: dict[str, Any] = {"source": TABLE, "task": {"name": "regression"}, "threads": 1}
RUN = BASE | {"model": MODEL, "train": {"epochs": 2, "batch_size": 16}}
SPACE = {"model": {"name": "hourglass_mlp", "depth": 1}, "vary": {"d_z": {"low": 6, "high": 20}, "d_h": [2, 3, 4]}}
GRID = {"model": {"name": "hourglass_mlp", "depth": 1}, "vary": {"d_z": [6, 9, 14, 20], "d_h": [2, 4]}}
RATES = {"learning_rates": [1e-3, 1e-2], "sampling": {"name": "random", "candidates": 3}, "seeds": [0, 1]}
TPE = {"name": "tpe", "candidates": 5, "generation": 3}
RUNGS = {"pruning": {"rungs": [1], "keep": 0.4, "margin": 0.0}, "sampling": TPE}
CONFIGS: dict[str, dict[str, Any]] = {
    "done": RUN,
    "begun": RUN | {"train": {"epochs": 12, "batch_size": 8}},
    "photo": RUN | {"source": PICTURES, "task": {"name": "denoise"}, "model": MODEL | {"d_z": 65}},
    "finished": {"name": "finished", "base": BASE | {"train": {"epochs": 2}}, "spaces": [SPACE]} | RATES,
    "shared": {
        "name": "shared",
        "base": BASE | {"train": {"epochs": 2}},
        "spaces": [GRID],
        "shared": {"first": 3, "keep": 0.4},
    },
    "model": {
        "name": "model",
        "base": BASE | {"train": {"epochs": 4, "batch_size": 8}},
        "spaces": [GRID],
        "sampling": {"name": "model", "candidates": 5, "generation": 2},
        "pruning": {"rungs": [1]},
    },
    "open": {"name": "open", "base": BASE | {"train": {"epochs": 6, "batch_size": 8}}, "spaces": [SPACE]} | RUNGS,
}
FORMATS = ("safetensors", "torch", "onnx")
_TIMES = {
    "wall_seconds", "samples_per_second", "started", "finished", "seconds", "latency", "page", "command", "files",
    "machine", "changed",
}  # fmt: skip
_TIMES_OF_PAGE = re.compile(rb'data-value="[^"]*">[0-9.e-]+[^0-9<]{1,6}(s|min|h)</td>|last run [-0-9]+')
FIND = ("--workers", 1, "train.epochs=1", "--json")


class Target(NamedTuple):
    """Files to damage, by pattern, and what is asked of them then."""

    share: int
    patterns: tuple[str, ...]
    questions: tuple[str, ...]


TARGETS = {
    "run": Target(10, ("home-run/runs/{done}/*",), ("list", "train done", "report", "predict {done}", "load {done}")),
    "begun": Target(8, ("home-run/runs/{begun}/*",), ("list", "train begun")),
    "finished": Target(8, ("home-finished/studies/*/*", "home-finished/runs/*/*"), ("study finished",)),
    "open": Target(10, ("home-open/studies/*/*", "home-open/runs/*/*"), ("study open",)),
    "shared": Target(4, ("home-shared/studies/*/*", "home-shared/runs/*/*"), ("study shared",)),
    "model": Target(5, ("home-model/studies/*/*", "home-model/runs/*/*"), ("study model",)),
    "search": Target(4, ("home-find/finds/*/*", "home-find/runs/*/*"), ("find",)),
    **{f"export {form}": Target(3, (f"as-{form}/*",), (f"predict as-{form}",)) for form in FORMATS},
    "bare": Target(3, ("bare.safetensors",), ("load bare.safetensors",)),
    "data": Target(5, ("table.*", "pictures/*/*"), ("read {file}", "ask {file}")),
}
SEALED = (".npz", ".png")
"""Data whose format has checksums."""


def prepare(store: Path) -> None:
    """Everything that is damaged later, and the answers that it gives undamaged."""
    names = build(store)
    answers = {}
    for question in {text for target in TARGETS.values() for text in target.questions if "{file}" not in text}:
        answers[question] = expected(store, question.format(**names))
    for question in TARGETS["data"].questions:
        for data in dict.fromkeys(map(data_of, data_files())):
            answers[question.format(file=data)] = expected(store, question.format(file=data))
    Path("expected.json").write_text(json.dumps({"names": names, "answers": answers}))


def build(store: Path, *, is_searched: bool = True) -> dict[str, str]:
    """Data, runs, studies, a search and exports; returns the ids of the finished run and of the unfinished one."""
    os.chdir(store)
    write_data()
    for name, settings in CONFIGS.items():
        Path(f"{name}.yaml").write_text(yaml.safe_dump(settings))
    with home("run"):
        done = json.loads(sound("train", "done.yaml", "--json").out)["id"]
        sound("train", "photo.yaml")
        with interrupted_once(lambda: max(map(count_lines, Path("home-run/runs").glob("*/metrics.jsonl"))) > 9):
            call("train", "begun.yaml", "--save-every", 0)
        for form in FORMATS:
            sound("export", done, "--to", form, "--out", f"as-{form}")
    begun = next(path.name for path in Path("home-run/runs").iterdir() if not (path / "record.json").exists())
    shutil.copy("as-safetensors/model.safetensors", "bare.safetensors")
    for name in ("finished", "shared"):
        with home(name):
            sound("study", f"{name}.yaml", "--workers", 1)
    for name in ("open", "model"):
        records = Path(f"home-{name}/runs")
        with home(name), interrupted_once(partial(has_two_records, records)):
            call("study", f"{name}.yaml", "--workers", 1)
    if not any(not (path / "record.json").exists() for path in Path("home-open/runs").iterdir()):
        raise Failure("wrong", "the open study has no unfinished run")
    if is_searched:
        ask("find")
    return {"done": done, "begun": begun}


def expected(store: Path, question: str) -> Any:
    """The answer without damage, twice: what differs then would be noise here."""
    found = []
    for place in ("first", "second"):
        shutil.copytree(store, Path(os.environ["HOME"]) / place, dirs_exist_ok=True)
        os.chdir(Path(os.environ["HOME"]) / place)
        found.append(ask(question))
    os.chdir(store)
    for place in ("first", "second"):
        shutil.rmtree(Path(os.environ["HOME"]) / place)
    if found[0] != found[1] or found[0] == REFUSED:
        raise Failure("wrong", f"{question} without damage: {str(found)[:1500]}")
    return found[0]


def attack(number: int, draw: random.Random, store: Path) -> str:
    shutil.copytree(store, "attacked")
    os.chdir("attacked")
    known = json.loads(Path("expected.json").read_text())
    name = draw.choices(list(TARGETS), [target.share for target in TARGETS.values()])[0]
    target = TARGETS[name]
    victims = sorted(file for pattern in target.patterns for file in Path().glob(pattern.format(**known["names"])))
    file = draw.choice([file for file in victims if file.is_file() and file.name != ".lock"])
    content = file.read_bytes()
    done = damage(draw, file, victims)
    if file.exists() and file.read_bytes() == content:
        return f"{name} undamaged"
    said = []
    for template in draw.sample(target.questions, len(target.questions)):  # training may mend what the others see
        question = template.format(**known["names"], file=data_of(file))
        try:
            answer = ask(question)
        except Failure as failure:
            raise Failure(failure.way, f"{file}, {done}; {question}: {failure.what}") from None
        before = known["answers"][question if name == "data" else template]
        said.append("refused" if answer == REFUSED else "same" if answer == before else "other")
        if said[-1] == "other" and not is_excused(name, file, done.split()[0], question, before, answer):
            raise Failure("wrong", f"{file}, {done}; {question}: {differing(before, answer)}")
    return f"{name.partition(' ')[0]} {'refused' if 'refused' in said else said[0]}"


def is_excused(target: str, file: Path, way: str, question: str, before: Any, answer: Any) -> bool:
    """A run that is listed as damaged; without its record, as unfinished, and not reported; and other data, which no
    checksum tells."""
    if target == "data":
        is_said = question.startswith("ask") and any("skipped" in finding for finding in answer["findings"])
        return file.suffix not in SEALED or way in ("remove", "foreign") or is_said
    is_unfinished = way == "remove" and file.name == "record.json"
    states = [
        "damaged",
        *["unfinished"] * is_unfinished,
        *["finished"] * (target == "begun"),
    ]  # if it was trained first
    if question == "report" and is_unfinished:
        return is_without(file.parent.name, before, answer)
    if question == "list" and len(answer) == len(before):
        return all(now == then or (now["run"] == then["run"] and now["status"] in states)
                   for now, then in zip(answer, before, strict=True))  # fmt: skip
    return False


def is_without(run: str, before: Any, answer: Any) -> bool:
    """Whether the tables of a report are those of before, except for the rows of a run."""
    return all(
        answer[name] == [row for row in rows if run not in (row.get("id"), row.get("run_ids"))]
        for name, rows in before.items()
        if name.endswith(".csv")
    )


def differing(before: Any, answer: Any) -> str:
    """The first part in which two answers differ."""
    if isinstance(before, dict) and isinstance(answer, dict) and before.keys() == answer.keys():
        return next(f"{key}: {differing(before[key], answer[key])}" for key in before if before[key] != answer[key])
    if isinstance(before, list) and isinstance(answer, list) and len(before) == len(answer):
        return next(differing(then, now) for then, now in zip(before, answer, strict=True) if then != now)
    return f"{str(before)[:300]} → {str(answer)[:300]}"


# Questions

REFUSED = "refused"


def ask(question: str) -> Any:
    """What a command answers, without the times in it; or that it refuses to."""
    what, _, name = question.partition(" ")
    place = {"study": name, "find": "find"}.get(what, "run")
    with home(place), without_drawings():
        if what == "list":
            return answer_of(call("runs", "list", "--json"), lambda answer: sorted(json_value(answer), key=run_of))
        if what in ("train", "study"):
            words = ("--workers", 1) if what == "study" else ()
            return answer_of(call(what, f"{name}.yaml", "--json", *words), json_value)
        if what == "report":
            return answer_of(call("report", "--out", "page"), lambda _: contents("page"))
        if what == "predict":
            return answer_of(call("predict", name, "table.csv", "--out", "predicted"), lambda _: contents("predicted"))
        if what == "read":
            return read(name)
        if what == "find":
            data = ("table.csv", "--target", "y", "source.path=table.csv")  # in any folder
            return answer_of(call("find", *data, "--budget", 12, "--within", "10m", *FIND), json_value)
        if what == "ask":
            return ask_for_network(name)
    return loaded(name)


def read(path: str) -> Any:
    """Train on a file or folder, which shows everything that was read from it, by the run's id."""
    settings = CONFIGS["photo" if path == "pictures" else "done"]
    Path("read.yaml").write_text(yaml.safe_dump(settings | {"source": settings["source"] | {"path": path}}))
    return answer_of(call("train", "read.yaml", "--json"), json_value)


def ask_for_network(path: str) -> Any:
    """Search a moment for a network; what it says of the data."""
    words = ("--budget", "20k") if path == "pictures" else ("--target", "y", "--budget", 12)
    answer = call("find", path, *words, "--within", "1s", *FIND)
    return answer_of(answer, lambda answer: {name: json_value(answer)[name] for name in ("words", "findings", "rows")})


def loaded(name: str) -> Any:
    path = Path("home-run/runs") / name if "." not in name else Path(name)
    try:
        model = isthmus.load(path)
        with torch.no_grad():
            return model(torch.linspace(-1, 1, 9).reshape(3, 3)).tolist()
    except UserError:
        return REFUSED
    except Exception as error:
        raise Failure("traceback", f"{type(error).__name__}: {error}") from error


def answer_of(answer: Answer, read_answer: Callable[[Answer], Any]) -> Any:
    if answer.is_refusal:
        return REFUSED
    return read_answer(answer)


def json_value(answer: Answer) -> Any:
    try:
        return timeless(json.loads(answer.out))
    except ValueError:
        raise Failure("wrong", f"exit {answer.code} without JSON: {answer.out[:200]!r} {answer.err[-300:]!r}") from None


def run_of(row: Any) -> str:
    """The newest run is listed first, which training again changes."""
    return str(row["run"])


def contents(folder: str) -> dict[str, Any]:
    """The rows of csv files and the digests of others, without times and without this folder's name."""
    files = [file for file in sorted(Path(folder).rglob("*")) if file.is_file() and file.suffix != ".png"]
    texts = {str(file): file.read_bytes().replace(bytes(Path.cwd()), b"") for file in files}
    named = {name: text.decode().splitlines(keepends=True) for name, text in texts.items() if name.endswith(".csv")}
    tables = {name: csv.DictReader(lines) for name, lines in named.items()}
    digests = {name: hashlib.sha256(_TIMES_OF_PAGE.sub(b"", text)).hexdigest() for name, text in texts.items()}
    # Which columns there are depends on the runs: empty cells are left out.
    rows = {name: [{key: cell for key, cell in row.items() if cell} for row in table] for name, table in tables.items()}
    return digests | {name: timeless(found) for name, found in rows.items()}


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: timeless(inner) for key, inner in value.items() if key not in _TIMES}
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


@contextlib.contextmanager
def without_drawings() -> Iterator[None]:
    """Pictures take most of a report's time; what they show is in its tables and its page."""

    def save_nothing(picture: Any, path: Path) -> None:
        path.write_bytes(b"")

    with contextlib.ExitStack() as stack:
        for name in ("draw_front", "draw_curves", "draw_gap"):
            stack.enter_context(mock.patch(f"isthmus.reports.pictures.{name}"))
        stack.enter_context(mock.patch("isthmus.reports.pictures.save", save_nothing))
        yield


@contextlib.contextmanager
def home(name: str) -> Iterator[None]:
    with mock.patch.dict(os.environ, {"ISTHMUS_HOME": str(Path(f"home-{name}").resolve())}):
        yield


# What is damaged


def sound(*words: object) -> Answer:
    answer = call(*words)
    if answer.code:
        raise Failure("wrong", f"{words}: {answer}")
    return answer


def has_two_records(runs: Path) -> bool:
    return len(list(runs.glob("*/record.json"))) >= 2


def count_lines(file: Path) -> int:
    return file.read_text().count("\n")


@contextlib.contextmanager
def interrupted_once(is_time: Callable[[], bool]) -> Iterator[None]:
    """Ctrl-C for the command inside, as soon as something is the case."""
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.is_set():
            with contextlib.suppress(OSError, ValueError):
                if is_time():
                    os.kill(os.getpid(), signal.SIGINT)
                    return
            time.sleep(0.002)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def data_files() -> list[Path]:
    return sorted(file for pattern in TARGETS["data"].patterns for file in Path().glob(pattern))


def data_of(file: Path) -> str:
    """What a command is given to read a file: itself, or the folder of an image."""
    return "pictures" if file.suffix == ".png" else str(file)


def write_data() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(60, 3))
    table = np.column_stack([x, x @ [1.0, -2.0, 0.5]]).round(4)
    lines = ["a,b,c,y", *(",".join(map(str, row)) for row in table.tolist())]
    Path("table.csv").write_text("\n".join(lines) + "\n")
    with gzip.GzipFile("table.csv.gz", "wb", mtime=0) as file:
        file.write(Path("table.csv").read_bytes())
    np.savez("table.npz", x=table[:, :3], y=table[:, 3])
    columns = dict(zip("abcy", table.T, strict=True))
    pyarrow.parquet.write_table(pyarrow.table(columns), "table.parquet")
    for number in range(12):
        folder = Path("pictures") / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 255, (8, 8), dtype=np.uint8)).save(folder / f"{number}.png")
