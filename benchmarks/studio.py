"""The studio with many runs: how soon its first page and an event are there, and what an open page costs a study."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

from benchmarks.processes import empty_home
from isthmus.core.config import StudyConfig, run_config, study_config
from isthmus.core.files import write_json
from isthmus.core.record import CONFIG, METRICS, RECORD, read_record, write_record
from isthmus.studies.database import default_url
from isthmus.studies.executors import LocalWorkers
from isthmus.studies.plan import Plan
from isthmus.studies.storage import Storage
from isthmus.studies.study import Study
from isthmus.studio.index import Index
from isthmus.training.prepare import Options
from isthmus.training.run import run

_EVENTS = 15
_LINES, _LINES_PER_END, _PAUSE = 100, 10, 0.4
"""Lines that a log gets while a page is open, so many per run that ends, and the seconds between two."""
_ALONE = "none"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage",
    "--no-first-run", "--remote-debugging-port=0",
)  # fmt: skip


def measure_pages(runs: int, starts: int) -> dict[str, list[dict[str, Any]]]:
    """Seconds of pages in a home of so many runs, and from a new line of a log to its event; the load of a page.

    Without starts, the load alone, for which a machine need not be quiet.
    """
    with empty_home() as home:
        _make_runs(home, runs)
        following, key = _open_run(home), next(iter(Index(home).runs.values())).problem
        seconds: dict[str, list[float]] = {}
        for _ in range(starts):
            with _serving() as (port, _):
                for name, path in (
                    ("first page after the start", "/"), ("the same again", "/"), ("last page of runs", "/?page=9999"),
                    ("runs found by words", "/?words=seed+denoise"), ("a run", f"/runs/{following.name}"),
                    (f"front of all {runs:,} runs", f"/problems/{key}"),
                ):  # fmt: skip
                    seconds.setdefault(name, []).append(_get(port, path))
                seconds.setdefault("event of a log", []).extend(_time_events(port, following))
        load = [_measure_load(home, following, name, path) | {"runs": runs} for name, path in (
            ("none", ""), ("front of all runs", f"/problems/{key}"), ("first page", "/"),
        )]  # fmt: skip
    rows = [
        {"measured": f"{name}, {runs:,} runs", "median s": round(statistics.median(each), 3),
         "worst s": round(max(each), 3), "times": len(each)}
        for name, each in seconds.items()
    ]  # fmt: skip
    return {"load": load} | ({"pages": rows} if rows else {})


def _measure_load(home: Path, folder: Path, page: str, path: str) -> dict[str, Any]:
    """The server's processor time with a page open, while a log grows and a run ends every few seconds."""
    others = [each for each in sorted((home / "runs").iterdir()) if (each / RECORD).is_file()]
    waiting = {each: (each / RECORD).read_bytes() for each in others[: _LINES // _LINES_PER_END]}
    for each in waiting:
        (each / RECORD).unlink()
    with _serving() as (port, server), _reading(port, path) if path else nullcontext():
        _get(port, "/")  # it has started
        time.sleep(5)
        began, before = time.perf_counter(), _processor_seconds([server])
        for number in range(_LINES):
            _write_line(folder, number)
            if waiting and number % _LINES_PER_END == 0:
                each, record = waiting.popitem()
                (each / RECORD).write_bytes(record)
            time.sleep(_PAUSE)
        seconds, processor = time.perf_counter() - began, _processor_seconds([server]) - before
    return {"page": page, "seconds": round(seconds, 1), "processor seconds": round(processor, 2),
            "of one core": f"{processor / seconds:.2%}"}  # fmt: skip


def _write_line(folder: Path, number: int) -> None:
    line = {"step": number, "epoch": number, "split": "validation", "psnr": 19.0 + number, "loss": 0.1}
    with (folder / METRICS).open("a") as file:
        file.write(json.dumps(line) + "\n")


def _make_runs(home: Path, number: int) -> None:
    """One trained run, and copies of it that differ by seed and width."""
    config = {
        "source": {"name": "digits"}, "task": {"name": "denoise"}, "train": {"epochs": 2}, "threads": 1,
        "model": {"name": "hourglass_mlp", "d_z": 16, "d_h": 4, "depth": 1},
    }  # fmt: skip
    source = home / "runs" / run(run_config(config)).id
    record, log = read_record(source), (source / METRICS).read_text()
    for place in range(number - 1):
        config = record.config | {"seed": place + 1, "model": record.config["model"] | {"d_z": 16 + place % 50}}
        folder = home / "runs" / f"{place:016x}"
        folder.mkdir()
        write_json(folder / CONFIG, config)
        (folder / METRICS).write_text(log)
        cost = record.cost | {"params": record.cost["params"] + 128 * (place % 50)}
        write_record(folder, replace(record, id=folder.name, config=config, seed=place + 1, cost=cost))


def _open_run(home: Path) -> Path:
    """A run that has not ended."""
    folder = home / "runs" / f"{0:016x}"
    (folder / RECORD).unlink()
    return folder


@contextmanager
def _serving() -> Iterator[tuple[int, int]]:
    """A studio in a process of its own; yields its port and its process."""
    command = [sys.executable, "-m", "isthmus", "studio", "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout
            yield int(server.stdout.readline().strip().rstrip("/").rpartition(":")[2]), server.pid
        finally:
            server.terminate()


def _get(port: int, path: str) -> float:
    began = time.perf_counter()
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, (path, answer.status)
    return time.perf_counter() - began


@contextmanager
def _following(port: int, path: str) -> Iterator[http.client.HTTPResponse]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", f"/events{path}")
        yield connection.getresponse()


def _read_event(answer: http.client.HTTPResponse) -> str:
    while not (line := answer.readline()).startswith(b"data: "):
        assert line
    return line.decode()


def _time_events(port: int, folder: Path) -> list[float]:
    seconds = []
    with _following(port, f"/runs/{folder.name}") as answer:
        _read_event(answer)
        for number in range(_EVENTS):
            time.sleep(0.1 + 0.037 * number)  # at any moment between two looks of the server
            began = time.perf_counter()
            _write_line(folder, number)
            _read_event(answer)
            seconds.append(time.perf_counter() - began)
    return seconds


def measure_slowdown(rounds: int, epochs: int, first: int = 0) -> list[dict[str, Any]]:
    """The same study with no page open, followed by a reader of its page's events, and by a browser.

    One worker trains on a core of its own; the server, the reader and the browser have the others.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    ways: dict[str, Callable[[int, str], Any]] = {_ALONE: lambda port, path: nullcontext(0), "events read": _reading}
    if browser is not None:
        ways["in a browser"] = lambda port, path: _browsing(browser, f"http://127.0.0.1:{port}{path}")
    ours, *others = sorted(os.sched_getaffinity(0))
    rows = []
    with empty_home() as home, _on_cores(others or [ours]), _serving() as (port, server):
        _study(home, "warm-up", 0, 1, ours)
        path = f"/problems/{next(iter(Index(home).runs.values())).problem}"
        for number in range(first, first + rounds):
            order = [*ways][number % len(ways) :] + [*ways][: number % len(ways)]
            for place, name in enumerate(order):
                with ways[name](port, path) as follower:
                    time.sleep(3 if follower else 0)  # the browser has started
                    watched = [server, *([follower] if follower else [])]
                    before = _processor_seconds(watched)
                    seed = 1 + number * len(ways) + place
                    seconds, processor = _study(home, f"{number}-{place}", seed, epochs, ours)
                    beside = _processor_seconds(watched) - before
                rows.append(
                    {"round": number, "page": name, "epochs": epochs, "seconds": round(seconds, 3),
                     "processor seconds": round(processor, 3), "processor seconds beside": round(beside, 3)}
                )  # fmt: skip
    return rows


def compare_slowdown(rows: Sequence[Mapping[str, Any]], cores: int) -> list[dict[str, Any]]:
    """Each way against no page, paired by round.

    The training has a core of its own, so that its time and its processor time show how the page disturbs it, and not
    what the page takes from a study on all cores. For that, every core does its part of the work beside the training:
    the page slows such a study as (training + beside / cores) grows. The ratio of two rounds has the scatter of two
    trainings; what is taken, beside / cores / training of the same round, has not. On a busy machine both are rather
    too large, because the page is followed for longer.
    """
    found = []

    def on_all_cores(row: Mapping[str, Any]) -> float:
        return float(row["processor seconds"] + row["processor seconds beside"] / cores)

    for name in dict.fromkeys(row["page"] for row in rows):
        ours = {row["round"]: row for row in rows if row["page"] == name}
        alone = {row["round"]: row for row in rows if row["page"] == _ALONE}
        taken = statistics.median(
            row["processor seconds beside"] / cores / row["processor seconds"] for row in ours.values()
        )
        line = {"page": name, "median s": round(statistics.median(row["seconds"] for row in ours.values()), 2)}
        for title, key in (("time", "seconds"), ("processor time", "processor seconds")):
            ratios = [ours[number][key] / alone[number][key] for number in ours]
            line |= {f"{title}, ratio": round(statistics.fmean(ratios), 4), f"{title}, 95 %": _interval(ratios)}
        ratios = [on_all_cores(ours[number]) / on_all_cores(alone[number]) for number in ours]
        line |= {"study on all cores, ratio": round(statistics.fmean(ratios), 4)}
        line |= {"study on all cores, 95 %": _interval(ratios)}
        found.append(line | {"rounds": len(ours), "taken from a study on all cores": f"{taken:.2%}"})
    return found


def _interval(ratios: Sequence[float]) -> str:
    """Student's interval of a mean."""
    if len(ratios) < 2:
        return "–"
    from scipy.special import stdtrit

    margin = float(stdtrit(len(ratios) - 1, 0.975)) * statistics.stdev(ratios) / len(ratios) ** 0.5
    return f"{statistics.fmean(ratios) - margin:.4f} to {statistics.fmean(ratios) + margin:.4f}"


@contextmanager
def _on_cores(cores: Collection[int]) -> Iterator[None]:
    """This thread, and the threads and processes that it starts, use these cores only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _study(home: Path, name: str, seed: int, epochs: int, core: int) -> tuple[float, float]:
    """Eight trainings by one worker: the sum of their seconds, and the worker's processor seconds with its start."""
    plan = Plan.of(_config(name, seed, epochs), Options())
    study = Study(plan, Storage(default_url(home / "studies" / name), name, plan.maximise))
    before, ended = {path.name for path in (home / "runs").glob("*")}, getrusage(RUSAGE_CHILDREN)
    with _on_cores([core]):
        study.carry_out(LocalWorkers(1), lambda trial, run, event: None)
    now = getrusage(RUSAGE_CHILDREN)
    folders = [path for path in (home / "runs").iterdir() if path.name not in before]
    processor = now.ru_utime + now.ru_stime - ended.ru_utime - ended.ru_stime
    return sum(read_record(path).wall_seconds for path in folders), processor


def _config(name: str, seed: int, epochs: int) -> StudyConfig:
    return study_config(
        {
            "name": name,
            "base": {
                "source": {"name": "digits"}, "task": {"name": "denoise"}, "threads": 1,
                "train": {"epochs": epochs, "batch_size": 128},
            },
            "spaces": [{"model": {"name": "hourglass_mlp", "d_z": 256, "depth": 4}, "vary": {"d_h": [16, 24, 32, 48]}}],
            "seeds": [2 * seed, 2 * seed + 1],
        }
    )  # fmt: skip


@contextmanager
def _reading(port: int, path: str) -> Iterator[int]:
    """A reader of a page's events in a thread of this process."""
    with _following(port, path) as answer:
        thread = threading.Thread(target=_read_on, args=(answer,), daemon=True)
        thread.start()
        yield 0


def _read_on(answer: http.client.HTTPResponse) -> None:
    try:
        while answer.readline():
            pass
    except (OSError, ValueError, AttributeError):  # it was closed
        return


@contextmanager
def _browsing(browser: str, address: str) -> Iterator[int]:
    """A browser without a screen, in a session of its own, on one page; yields its process."""
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, *_FLAGS, f"--user-data-dir={profile}", address]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True) as opened:
            try:
                yield opened.pid
            finally:
                opened.terminate()
                opened.wait(20)


def _processor_seconds(processes: Sequence[int]) -> float:
    """Of processes and all their children."""
    ticks, parents = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(path.parent.name)
        ticks[pid], parents[pid] = int(words[11]) + int(words[12]), int(words[1])

    def is_ours(pid: int) -> bool:
        while pid in parents and pid not in processes:
            pid = parents[pid]
        return pid in processes

    return sum(each for pid, each in ticks.items() if is_ours(pid)) / os.sysconf("SC_CLK_TCK")
