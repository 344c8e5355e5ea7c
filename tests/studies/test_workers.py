"""Who carries a study out, and how often they are killed, changes when it is done, never what it finds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import sqlalchemy as sql

from isthmus.core.files import home, write_json
from isthmus.core.record import run_folders
from isthmus.studies.database import default_url
from isthmus.studies.executors import Ended, LocalWorkers, ThisProcess
from isthmus.studies.storage import Storage
from tests.studies.drivers import (
    BASE,
    SAMPLED,
    SPACES,
    Driver,
    eventually,
    is_running,
    is_stopped,
    opened,
    result,
    settings,
    undisturbed,
    workers_of,
)

ENDLESS = settings(base=BASE | {"train": {"epochs": 2000}})


def test_troubled_runs_fail_with_their_reason_and_the_others_finish(troubled: None) -> None:
    """Without a process to lose, here; a crash is in the next test."""
    models = [{"name": "troubled", "trouble": trouble} for trouble in ("memory", "none", "error")]
    study = opened(settings(spaces=SPACES[:1], candidates=models))
    study.carry_out(ThisProcess(), lambda trial, run, event: None)
    outcomes = result(opened(settings(spaces=SPACES[:1], candidates=models)))["trials"]
    assert [trial["state"] for trial in outcomes] == ["failed", "finished", "failed"] + ["finished"] * 4
    assert outcomes[0]["reason"].startswith("out of memory: ")
    assert "1125899906842624" in outcomes[0]["reason"] or "4503599627370496" in outcomes[0]["reason"]
    assert outcomes[2]["reason"] == "ZeroDivisionError: in the fifth step"
    assert list(outcomes[2]["failures"].values()) == [outcomes[2]["reason"]]


def test_a_signal_to_a_worker_that_starts_is_ignored(capfd: pytest.CaptureFixture[str]) -> None:
    """A terminal sends Ctrl-C to all processes, also to one that is still importing."""
    with LocalWorkers(1, early=True) as workers:
        (worker,) = workers.workers
        os.kill(worker.process.pid, signal.SIGINT)
        os.kill(worker.process.pid, signal.SIGTERM)
        workers.stop()
        worker.process.join(120)
        assert worker.process.exitcode == 0
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_a_run_whose_process_dies_each_time_fails_alone(troubled: None) -> None:
    models = [{"name": "troubled", "trouble": trouble} for trouble in ("crash", "none")]
    given = settings(spaces=SPACES[:1], candidates=models)
    told: Counter[str] = Counter()
    study = opened(given)
    study.carry_out(
        LocalWorkers(2), lambda trial, run, event: told.update([event.how] if isinstance(event, Ended) else [])
    )
    assert told == {"done": 5, "crashed": 1}
    outcomes = result(opened(given))["trials"]
    assert [trial["state"] for trial in outcomes] == ["failed", "finished"] + ["finished"] * 4
    assert outcomes[0]["reason"] == "its process ended with SIGSEGV"
    again = opened(given)
    again.carry_out(ThisProcess(), lambda trial, run, event: pytest.fail("a failed trial was taken up again"))


@pytest.mark.slow
def test_a_worker_may_have_processes_of_its_own() -> None:
    """As a run on several devices needs them."""
    pytest.importorskip("lightning_fabric")
    space = SPACES[0] | {"vary": {"d_z": [65], "d_h": [4]}}
    study = opened(settings(base=BASE | {"train": {"epochs": 1, "devices": 2}}, spaces=[space]))
    study.carry_out(LocalWorkers(1), lambda trial, run, event: None)
    assert [trial["state"] for trial in study.outcomes()] == ["finished"]


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["grid", "random", "tpe", "model"])
def test_any_number_of_workers_finds_the_same(sampler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = settings(**SAMPLED[sampler])
    expected = undisturbed(given, tmp_path / "undisturbed", monkeypatch)
    study = opened(given)
    study.carry_out(LocalWorkers(4), lambda trial, run, event: None)
    assert result(study) == expected


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["grid", "tpe", "model"])
def test_two_drivers_at_once_train_no_run_twice(
    sampler: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = settings(base=BASE | {"train": {"epochs": 8}}, **SAMPLED[sampler])
    expected = undisturbed(given, tmp_path / "undisturbed", monkeypatch)
    with Driver(given, url, name="first", waits=True) as first, Driver(given, url, name="second", waits=True) as second:
        drivers = (first, second)
        for driver in drivers:
            driver.line()
        for driver in drivers:
            driver.go()
        ended = [driver.line() for driver in drivers]  # each trains a run before either may train a second one
        for driver in drivers:
            driver.go()
        ended += [line for driver in drivers for line in driver.lines()]
    trained = Counter(identity for identity, _, _ in ended)
    assert all(how == "done" for _, how, _ in ended)
    stages = 1 if sampler == "grid" else 2  # until the rung, and after it
    assert set(trained) == {folder.name for folder in run_folders()}
    assert max(trained.values()) == stages
    study = opened(given, url)
    assert study.is_complete
    assert result(study) == expected


@pytest.mark.slow
def test_a_driver_that_was_held_up_beyond_its_lease_adds_nothing(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped while it asks for candidates, another one carries the study out, and then it goes on."""
    given = settings(
        base=BASE | {"train": {"epochs": 1}}, sampling={"name": "random", "candidates": 8, "generation": 2}
    )
    expected = undisturbed(given, tmp_path / "undisturbed", monkeypatch)
    with Driver(given, url, name="first", lease=1.0, stops_at=6) as first:
        eventually(lambda: is_stopped(first.process.pid) or first.process.poll() is not None)
        with Driver(given, url, name="second", lease=1.0) as second:
            assert second.lines()
        assert is_stopped(first.process.pid)
        first.process.send_signal(signal.SIGCONT)
        first.lines()
    engine = sql.create_engine(Storage(url, "small", True).url, poolclass=sql.NullPool)
    with engine.connect() as connection:
        keys = connection.scalars(sql.text("SELECT value_json FROM trial_user_attributes WHERE key = 'key'")).all()
    assert len(keys) == len(set(keys)) == 8
    assert result(opened(given, url)) == expected


@pytest.mark.slow
def test_a_killed_driver_leaves_no_worker_behind(tmp_path: Path) -> None:
    """Neither a busy one nor one that is about to start."""
    url = f"sqlite:///{tmp_path / 'study.db'}"
    with Driver(ENDLESS, url, workers=2) as driver:
        workers = eventually(lambda: len(found := workers_of(driver.process.pid)) == 2 and found)
        eventually(lambda: list((home() / "runs").glob("*/metrics.jsonl")))
        driver.kill()
    eventually(lambda: not any(map(is_running, workers)))
    with Driver(ENDLESS, url, workers=2) as driver:
        workers = eventually(lambda: workers_of(driver.process.pid))
        driver.kill()
    eventually(lambda: not any(map(is_running, workers)))


@pytest.mark.slow
def test_ctrl_c_saves_every_run_and_the_same_command_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = settings(base=BASE | {"train": {"epochs": 60}}, spaces=SPACES[:1])
    expected = undisturbed(given, tmp_path / "undisturbed", monkeypatch)
    write_json(tmp_path / "small.json", given)
    command = [sys.executable, "-m", "isthmus", "study", str(tmp_path / "small.json"), "--workers", "2"]
    process = subprocess.Popen(command, env=os.environ.copy(), stderr=subprocess.PIPE, text=True)
    eventually(lambda: len(list((home() / "runs").glob("*/metrics.jsonl"))) == 2 or process.poll())
    workers = workers_of(process.pid)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=240)
    assert process.returncode == 130
    assert said.splitlines()[-1].startswith("isthmus: stopped")
    assert not any(map(is_running, workers))
    begun = [folder for folder in run_folders() if not (folder / "record.json").exists()]
    assert len(begun) == 2
    assert all((folder / "state.json").exists() for folder in begun)
    done = subprocess.run([*command, "--json"], env=os.environ.copy(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    study = opened(given, default_url(home() / "studies" / "small"))
    assert study.is_complete
    assert result(study) == expected
