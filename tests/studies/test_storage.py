"""What several processes share of a study, on SQLite and on a real PostgreSQL server: trials, and who is at work."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import optuna
import pytest

from isthmus.core.config import study_config
from isthmus.core.errors import UserError
from isthmus.studies import leases as module
from isthmus.studies.executors import ThisProcess
from isthmus.studies.leases import LeaseLost
from isthmus.studies.plan import Plan
from isthmus.studies.sampling import parameters_of
from isthmus.studies.storage import Storage
from isthmus.training.prepare import Options
from tests.studies.conftest import Server
from tests.studies.drivers import SPACES, opened, result, settings


def claims(url: str) -> list[Storage]:
    return [Storage(url, "small", True), Storage(url, "small", True)]


def test_one_of_two_gets_a_claim(url: str) -> None:
    one, other = claims(url)
    assert one.claim("run")
    assert one.claim("run"), "it keeps it"
    assert not other.claim("run")
    assert other.claim("another run")
    other.release("run")
    assert not other.claim("run"), "nobody gives away what is another's"
    one.release("run")
    assert other.claim("run")
    assert Storage(url, "another-study", True).claim("run")


def test_of_many_who_claim_at_once_one_wins(url: str) -> None:
    rivals = [Storage(url, "small", True) for _ in range(6)]
    for round_ in range(4):
        won: list[int] = []
        ready = threading.Barrier(len(rivals))

        def claim(place: int, name: str = f"run {round_}", won: list[int] = won, ready: Any = ready) -> None:
            ready.wait()
            if rivals[place].claim(name):
                won.append(place)

        threads = [threading.Thread(target=claim, args=(place,)) for place in range(len(rivals))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1


def test_a_claim_that_is_not_renewed_is_anybodys(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEASE", 1.0)
    one, other = claims(url)
    with one.renew_leases():
        assert one.claim("run")
        time.sleep(1.5)
        assert not other.claim("run"), "it was renewed"
    assert other.claim("run"), "whoever leaves gives everything back"
    time.sleep(1.1)
    assert one.claim("run"), "it was not renewed"


@pytest.mark.parametrize("ahead", [300.0, -300.0])
def test_a_claim_rests_on_no_clock_of_a_process(ahead: float, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = claims(url)
    clock = time.time
    assert one.claim("first")
    monkeypatch.setattr(time, "time", lambda: clock() + ahead)
    assert not other.claim("first")
    assert other.claim("second")
    monkeypatch.setattr(time, "time", clock)
    assert not one.claim("second")


def test_a_claim_that_no_lease_can_explain_holds_nobody_up(tmp_path: Path) -> None:
    one, other = claims(str(tmp_path / "study.db"))
    assert one.claim("run")
    with sqlite3.connect(tmp_path / "study.db") as database:
        database.execute("UPDATE isthmus_leases SET owner = 'elsewhere 1 x', expires = 1e300")
    database.close()
    assert other.claim("run")


def test_whoever_was_overtaken_writes_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEASE", 0.2)
    plan = Plan.of(study_config(settings()), Options())
    one, other = claims(url)
    one.begin(plan.identity)
    with other.alone("ask"):
        other.add(plan.candidates[0], 0, {}, {"params": 1.0})
    for name in ("ask", "decide", "run"):
        assert one.claim(name)
    time.sleep(0.3)
    writes = {
        "ask": lambda: one.add(plan.candidates[1], 0, {}, {"params": 1.0}),
        "decide": lambda: one.note_rung(0, 1, 0.5),
        "run": lambda: one.note_failure(0, "run", "out of memory"),
    }
    for name, write in writes.items():
        assert other.claim(name)
        one._acting = name
        with pytest.raises(LeaseLost):
            write()
    one._acting = "decide"
    with pytest.raises(LeaseLost):
        one.end(0, "finished", (0.5, 1.0))
    (trial,) = other.trials()
    assert (trial.state, trial.rungs, trial.failures) == ("open", {}, {})
    one.release("run")
    other.note_failure(0, "run", "nobody gives away what is another's by now")


def test_no_candidate_is_added_twice(url: str) -> None:
    plan = Plan.of(study_config(settings()), Options())
    one, other = claims(url)
    one.begin(plan.identity)
    with one.alone("ask"):
        one.add(plan.candidates[0], 0, {}, {"params": 1.0})
    with other.alone("ask"), pytest.raises(LeaseLost):
        other.add(plan.candidates[0], 0, {}, {"params": 1.0})
    with other.alone("ask"):
        other.add(plan.candidates[1], 0, {}, {"params": 1.0})
    assert [trial.key for trial in one.trials()] == [proposal.key for proposal in plan.candidates[:2]]


def test_a_dead_process_of_this_machine_loses_its_claims_at_once(tmp_path: Path) -> None:
    url = str(tmp_path / "study.db")
    storage = "from isthmus.studies.storage import Storage"
    claim = f"import sys; {storage}; assert Storage(sys.argv[1], 'small', True).claim('run')"
    subprocess.run([sys.executable, "-c", claim, url], check=True, capture_output=True)
    assert Storage(url, "small", True).claim("run")


def test_what_happens_alone_happens_once_at_a_time(url: str) -> None:
    inside: list[int] = []
    most: list[int] = []

    def enter(storage: Storage) -> None:
        for _ in range(3):
            with storage.alone("ask"):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.01)
                inside.pop()

    threads = [threading.Thread(target=enter, args=(storage,)) for storage in claims(url)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 6


def test_many_who_begin_a_study_at_once_begin_one(url: str) -> None:
    plan = Plan.of(study_config(settings()), Options())
    found: list[Any] = []
    ready = threading.Barrier(5)

    def begin(place: int) -> None:
        ready.wait()
        try:
            found.append(Storage(url, "small", True).begin(plan.identity | {"place": place}))
        except Exception as error:
            found.append(error)

    threads = [threading.Thread(target=begin, args=(place,)) for place in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 5
    assert all(one == found[0] for one in found)


def test_optuna_s_own_tools_see_parameters_and_named_objectives(tmp_path: Path) -> None:
    """As `optuna-dashboard` reads them, of two spaces with other choices of the same fields, and a listed candidate."""
    listed = {"name": "hourglass_mlp", "d_z": 70, "d_h": 6, "depth": 2, "norm": "rms"}
    spaces = [SPACES[0] | {"vary": {"d_z": [65, 80], "d_h": {"low": 4, "high": 8}, "norm": ["layer", "none"]}}]
    given = settings(spaces=[*spaces, SPACES[1]], candidates=[listed], cost="macs")
    plan, url = Plan.of(study_config(given), Options()), f"sqlite:///{tmp_path / 'study.db'}"
    storage = Storage(url, "small", plan.maximise)
    for _ in range(2):  # begun, and resumed
        storage.begin(plan.identity, [plan.quality, plan.config.cost])
    with storage.alone("ask"):
        for proposal in plan.candidates:
            storage.add(proposal, 0, {}, proposal.cost, plan.parameters)
    for number, proposal in enumerate(plan.candidates):
        with storage.alone("decide"):
            storage.end(number, "finished", (20.0 + number, float(proposal.cost["macs"])))
    study = optuna.load_study(study_name="small", storage=url)
    assert study.metric_names == ["psnr", "macs"]
    frame = study.trials_dataframe()
    assert {"params_model", "params_d_z", "params_d_h", "params_norm", "values_psnr", "values_macs"} <= set(frame)
    assert study.trials[0].params == {"model": "hourglass_mlp", "d_z": 70, "d_h": 6, "depth": 2, "norm": "rms"}
    seen = [trial.params for trial in study.trials[1:]]
    assert seen == [{"model": proposal.model.name, "depth": 1, **proposal.varied} for proposal in plan.candidates[1:]]
    assert {trial.distributions["d_z"] for trial in study.trials} == {optuna.distributions.IntDistribution(8, 80)}
    assert storage.trials()[1].varied == plan.candidates[1].varied, "what we read is what it was"


def test_a_value_that_is_written_otherwise_costs_no_trial() -> None:
    spaces = [
        {"model": {"name": "hourglass_mlp", "depth": depth, "d_z": 70}, "vary": {"d_h": [4]}} for depth in ("1", 2)
    ]
    plan = Plan.of(study_config(settings(spaces=spaces)), Options())
    assert [parameters_of(each, plan.parameters) for each in plan.candidates] == [{"d_h": 4}, {"depth": 2, "d_h": 4}]


def test_a_trial_is_remembered_as_it_was_told(url: str) -> None:
    plan = Plan.of(study_config(settings()), Options())
    one, other = claims(url)
    one.begin(plan.identity)
    with one.alone("ask"):
        for proposal in plan.candidates[:2]:
            one.add(proposal, 3, {"sampler's own": [1, 2]}, {"params": 7.0})
    assert one.claim("run a")
    one.note_failure(0, "run a", "its process ended with SIGSEGV")
    assert other.claim("run b")
    other.note_failure(0, "run b", "out of memory")
    with one.alone("decide"):
        one.note_rung(0, 2, 0.1 + 0.2)
    with other.alone("decide"):
        other.end(0, "finished", (1 / 3, 7.0))
    with one.alone("decide"):
        one.end(0, "failed", reason="too late: the first one to say so is right")
        one.end(1, "pruned", reason="dominated at epoch 2")
    for storage in (one, other, Storage(url, "small", True)):
        first, second = storage.trials()
        assert (first.number, first.state, first.generation, first.space) == (0, "finished", 3, 0)
        assert first.settings == plan.candidates[0].model.model_dump(exclude_defaults=True) | {"name": "hourglass_mlp"}
        assert first.varied == {"d_z": 65, "d_h": 4}
        assert first.memory == {"sampler's own": [1, 2]}
        assert (first.rungs, first.quality) == ({2: 0.1 + 0.2}, 1 / 3)
        assert first.failures == {"run a": "its process ended with SIGSEGV", "run b": "out of memory"}
        assert (first.key, second.key) == tuple(proposal.key for proposal in plan.candidates[:2])
        assert (second.state, second.reason) == ("pruned", "dominated at epoch 2")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("mysqlx://me:secret@here/there", r"the database mysqlx://me:\*\*\*@here/there cannot be used: .*are accepted"),
        ("postgresql://me:secret@127.0.0.1:1/x", r"me:\*\*\*@127.0.0.1:1/x cannot be used: .*refused"),
        ("postgresql://me:secret@127.0.0.1:port/x", r"me:\*\*\*@127.0.0.1:port/x' cannot be used: .*are accepted"),
        ("postgresql+nothing://me:secret@127.0.0.1/x", r"me:\*\*\*@127.0.0.1/x cannot be used"),
        ("://", "cannot be used: .*are accepted"),
        ("/proc/nowhere/study.db", "cannot be used: unable to open database file"),
        ("/etc/hostname", "cannot be used: file is not a database"),
    ],
)
def test_a_database_that_cannot_be_used_is_one_line(given: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as found:
        Storage(given, "small", True)
    assert "\n" not in str(found.value)
    assert "secret" not in str(found.value)


def test_a_path_is_a_sqlite_file(tmp_path: Path) -> None:
    Storage(str(tmp_path / "study.db"), "small", True).claim("run")
    assert (tmp_path / "study.db").read_bytes().startswith(b"SQLite format 3")


@pytest.mark.slow
def test_a_server_that_goes_down_costs_nothing(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, and after its return the study goes on where it was."""
    given = settings(spaces=SPACES[:1])
    url = server.database()
    study, ended = opened(given, url), []

    def tell(trial: Any, run: Any, event: Any) -> None:
        ended.append(event.id)
        if len(ended) == 2:
            server.stop()

    try:
        with pytest.raises(UserError, match=r"was lost: .*repeat the command") as found:
            study.carry_out(ThisProcess(), tell)
    finally:
        server.start()
    assert "\n" not in str(found.value)
    assert len(ended) == 2
    again = opened(given, url)
    again.carry_out(ThisProcess(), lambda trial, run, event: ended.append(event.id))
    assert len(ended) == len(set(ended)) == 4
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "undisturbed"))
    undisturbed = opened(given)
    undisturbed.carry_out(ThisProcess(), lambda trial, run, event: None)
    expected = result(undisturbed)
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "isthmus-home"))
    assert result(again) == expected
