"""A study is its runs: however often it is interrupted or begun again, what is on record is not trained again."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import shutil
import signal
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.cli.complete import complete_study, print_answer
from isthmus.core.config import study_config
from isthmus.core.errors import UserError
from isthmus.core.files import write_json
from isthmus.core.record import read_record
from isthmus.costs.latency import LATENCY
from isthmus.studies import study as studies
from isthmus.studies.executors import Event, ThisProcess
from isthmus.studies.study import Study
from isthmus.training.prepare import Options
from tests.command_line import call
from tests.studies.drivers import BASE, SAMPLED, SPACES, carry_out, forbid_training, models, opened, result, settings

TWO = [SPACES[0] | {"vary": {"d_z": [65], "d_h": [4, 8]}}]
"""Two candidates."""


def test_what_is_on_record_is_not_trained_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = opened(settings(spaces=TWO))
    assert len(carry_out(first)) == 2
    assert first.is_complete
    assert {trial["state"] for trial in first.outcomes()} == {"finished"}
    wider = opened(settings(name="wider", spaces=TWO, seeds=[0, 1]))
    assert wider.recorded_runs() == 2
    assert len(wider.remaining_candidates()) == 2
    assert len(carry_out(wider)) == 2, "another study with the same runs finds them"
    assert wider.recorded_runs() == 4
    forbid_training(monkeypatch)
    again = opened(settings(spaces=TWO))
    assert carry_out(again) == []
    assert result(again)["trials"] == result(first)["trials"]


def test_recipes_are_trained_as_they_are_proposed() -> None:
    recipe = {"train.learning_rate": [1e-3, 4e-3], "train.weight_decay": [0.1]}
    space = TWO[0] | {"vary": {"d_z": [65], "d_h": [4], **recipe}}
    study = opened(settings(spaces=[space]))
    assert len(carry_out(study)) == 2
    trained = [record.config["train"] for record in study.records()]
    assert [(train["learning_rate"], train["weight_decay"]) for train in trained] == [(1e-3, 0.1), (4e-3, 0.1)]
    again = opened(settings(spaces=[space]))
    assert again.is_complete
    assert [trial.recipe["learning_rate"] for trial in again.trials] == [1e-3, 4e-3]


def test_a_look_at_the_records_does_not_read_the_data_again(monkeypatch: pytest.MonkeyPatch) -> None:
    study = opened(settings(spaces=TWO, seeds=[0, 1]))
    kind = type(study.plan.task)
    monkeypatch.setattr(kind, "learn", lambda task, data: pytest.fail("the task read the data again"))
    assert len(study.remaining_candidates()) == 2
    assert study.recorded_runs() == 0


@pytest.mark.parametrize("sampler", ["grid", "tpe", "model"])
def test_a_lost_database_is_made_again_from_the_records(
    sampler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = settings(**SAMPLED[sampler] | {"seeds": [0]})
    whole = opened(given, f"sqlite:///{tmp_path / 'first.db'}")
    carry_out(whole)
    forbid_training(monkeypatch)
    again = opened(given, f"sqlite:///{tmp_path / 'second.db'}")
    carry_out(again)
    assert result(again) == result(whole)


@pytest.mark.parametrize("sampler", ["tpe", "model"])
def test_an_interrupted_study_goes_on_to_the_same_trials(
    sampler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C after every third run, also between two of them, where no job is there to hear it."""
    given = settings(**SAMPLED[sampler])
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "whole"))
    whole = opened(given)
    trained = carry_out(whole)
    expected = result(whole)
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "parts"))
    ended: list[str] = []

    def tell(trial: Any, run: Any, event: Event) -> None:
        ended.append(event.id)
        if len(ended) % 3 == 0:
            os.kill(os.getpid(), signal.SIGINT)

    interruptions = 0
    while not (study := opened(given)).is_complete:
        try:
            study.carry_out(ThisProcess(), tell)
        except KeyboardInterrupt:
            interruptions += 1
    assert interruptions >= 2
    assert sorted(ended) == sorted(trained)
    assert result(study) == expected


def test_a_search_that_is_out_of_time_has_carried_out_a_prefix_of_its_decisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = settings(**SAMPLED["model"])
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "whole"))
    whole = opened(given)
    carry_out(whole)
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "parts"))
    parts = list[dict[int, str]]()
    while not (study := opened(given)).is_complete:
        _carry_out_for_two_runs(study, monkeypatch)
        parts.append(_decisions(study))
        assert len(parts) < 20
    assert len(parts) > 2
    assert all(later.items() > earlier.items() for earlier, later in itertools.pairwise(parts[:-1]))
    assert _decisions(study) == _decisions(whole)
    assert study.outcomes() == whole.outcomes()


def _carry_out_for_two_runs(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an hour's time, which is over when two runs have ended."""
    clock, ended = time.monotonic, list[str]()
    with monkeypatch.context() as patch:
        patch.setattr(studies, "time", SimpleNamespace(monotonic=lambda: clock() + 3600 * (len(ended) >= 2)))
        study.carry_out(ThisProcess(), lambda trial, run, event: ended.append(event.id), clock() + 3600)


def _decisions(study: Study) -> dict[int, str]:
    return {number: f"{trial.key} {epoch}" for trial in study.trials for number, epoch in trial.decisions.items()}


@pytest.mark.parametrize("generation", [2, 4])
def test_a_search_among_few_candidates_trains_all_of_them(
    generation: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where more results are awaited at a time than there are candidates, also if Ctrl-C follows every run."""
    space = SPACES[0] | {"vary": {"d_z": [65], "d_h": [4, 8, 12]}}
    sampling = {"name": "model", "candidates": 3, "generation": generation}
    given = settings(spaces=[space], sampling=sampling, pruning={"rungs": [1]})
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "whole"))
    whole = opened(given)
    assert len(carry_out(whole)) == 6, "each to its rung and to its end"
    assert [trial.state for trial in whole.trials] == ["finished"] * 3
    assert whole.is_complete
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "parts"))
    for _ in range(20):
        if (study := opened(given)).is_complete:
            break
        with contextlib.suppress(KeyboardInterrupt):
            study.carry_out(ThisProcess(), lambda trial, run, event: os.kill(os.getpid(), signal.SIGINT))
    assert _decisions(study) == _decisions(whole)
    assert study.outcomes() == whole.outcomes()


def test_a_time_limit_leaves_the_size_of_a_search_by_model_alone() -> None:
    given = study_config(settings(**SAMPLED["model"]))
    begun = complete_study(given, Options(), within=1e-3)
    assert begun.config == given
    assert not begun.is_complete
    assert begun.trials == []
    whole = complete_study(given, Options(), within=3600)
    assert whole.is_complete
    assert len(whole.trials) > 2


def test_one_trial_of_a_name_is_one_space(url: str) -> None:
    study = opened(settings(spaces=TWO), url)
    carry_out(study)
    other = settings(spaces=SPACES, seeds=[0, 1])
    with pytest.raises(UserError, match="'small' exists and differs in seeds, spaces; give this one another name"):
        opened(other, url)
    again = opened(settings(spaces=TWO), url)
    assert again.is_complete
    assert result(again) == result(study)


def test_a_run_that_diverges_fails_alone() -> None:
    """A learning rate at which the loss is no number any more, and candidates to which nothing else is offered."""
    train = BASE["train"] | {"optimizer": "sgd", "learning_rate": 0.01}
    both = opened(settings(base=BASE | {"train": train}, learning_rates=[0.01, 1000.0], spaces=TWO))
    carry_out(both)
    assert Counter(record.status for record in both.records()) == {"finished": 2, "failed": 2}
    assert {trial["state"] for trial in result(both)["trials"]} == {"finished"}
    alone = opened(settings(name="alone", base=BASE | {"train": train}, learning_rates=[1000.0], spaces=TWO))
    assert carry_out(alone) == [], "its runs are on record"
    trials = result(alone)["trials"]
    assert [trial["state"] for trial in trials] == ["failed"] * 2
    assert all("the training loss is not finite at step" in trial["reason"] for trial in trials)


def test_what_a_person_must_mend_costs_no_trial() -> None:
    """Here something lies where a run's folder should be; it could be a full disk. One line, and then it goes on."""
    study = opened(settings(spaces=TWO))
    run = study.plan.run(study.plan.candidates[0].model, study.config.rates[0], 0)
    run.folder.parent.mkdir(parents=True)
    run.folder.write_text("in the way")
    with pytest.raises(UserError, match=rf"run {run.id}: cannot create the folder {run.folder}"):
        carry_out(study)
    run.folder.unlink()
    again = opened(settings(spaces=TWO))
    assert {trial["state"] for trial in again.outcomes()} == {"open"}
    assert run.id in carry_out(again)
    assert {trial["state"] for trial in again.outcomes()} == {"finished"}


def test_a_result_that_is_taken_away_is_no_failure() -> None:
    study = opened(settings(spaces=TWO))
    with pytest.raises(UserError, match="has lost its results"):
        study.carry_out(ThisProcess(), lambda trial, run, event: shutil.rmtree(trial.runs[run].folder))
    again = opened(settings(spaces=TWO))
    assert len(carry_out(again)) == 2
    assert {trial["state"] for trial in again.outcomes()} == {"finished"}


def test_quality_can_be_weighed_against_measured_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured before a candidate is trained, and not again: another measurement would be another front."""
    study = opened(settings(spaces=TWO, cost="latency"))
    assert len(carry_out(study)) == 2
    costs = [trial["cost"] for trial in study.outcomes()]
    assert all(0 < cost < math.inf for cost in costs)
    again = replace(LATENCY, compute=lambda *given: pytest.fail("measured again"))
    monkeypatch.setattr("isthmus.costs.latency.LATENCY", again)
    assert [trial["cost"] for trial in opened(settings(spaces=TWO, cost="latency")).outcomes()] == costs


def test_the_other_seeds_get_the_rate_that_was_selected() -> None:
    given = settings(spaces=TWO, learning_rates=[1e-3, 1e-2], rates_on="first_seed", seeds=[0, 1, 2])
    study = opened(given)
    assert len(carry_out(study)) == study.expected_runs == 2 * (2 + 2)
    for trial in study.trials:
        assert trial.rate is not None
        records = {run: read_record(prepared.folder) for run, prepared in trial.runs.items() if run[1] == 0}
        best = max(records, key=lambda run: records[run].quality("validation") or 0.0)
        assert trial.rate == best[0]
        assert set(study.outcomes()[trial.number]["runs"]) == {
            *(record.id for record in records.values()), *(trial.runs[trial.rate, seed].id for seed in (1, 2))
        }  # fmt: skip


def test_two_drivers_share_a_study(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In two threads here; `test_workers.py` has them in processes of their own."""
    given = settings(**SAMPLED["tpe"])
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "alone"))
    alone = opened(given)
    trained = carry_out(alone)
    expected = result(alone)
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "together"))
    ended: dict[str, list[str]] = {"first": [], "second": []}
    studies: list[Study] = []

    def drive(name: str) -> None:
        study = opened(given, url, command=name)
        studies.append(study)
        ended[name] = carry_out(study)

    threads = [threading.Thread(target=drive, args=(name,)) for name in ended]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended["first"] + ended["second"]) == sorted(trained)
    assert [result(study) for study in studies] == [expected, expected]


def test_the_answer_is_a_table_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = study_config(settings(seeds=[0, 1], spaces=[], candidates=[
        {"name": "hourglass_mlp", "d_z": 70, "d_h": 8, "depth": 1},
        {"name": "conventional_mlp", "d_z": 32, "d_h": 64, "depth": 1},
    ]))  # fmt: skip
    print_answer(complete_study(given, Options()), tmp_path / "page", as_json=False)
    said = capsys.readouterr()
    assert "2 candidates, 4 runs (0 on record)" in said.err
    assert "Hourglass" in said.out
    assert "Conventional" in said.out
    assert (tmp_path / "page" / "index.html").stat().st_size > 1_000_000
    before = models()
    print_answer(complete_study(given, Options()), tmp_path / "page", as_json=True)
    lines = json.loads(capsys.readouterr().out)["candidates"]
    assert {len(line["seeds"]) for line in lines} == {2}
    assert models() == before


@pytest.mark.filterwarnings("ignore")  # Ray's
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ["--storage", "postgresql://me:secret@127.0.0.1:1/x"],
            "me:***@127.0.0.1:1/x cannot be used: connection failed",
        ),
        (["--storage", "oracle9://here/there"], "oracle9://here/there cannot be used: Can't load plugin"),
        (["--storage", "/proc/nowhere/study.db"], "cannot be used: unable to open database file"),
        (["--cluster", "127.0.0.1:1"], "the Ray cluster '127.0.0.1:1' cannot be used: nothing answers"),
        (["--cluster", "nowhere"], "--cluster 'nowhere' is neither auto nor an address"),
        (["seeds=[5]"], "a study named 'small' exists and differs in seeds"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_costs_nothing(given: list[str], said: str, tmp_path: Path) -> None:
    if "--cluster" in given:
        pytest.importorskip("ray")
    small = settings(spaces=[TWO[0] | {"vary": {"d_z": [65], "d_h": [4]}}])
    write_json(tmp_path / "small.json", small)
    carry_out(opened(small))
    before = models()
    answered = call("study", tmp_path / "small.json", *given)
    assert answered.code == 2
    assert answered.err.startswith("isthmus: ")
    assert said in answered.err
    assert answered.err.count("\n") == 1
    assert "secret" not in answered.err
    assert models() == before
    assert opened(small).is_complete
