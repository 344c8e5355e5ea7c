"""`isthmus reproduce --status`: what has results, and which verdicts they hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from isthmus.cli.main import app
from isthmus.core.errors import UserError
from isthmus.papers import load_paper
from isthmus.papers.engine.reproduce import SCHEMA
from isthmus.papers.engine.status import describe, read_status
from isthmus.papers.hourglass.exhibits import TABLES


def store(folder: Path, table: str, scale: str, numbers: Any = None, **claims: str) -> None:
    """A result with these answers."""
    judged = [
        {"id": name, "measured": answer, "numbers": {"measured": numbers or {}}} for name, answer in claims.items()
    ]
    result = {"schema": SCHEMA, "paper": "hourglass", "table": table, "scale": scale, "claims": judged}
    (folder / f"{table}-{scale}").mkdir(parents=True)
    (folder / f"{table}-{scale}" / "result.json").write_text(json.dumps(result))


def claims_of(folder: Path) -> dict[str, Any]:
    (status,) = read_status([folder], "hourglass")
    return {claim["id"]: claim for claim in status["claims"]}


def test_without_results_every_exhibit_and_claim_is_listed(tmp_path):
    (status,) = read_status([tmp_path], "hourglass")
    assert [exhibit["id"] for exhibit in status["exhibits"]] == list(TABLES)
    assert status["ran"] == {"smoke": 0, "cpu": 0, "paper": 0}
    published = [claim["id"] for claim in status["claims"] if claim["published"]]
    assert published == list(load_paper("hourglass").claims)
    assert status["verdicts"]["not run"] == len(status["claims"]) > len(published), "with our own questions"
    assert "claims of the paper: 0 of 13 decided" in describe(status)


def test_a_claim_is_answered_over_its_exhibits_at_the_largest_scale_that_addresses_it(tmp_path):
    store(tmp_path, "T8", "cpu", C3="yes", C13="not addressed")
    store(tmp_path, "F7", "cpu", C3="no", C13="not addressed")
    store(tmp_path, "T8", "smoke", C3="not addressed", C13="not addressed")
    found = claims_of(tmp_path)
    assert (found["C3"]["verdict"], found["C3"]["scale"]) == ("no", "cpu")
    assert found["C3"]["by_exhibit"] == {"T8": "yes", "F7": "no"}
    assert found["C13"]["verdict"] == "not addressed"
    assert found["C1"]["verdict"] is None
    store(tmp_path, "T8", "paper", C3="yes", C13="yes")
    found = claims_of(tmp_path)
    assert (found["C3"]["verdict"], found["C3"]["scale"], found["C13"]["verdict"]) == ("yes", "paper", "yes")


def test_open_claims_have_the_number_of_seeds_that_would_decide_all_of_their_cases(tmp_path):
    cases = {
        "one": {"seeds_to_decide": 7},
        "two": {"cells": [{"seeds_to_decide": 40}]},
        "here": {"seeds_to_decide": 9e9},
    }
    store(tmp_path, "T8", "cpu", cases, C3="undecided")
    assert claims_of(tmp_path)["C3"]["seeds_to_decide"] == 40


def test_the_command_prints_every_paper_or_one_as_json(tmp_path):
    store(tmp_path, "T8", "cpu", C3="no")
    told = CliRunner().invoke(app, ["reproduce", "--status", "--out", str(tmp_path)])
    assert told.exit_code == 0
    assert "hourglass: results of 1 of 21 exhibits (0 at paper, 1 at cpu, 0 at smoke)" in " ".join(told.stdout.split())
    assert "imixer: results of 0 of 8 exhibits" in " ".join(told.stdout.split())
    one = CliRunner().invoke(app, ["reproduce", "hourglass", "--status", "--out", str(tmp_path), "--json"])
    assert json.loads(one.stdout) == json.loads(json.dumps(read_status([tmp_path], "hourglass")))


def test_another_file_is_named(tmp_path):
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(UserError, match="is not a result of `isthmus reproduce`"):
        read_status([tmp_path])


def test_the_stored_results_of_this_checkout_are_read():
    folder = Path(__file__).parents[2] / "results" / "reproductions"
    known = {status["paper"]: status for status in read_status([folder])}
    assert sum(known["hourglass"]["ran"].values()) >= 7
    for status in known.values():
        assert all(claim["by_exhibit"] or claim["verdict"] is None for claim in status["claims"])
