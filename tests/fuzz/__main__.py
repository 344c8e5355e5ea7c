"""Runs the cases, each in a forked process with limits of time and memory, and counts what they found."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import torch

from tests.fuzz import commands, configs, files, kills
from tests.fuzz.cases import Failure, describe


class Attack(Protocol):
    COUNT: int  # cases
    AT_ONCE: int  # cases that share a process
    SECONDS: float  # after which a case is endless

    def prepare(self, store: Path) -> None: ...

    def attack(self, number: int, draw: random.Random, store: Path) -> str:
        """Raises Failure; returns what happened, to be counted."""


ATTACKS = {name: cast("Attack", module) for name, module in
           (("kill", kills), ("command", commands), ("file", files), ("config", configs))}  # fmt: skip
MEMORY = 6 * 2**30
SETUP_SECONDS = 300.0
PROCESSES = multiprocessing.get_context("fork")


class Found(NamedTuple):
    """What became of a case, on its way from its process; ``way`` is empty unless it failed."""

    number: int
    way: str
    what: str


class Batch:
    """A process that works through some cases of a kind."""

    def __init__(self, kind: str, numbers: Sequence[int], seed: int, store: Path) -> None:
        self.kind, self.numbers, self.began = kind, list(numbers), time.monotonic()
        self.is_over = False
        self.news, there = PROCESSES.Pipe(duplex=False)
        self.process = PROCESSES.Process(target=work, args=(kind, self.numbers, seed, store, there))
        self.process.start()
        there.close()

    def results(self) -> Iterator[Found]:
        """What is new; a process that died, or that was ended because its time is over, has failed in its case."""
        is_alive = self.process.is_alive()  # asked first: what a process said before its end is heard
        with suppress(EOFError):
            while self.news.poll():
                found = Found(*self.news.recv())
                self.numbers.remove(found.number)
                self.began = time.monotonic()
                yield found
        limit = SETUP_SECONDS if self.numbers[:1] == [SETUP] else ATTACKS[self.kind].SECONDS
        limit *= max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # a busy machine takes its time
        if is_alive and time.monotonic() - self.began > limit:
            yield Found(self.numbers.pop(0), "endless", f"not done after {limit:.0f} s")
            self.is_over = True
        elif not is_alive:
            if self.numbers:
                yield Found(self.numbers.pop(0), "traceback", f"the process ended with {self.process.exitcode}")
            self.is_over = True

    def end(self) -> None:
        """Also the processes that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid or 0, signal.SIGKILL)
        self.process.join()


SETUP = -1


def work(kind: str, numbers: Sequence[int], seed: int, store: Path, news: Connection) -> None:
    """In the process of a batch."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.environ.pop("ISTHMUS_DATA", None)
    attack = ATTACKS[kind]
    for number in list(numbers):
        folder = Path(tempfile.mkdtemp(dir=store.parent, prefix=f"{kind}-"))
        os.chdir(folder)
        os.environ |= {"ISTHMUS_HOME": str(folder / "home"), "HOME": str(folder), "COLUMNS": "200"}
        way, what = "", "prepared"
        log = os.open(folder / "log.txt", os.O_CREAT | os.O_WRONLY)
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        os.close(log)
        try:
            if number == SETUP:
                attack.prepare(store)
            else:
                what = attack.attack(number, random.Random(f"{seed}:{kind}:{number}"), store)
        except Failure as failure:
            way, what = failure.way, failure.what
        except MemoryError as error:
            way, what = "endless", describe(error)
        except BaseException as error:
            way, what = "traceback", describe(error)
        os.chdir(store.parent)
        shutil.rmtree(folder, ignore_errors=True)
        news.send((number, way, what))
    os._exit(0)  # what was warmed up for all need not be taken down by each


def chosen(only: Sequence[str], share: float) -> dict[str, list[int]]:
    """The numbers of the cases of each kind."""
    if not only:
        return {kind: list(range(max(1, round(attack.COUNT * share)))) for kind, attack in ATTACKS.items()}
    numbers: dict[str, list[int]] = {}
    for text in only:
        kind, _, number = text.partition(":")
        every = range(max(1, round(ATTACKS[kind].COUNT * share)))
        numbers.setdefault(kind, []).extend([int(number)] if number else every)
    return numbers


def carry_out(numbers: dict[str, list[int]], seed: int, workers: int, root: Path) -> Iterator[tuple[str, Found]]:
    """Every case, in as many processes as there are workers; the stores that are attacked come first."""
    stores = {kind: root / f"store-{kind}" for kind in numbers}
    for store in stores.values():
        store.mkdir()
    setups = [(kind, [SETUP]) for kind in numbers]
    cases = [(kind, some[i : i + ATTACKS[kind].AT_ONCE]) for kind, some in numbers.items()
             for i in range(0, len(some), ATTACKS[kind].AT_ONCE)]  # fmt: skip
    for is_setup in (True, False):
        waiting, running = setups if is_setup else cases, list[Batch]()
        while waiting or running:
            while waiting and len(running) < workers:
                kind, some = waiting.pop(0)
                running.append(Batch(kind, some, seed, stores[kind]))
            wait([*(batch.process.sentinel for batch in running), *(batch.news for batch in running)], timeout=0.5)
            for batch in list(running):
                for found in batch.results():
                    yield batch.kind, found
                    if found.number == SETUP and found.way:  # there is nothing to attack
                        cases = [(kind, some) for kind, some in cases if kind != batch.kind]
                if batch.is_over:
                    batch.end()
                    batch.news.close()
                    running.remove(batch)
                    if batch.numbers:
                        waiting.insert(0, (batch.kind, batch.numbers))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=sys.modules["tests.fuzz"].__doc__)
    parser.add_argument("--seed", type=int, default=15, help="of everything that is drawn (default: 15)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", nargs="*", default=[], metavar="KIND[:NUMBER]", help="such as config:1234, or kill")
    parser.add_argument("--share", type=float, default=1.0, help="a part of the cases, such as 0.1")
    given: Any = parser.parse_args()
    torch.set_num_threads(1)  # no threads of torch's own, which a fork would lose
    configs.warm_up()
    began, counts, ways = time.monotonic(), Counter[str](), Counter[str]()
    told = began
    with tempfile.TemporaryDirectory(prefix="isthmus-fuzz-") as folder:
        for kind, found in carry_out(chosen(given.only, given.share), given.seed, given.workers, Path(folder)):
            if found.number != SETUP:
                counts[kind] += kills.KILLS if kind == "kill" else 1
                counts.update([f"{kind} {found.what}"] * (not found.way))
            if found.way:
                ways[found.way] += 1
                again = f"python -m tests.fuzz --seed {given.seed} --only {kind}:{found.number}"
                print(f"{found.way}: {again}\n    {found.what}", flush=True)
            if time.monotonic() - told > 60:
                told = time.monotonic()
                print(
                    f"… {', '.join(f'{counts[kind]} {kind}s' for kind in ATTACKS)}, {ways.total()} failures", flush=True
                )
    for name, number in sorted(counts.items()):
        if " " in name:
            print(f"  {number:5d} × {name}")
    minutes = (time.monotonic() - began) / 60
    print(
        f"{counts['config']:,} configs, {counts['file']:,} damaged files, {counts['command']:,} command lines, "
        f"{counts['kill']:,} kills in {minutes:.0f} min with seed {given.seed}: {ways['wrong']} silent wrong results, "
        f"{ways['traceback']} tracebacks, {ways['endless']} without an end"
    )
    return 1 if ways else 0


if __name__ == "__main__":
    sys.exit(main())
