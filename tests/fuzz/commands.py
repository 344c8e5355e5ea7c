"""Every command with random options and hostile values, streams and surroundings; thirty in new interpreters.

A command that works for long is asked to stop by SIGTERM or SIGINT.
Wrong: a changed file of the user's, a changed record, or characters that the output's encoding lacks.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import typer.main

from isthmus.cli.main import app
from isthmus.core.registry import catalogue
from tests.fuzz import files
from tests.fuzz.cases import BROKEN, Answer, Failure, Streams, ended, judge, start

COUNT, AT_ONCE, SECONDS = 300, 1, 300.0
RESULTS = Path(__file__).parents[2] / "results"
_NEW = 10
"""Every so many cases, a new interpreter."""
_WORKING, _PATIENCE = 5.0, 120.0

PATHS = [
    "table.csv", "table.npz", "[/x].csv", "[bold]a[/bold].csv", "loop", "loop/x.csv", "fifo.csv", "fifo.yaml",
    "/dev/zero", "/dev/full", "/dev/null/x", "missing.csv", "a\nb.csv", "ünï 名.csv", "x" * 300, "-", "", ".", "..",
    "~nobody/x", "folder.csv", "RUN", "home-run/runs/RUN", "as-safetensors", "as-safetensors/model.safetensors",
    "empty.csv", "\udcff.csv", "%s{0}",
]  # fmt: skip
NUMBERS = ["1", "2", "0", "-1", "1.5", "nan", "inf", "1e999", "9" * 400, "٣", "x", "", "0x10", "1e-300", "10**9"]
FEW = ["1", "2", "0", "-1", "x", "1.5", ""]  # of processes or threads, which are started as asked
TARGETS = ["done.yaml", "finished.yaml", "open.yaml", "shape", "digits-mixer", "digits-shapes", "nothing", "loop.yaml"]
OVERRIDES = [
    "train.epochs=1", "seed=1", "seeds=[0]", "x", "=", "a=", "model.d_z=[/x]", "a.b.c=1", "seed=" + "9" * 5_000,
    "name=[/x]", "source.path=/dev/zero", "source.path=fifo.csv", "source.path=loop", "seed=\u202e", "x" * 9_000,
    "threads=999999", "model.d_z=99999999", "train.batch_size=1", "source.path=[/x].csv",
]  # fmt: skip
DATABASES = [
    "sqlite:///x.db",
    "sqlite:////dev/full",
    "sqlite:///loop",
    "postgresql://127.0.0.1:1/x",
    "mysql://x",
    "://",
]
VALUES: dict[str, list[str]] = {
    "target": [*TARGETS, *PATHS],
    "overrides": OVERRIDES,
    "fields": ["d_in=4", "d_out=4", "d_z=9", "d_h=3", "depth=1", "d_z=1e99", "depth=100000", "x", "d_z=[/x]"],
    "name": [*catalogue("models"), "vit/tiny-hourglass", "nothing", "[/x]", "vit/"],
    "run": ["RUN", "RU", "", "home-run/runs/RUN", "as-torch", "as-onnx", "as-safetensors", "[/x]", "loop", *PATHS],
    "runs": ["RUN", "", "loop", "[/x]", "..", "home-run/runs/RUN", "/", "table.csv"],
    "first": ["RUN", "[/x]", "loop", ""],
    "second": ["RUN", "[/x]", "as-torch", ".."],
    "against": ["RUN", "untrained", "[/x]"],
    "to": ["safetensors", "onnx", "torch", "narrow", "4M", "1e300", "[/x]", ""],
    "cost": ["bytes", "latency", "params", "[/x]"],
    "tolerance": ["0.1", *NUMBERS],
    "network": ["hyper_set/sudoku", "mlp_mixer/s", "crate/tiny", "[/x]", ""],
    "studies": ["studied", "studied/candidates.csv", "finished.yaml", "shared.yaml", "digits-shapes", *PATHS],
    "cross": ["hourglass_mlp,conventional_mlp", "hourglass_mlp", ",", "[/x],vit", ""],
    "test": ["table.csv", *PATHS],
    "without": ["a", "y", "z", "[/x]", ""],
    "patch": ["2", *NUMBERS],
    "only": ["cka", "singular_values", "[/x]", "", "nothing"],
    "paper": ["hourglass", "imixer", "[/x]", ""],
    "table": ["T8", "T99", "[/x]", ""],
    "scale": ["smoke", "cpu", "[/x]"],
    "task": ["regression", "denoise", "classification", "[/x]"],
    "budget": ["200k", "5k", "0", "nan", "1e999", "9" * 400, "[/x]"],
    "within": ["1s", "2s", "0", "9" * 30 + "d", "x", "٣s"],
    "cluster": ["127.0.0.1:1", "[/x]", ""],
    "storage": [*DATABASES, "[/x]"],
    "target_column": ["y", "z", "", "[/x]", "0"],
    "title": ["[/x]", "<script>", "\x1b[2J", "\udcff"],
    "init": ["RUN", "[/x]", "loop"],
    "omega": ["2^18", "2^999999", *NUMBERS],
    "save_every": ["0", "1", "-1", "nan", "inf", "x"],
    **dict.fromkeys(("gamma", "channels", "iterations", "masked"), NUMBERS),
    **dict.fromkeys(("workers", "devices", "threads", "repeats", "trials", "seeds", "rows"), FEW),
}
"""By the name of a parameter; the others are paths."""
HOMES = ["home-run"] * 15 + [
    "[/x]",
    "[bold]h",
    "loop",
    "table.csv",
    "/dev/null/x",
    "fifo.csv",
    "new home",
    "ünï",
    "a\nb",
    "",
]
STREAMS = [
    *[Streams()] * 6, Streams(out=""), Streams(err=""), Streams(stdin=""), Streams(out="", err=""), Streams("", "", ""),
    Streams(out="/dev/full"), Streams(err="/dev/full"), Streams(encoding="ascii"), Streams(encoding="latin-1"),
    Streams(stdin="/dev/zero"),
]  # fmt: skip
RARE = ("bench", "demo", "reproduce")  # they work for long whatever is given


class Surroundings(NamedTuple):
    streams: Streams
    home: str | None
    """ISTHMUS_HOME, below the folder of the case; None where it is not set."""
    has_user: bool
    """Whether the system knows the user's home."""


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that can be typed, with its parameters."""
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from walk(inner, (*path, name))
    else:
        yield path, command.params


COMMANDS = list(walk(typer.main.get_command(app)))


def prepare(store: Path) -> None:
    """The undamaged runs and exports of the other fuzz, and files with difficult names."""
    Path(store / "run.txt").write_text(files.build(store, is_searched=False)["done"])
    for name in ("[/x].csv", "[bold]a[/bold].csv", "ünï 名.csv", "a\nb.csv"):
        Path(name).parent.mkdir(exist_ok=True)
        shutil.copy("table.csv", name)
    Path("studied").mkdir()
    Path("studied/candidates.csv").write_bytes((RESULTS / "demo" / "candidates.csv").read_bytes())
    Path("empty.csv").touch()
    Path("folder.csv").mkdir()
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("years of work")


def attack(number: int, draw: random.Random, store: Path) -> str:
    shutil.copytree(store, "here")
    os.chdir("here")
    for loop in ("loop", "loop.yaml"):
        Path(loop).symlink_to(loop)
    for pipe in ("fifo.csv", "fifo.yaml"):
        os.mkfifo(pipe)
    run = Path("run.txt").read_text()
    path, words = draw_words(draw)
    words = [word.replace("RUN", run).replace("RU", run[:2]) for word in words]
    around = draw_surroundings(draw)
    before = treasures()
    sent, answer = run_command(words, around, number % _NEW == 0, draw)
    is_stopped = bool(sent) and answer.code in (-sent, 128 + sent)
    shown = f"isthmus {' '.join(map(repr, words))[:400]} with {around}"
    try:
        if not is_stopped:
            judge_all(answer, around)
    except Failure as failure:
        raise Failure(failure.way, f"{shown}: {failure.what}") from None
    after = treasures()
    kept = [name for name in before if path != ("runs", "clean") or not name.endswith("record.json")]
    if changed := [name for name in kept if after.get(name) != before[name]]:
        raise Failure("wrong", f"{shown} changed {changed}")
    return f"{path[0]} {'stopped' if is_stopped else 'refused' if answer.is_refusal else 'done'}"


def draw_words(draw: random.Random) -> tuple[tuple[str, ...], list[str]]:
    common = [item for item in COMMANDS if item[0][0] not in RARE]
    path, params = draw.choice(common if draw.random() < 0.93 else COMMANDS)
    words, is_gentle = list(path), draw.random() < 0.4
    for param in params:
        left_out = (0.0 if is_gentle else 0.03) if param.required else (0.8 if is_gentle else 0.6)
        is_several = param.nargs == -1 or getattr(param, "multiple", False)
        values = VALUES.get(param.name, PATHS)
        if is_gentle:
            values = values[:2]  # which are good
        for _ in range(0 if draw.random() < left_out else draw.choice([1, 1, 2, 3]) if is_several else 1):
            value = [] if getattr(param, "is_flag", False) else [draw.choice(values)]
            words += value if param.param_type_name == "argument" else [draw.choice(param.opts), *value]
    if path == ("find",) and "--within" not in words:
        words += ["--within", "2s"]  # by default it works for two minutes
    if not is_gentle and draw.random() < 0.08:
        words.insert(draw.randrange(len(words)), draw.choice(["--nothing", "-h", "--help", "--", "--json=1", "\udcff"]))
    return path, words


def draw_surroundings(draw: random.Random) -> Surroundings:
    where = draw.random()
    return Surroundings(draw.choice(STREAMS), None if where < 0.15 else draw.choice(HOMES), has_user=where > 0.07)


def run_command(words: list[str], around: Surroundings, is_new: bool, draw: random.Random) -> tuple[int, Answer]:
    """The signal that was needed to stop it, or 0, and the answer."""
    os.environ.pop("ISTHMUS_HOME", None)
    if around.home is not None:
        os.environ["ISTHMUS_HOME"] = str(Path.cwd() / around.home) if around.home else ""
    if not around.has_user:
        os.environ.pop("HOME", None)
    nobody = mock.patch("pwd.getpwuid", side_effect=KeyError("nobody has this number"))
    with files.without_drawings(), contextlib.nullcontext() if around.has_user else nobody:
        process = start(words, around.streams, is_new=is_new)
    sent, code = 0, ended(process, _WORKING * (3 if is_new else 1))
    if code is None:
        sent = draw.choice([signal.SIGTERM, signal.SIGINT])
        os.kill(process, sent)
        code = ended(process, _PATIENCE)
    if code is None:
        raise Failure("endless", f"isthmus {words} with {around} goes on after {signal.Signals(sent).name}")
    texts = [Path(name).read_text(errors="replace") if name == f"{which}.txt" else ""
             for which, name in (("out", around.streams.out), ("err", around.streams.err))]  # fmt: skip
    return sent, Answer(code, *texts)


def judge_all(answer: Answer, around: Surroundings) -> None:
    """Where error lines cannot be seen, the exit code alone: 120 is that of an interpreter that cannot write them."""
    if answer.code == BROKEN:
        raise Failure("traceback", f"exit {BROKEN}: {answer.err[-1500:]}")
    if around.streams.err.endswith(".txt"):
        judge(answer, is_ascii=around.streams.encoding == "ascii")
    elif answer.code not in (0, 1, 2, 120, 130, 143):
        raise Failure("traceback", f"exit {answer.code}")


def treasures() -> dict[str, str]:
    """What no command may change: the user's files, and records."""
    kept = [
        *Path().glob("mine/*"),
        *Path().glob("table.*"),
        *Path().glob("studied/*.csv"),
        *Path().glob("*.yaml"),
        *Path().glob("home-*/runs/*/record.json"),
    ]
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in kept if file.is_file()}
