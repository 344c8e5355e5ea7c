"""Records are the truth: whatever happens to a study's database, logs and records, the result is the same or a line."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isthmus.cli.complete import complete_study
from isthmus.core.config import study_config
from isthmus.core.errors import UserError
from isthmus.core.files import digest, home, write_json
from isthmus.core.record import METRICS, RECORD
from isthmus.costs.latency import LATENCY
from isthmus.studies.database import Damaged
from isthmus.studies.executors import Ended, ThisProcess
from isthmus.studies.plan import Plan
from isthmus.studies.storage import Storage
from isthmus.studies.study import Study
from isthmus.training.prepare import Options
from isthmus.training.run import run as execute
from tests.command_line import call
from tests.studies.drivers import BASE, SAMPLED, SPACES, opened, result, settings

ATTACKS = 40
GIVEN = settings(**SAMPLED["tpe"] | {"sampling": {"name": "nsga2", "candidates": 8, "generation": 2}})


class Carried:
    """A study in a home of its own, its database when it ended, and one of a moment when it was open."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.plan = folder, Plan.of(study_config(GIVEN), Options())
        self.snapshots = {"finished": folder / "finished.db", "open": folder / "open.db"}
        study, path = self.study(folder / "study.db"), folder / "study.db"

        def tell(trial: Any, run: Any, event: Any) -> None:
            if trial.generation == 1 and trial.rungs and not self.snapshots["open"].exists():
                shutil.copy(path, self.snapshots["open"])

        study.carry_out(ThisProcess(), tell)
        shutil.copy(path, self.snapshots["finished"])
        self.expected = result(study)
        assert {trial["state"] for trial in self.expected["trials"]} == {"finished", "pruned"}

    def study(self, path: Path) -> Study:
        return Study(self.plan, Storage(str(path), "small", self.plan.maximise))

    def outcome(self, path: Path) -> Any:
        """What a study finds with this database: its result, or the line that it ends with."""
        try:
            study = self.study(path)
            if not study.is_complete:
                study.carry_out(ThisProcess(), lambda trial, run, event: None)
            return result(study)
        except UserError as error:
            return str(error)


@pytest.fixture(scope="module")
def carried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Carried]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("damaged")
        patch.setenv("ISTHMUS_HOME", str(folder / "home"))
        yield Carried(folder)


def changes(value: Any, draw: random.Random) -> list[Any]:
    """What may become of a cell."""
    found: list[Any] = [None, "", "x", -1, 2**40]
    if isinstance(value, int | float):
        found += [value + 1, value / 10, 0]
    if isinstance(value, str) and value:
        digits = [place for place, letter in enumerate(value) if letter.isdigit()]
        for place in [draw.randrange(len(value)), *(draw.sample(digits, min(3, len(digits))))]:
            letter = str((int(value[place]) + 1) % 10) if value[place].isdigit() else "y"
            found.append(value[:place] + letter + value[place + 1 :])
        found += [value[:-1], {"COMPLETE": "PRUNED", "PRUNED": "FAIL", "RUNNING": "COMPLETE"}.get(value, "COMPLETE")]
    return found


def attacks(path: Path, draw: random.Random) -> list[tuple[str, tuple[Any, ...]]]:
    """Statements that change a cell or delete a row, of every table and column, and of every kind of attribute."""
    found: list[tuple[str, tuple[Any, ...]]] = []
    with sqlite3.connect(path) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            rows = database.execute(f"SELECT rowid, * FROM {table}").fetchall()
            for row in draw.sample(rows, min(3, len(rows))):
                found.append((f"DELETE FROM {table} WHERE rowid = ?", (row[0],)))
            kinds = {
                next((part for part in row if isinstance(part, str)), ""): row for row in draw.sample(rows, len(rows))
            }
            for row in kinds.values():
                for column, value in zip(columns, row[1:], strict=True):
                    found += [
                        (f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (new, row[0]))
                        for new in changes(value, draw)
                        if new != value
                    ]
    return found


@pytest.mark.parametrize("state", ["finished", pytest.param("open", marks=pytest.mark.slow)])
def test_damage_to_the_database_is_a_line_or_nothing(
    state: str, carried: Carried, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ISTHMUS_HOME", str(carried.folder / "home"))
    draw, lines = random.Random(state), 0
    for attack in draw.sample(attacks(carried.snapshots[state], draw), ATTACKS):
        path = tmp_path / "study.db"
        shutil.copy(carried.snapshots[state], path)
        try:
            with sqlite3.connect(path) as database:
                database.execute(*attack)
        except sqlite3.IntegrityError:  # the schema forbids it
            continue
        finally:
            database.close()
        outcome = carried.outcome(path)
        if isinstance(outcome, str):
            lines += 1
            assert "\n" not in outcome
        else:
            assert outcome == carried.expected, attack
    assert lines > ATTACKS / 10


RATES = settings(
    spaces=[SPACES[0] | {"vary": {"d_z": [65], "d_h": [4, 8]}}],
    learning_rates=[1e-3, 1e-2],
    rates_on="first_seed",
    seeds=[0, 1],
)


def carry_out(study: Study) -> list[str]:
    ended: list[str] = []
    study.carry_out(ThisProcess(), lambda trial, run, event: ended.extend([event.id] * isinstance(event, Ended)))
    return ended


def test_a_finished_study_trains_again_what_its_records_lost() -> None:
    first = opened(RATES)
    carry_out(first)
    expected = result(first)
    trial = first.trials[0]
    assert trial.rate is not None
    other = next(rate for rate in first.config.rates if rate != trial.rate)
    for run in [(trial.rate, 0), (other, 0), (trial.rate, 1)]:
        shutil.rmtree(trial.runs[run].folder)
        again = opened(RATES)
        assert not again.is_complete
        assert [item.key for item in again.remaining_candidates()] == [trial.key]
        assert carry_out(again) == [trial.runs[run].id]
        assert opened(RATES).is_complete
        assert result(again) == expected


def test_clean_names_the_studies_that_need_a_run(tmp_path: Path) -> None:
    study = opened(RATES)
    carry_out(study)
    run = study.trials[0].runs[study.trials[0].rate or 0.0, 0]
    unneeded = study.plan.run(study.trials[0].model, 1e-3, 7)
    execute(unneeded)
    assert "small" not in call("runs", "clean", unneeded.id, "--yes").out
    (home() / "studies" / "broken").mkdir()
    (home() / "studies" / "broken" / "study.json").write_text("{")
    said = call("runs", "clean", run.id, "--yes").out
    assert "study small uses 1 of" in said
    assert "broken" in said
    assert not run.folder.exists()
    write_json(tmp_path / "small.json", RATES)
    assert call("study", tmp_path / "small.json", "--workers", 1, "--json", "--out", tmp_path / "page").code == 0
    assert run.folder.exists()


def test_the_record_of_another_run_is_not_taken_for_this_one() -> None:
    study = opened(RATES)
    carry_out(study)
    one, other = (trial.runs[1e-3, 0].folder for trial in study.trials)
    shutil.copy(other / RECORD, one / RECORD)
    with pytest.raises(UserError, match="another run"):
        assert opened(RATES).is_complete


def altered(line: str) -> str:
    """The validation loss and quality a tenth of what they were, as after one lost digit."""
    content = json.loads(line)
    changed = {name: value / 10 for name, value in content.items() if isinstance(value, float) and name != "epoch"}
    return json.dumps(content | changed)


@pytest.mark.parametrize("state", ["finished", "pruned"])
def test_a_damaged_log_decides_nothing(state: str, carried: Carried, tmp_path: Path) -> None:
    """After the loss of the database, which knew what was decided."""
    shutil.copytree(carried.folder / "home", home())
    study = carried.study(tmp_path / "first.db")
    carry_out(study)
    trial = next(trial for trial in study.trials if trial.state == state)
    (run,) = trial.runs.values()
    log = run.folder / METRICS
    log.write_text("".join(f"{altered(line)}\n" for line in log.read_text().splitlines()))
    again = carried.study(tmp_path / "second.db")
    if state == "finished":
        with pytest.raises(UserError, match=METRICS):
            carry_out(again)
    else:
        assert carry_out(again) == [run.id]
        assert result(again) == carried.expected


def test_a_candidate_that_the_config_does_not_have_is_not_trained(carried: Carried, tmp_path: Path) -> None:
    """Also where the checksums say that it is as it was written."""
    shutil.copytree(carried.folder / "home", home())
    path = tmp_path / "study.db"
    shutil.copy(carried.snapshots["open"], path)
    storage = Storage(str(path), "small", True)
    trial = storage.trials()[-1]
    name, value = next(iter(trial.varied.items()))
    changed = {"varied": {**trial.varied, name: value + 1}, "model": {**trial.settings, name: value + 1}}
    same = {"key": trial.key, "space": trial.space, "generation": trial.generation, "costs": trial.costs}
    with sqlite3.connect(path) as database:
        for attribute, content in changed.items():
            database.execute(
                "UPDATE trial_user_attributes SET value_json = ? WHERE key = ? AND trial_id = "
                "(SELECT trial_id FROM trials WHERE number = ?)",
                (json.dumps(content), attribute, trial.number),
            )
        seal = digest(changed | same | {"memory": trial.memory})
        database.execute("UPDATE isthmus_trials SET seal = ? WHERE number = ?", (seal, trial.number))
    database.close()
    assert Storage(str(path), "small", True).trials()[-1].varied[name] == value + 1
    with pytest.raises(Damaged, match="--rebuild"):
        carried.study(path)


def test_a_database_is_built_again_from_the_records(carried: Carried, tmp_path: Path) -> None:
    """One that cannot be opened, and one that holds another study too."""
    config = carried.plan.config
    shutil.copytree(carried.folder / "home", home())
    path = home() / "studies" / "small" / "study.db"
    for cannot_be_opened in (True, False):
        shutil.copy(carried.snapshots["finished"], path)
        if cannot_be_opened:
            path.write_bytes(b"no database")
        else:
            with sqlite3.connect(path) as database:
                database.execute("DELETE FROM trials WHERE number = 2")
            database.close()
        with pytest.raises(UserError, match="--rebuild"):
            complete_study(config, Options())
        assert result(complete_study(config, Options(), rebuild=True)) == carried.expected
        assert result(complete_study(config, Options())) == carried.expected
    shared = tmp_path / "shared.db"
    shutil.copy(carried.snapshots["finished"], shared)
    other = Storage(str(shared), "other", True)
    other.begin({"seeds": [3]})
    proposal = carried.plan.judge.judge({"name": "hourglass_mlp", "depth": 1, "d_z": 65, "d_h": 4}, 0)
    assert proposal is not None
    with other.alone("ask"):
        other.add(proposal, 0, {}, {"params": 1.0})
    before = other.trials()
    assert result(complete_study(config, Options(), url=str(shared), rebuild=True)) == carried.expected
    other = Storage(str(shared), "other", True)
    assert other.trials() == before
    assert other.stored_config() == {"seeds": [3]}
    busy = Storage(str(shared), "small", True)
    assert busy.claim("run")
    with pytest.raises(UserError, match="at work"):
        complete_study(config, Options(), url=str(shared), rebuild=True)


def test_a_rejected_study_does_not_take_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> None:
        raise UserError("no room")

    with monkeypatch.context() as patch:
        patch.setattr("isthmus.studies.complete.check_room", refuse)
        with pytest.raises(UserError, match="no room"):
            complete_study(study_config(RATES), Options())
    with pytest.raises(UserError, match="may be trained"):
        complete_study(study_config(RATES | {"budget": {"params": 1}}), Options())
    assert complete_study(study_config(RATES | {"seeds": [0], "learning_rates": []}), Options()).is_complete


def test_a_measured_latency_outlives_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rungs of which the later one is the smaller string."""
    base = BASE | {"train": {"epochs": 11}}
    pruning = {"rungs": [2, 10], "margin": 100.0}
    given = RATES | {"base": base, "cost": "latency", "learning_rates": [], "seeds": [0], "pruning": pruning}
    first = opened(given, str(tmp_path / "first.db"))
    carry_out(first)
    untouched = replace(LATENCY, compute=lambda *given: pytest.fail("measured again"))
    monkeypatch.setattr("isthmus.costs.latency.LATENCY", untouched)
    again = opened(given, str(tmp_path / "second.db"))
    carry_out(again)
    assert result(again) == result(first)
