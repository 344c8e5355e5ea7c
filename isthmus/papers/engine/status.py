"""Which exhibits and claims of the papers have stored results, at which scale, and with which verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from isthmus.core.errors import UserError
from isthmus.core.files import home, read_json
from isthmus.papers import import_exhibits, list_papers, load_paper
from isthmus.papers.engine.claims import all_of
from isthmus.papers.engine.exhibit import SCALES, Exhibit
from isthmus.papers.engine.reproduce import SCHEMA
from isthmus.studies.statistics import Answer

Result = Mapping[str, Any]
ANSWERS: tuple[Answer, ...] = ("yes", "no", "undecided", "not addressed")


def default_folders() -> list[Path]:
    """The results of this checkout, if there are any, and those of ``ISTHMUS_HOME``, which replace them."""
    return [folder for folder in (Path("results/reproductions"), home() / "reproductions") if folder.is_dir()]


def read_status(folders: Sequence[Path], paper: str | None = None) -> list[dict[str, Any]]:
    """For one paper or all: its exhibits with the scales that ran, and its claims with their verdicts."""
    results = {(each["paper"], each["table"], each["scale"]): each for each in read_results(folders)}
    return [_status(key, import_exhibits(key), results) for key in ([paper] if paper else list_papers())]


def read_results(folders: Iterable[Path]) -> Iterator[Result]:
    """Every ``result.json`` of `isthmus reproduce` below the folders."""
    for folder in folders:
        for path in sorted(folder.rglob("result.json")):
            result = read_json(path)
            if not isinstance(result, dict) or result.get("schema") != SCHEMA:
                raise UserError(f"{path} is not a result of `isthmus reproduce`")
            yield result


def _status(paper: str, exhibits: Mapping[str, Exhibit], results: Mapping[tuple[str, str, str], Result]) -> Any:
    found = {(table, scale): result for (key, table, scale), result in results.items() if key == paper}
    ran = {name: [scale for scale in SCALES if (name, scale) in found] for name in exhibits}
    published = load_paper(paper).claims
    tests = {name: test for exhibit in exhibits.values() for name, test in exhibit.tests.items()}
    claims = []
    for name in dict.fromkeys([*published, *tests]):
        statement = published[name].statement if name in published else tests[name].statement
        homes = [table for table, exhibit in exhibits.items() if name in exhibit.tests]
        claims.append({"id": name, "statement": statement, "published": name in published, "tested_in": homes}
                      | _verdict(name, homes, found))  # fmt: skip
    return {
        "paper": paper,
        "title": load_paper(paper).title,
        "exhibits": [{"id": name, "printed_as": exhibits[name].printed_as, "scales": ran[name]} for name in exhibits],
        "ran": {scale: sum(scale in scales for scales in ran.values()) for scale in SCALES},
        "claims": claims,
        "verdicts": {answer: sum(claim["verdict"] == answer for claim in claims) for answer in ANSWERS}
        | {"not run": sum(claim["verdict"] is None for claim in claims)},
    }


def _verdict(claim: str, tables: Sequence[str], found: Mapping[tuple[str, str], Result]) -> dict[str, Any]:
    """The answer over all exhibits at the largest scale that addresses the claim, or else at the largest that ran."""
    known = []
    for scale in reversed(SCALES):
        answers = {
            table: judged
            for table in tables
            if (table, scale) in found
            for judged in found[table, scale]["claims"]
            if judged["id"] == claim
        }
        if answers:
            verdict = all_of([judged["measured"] for judged in answers.values()])
            seeds = [number for judged in answers.values() for number in _seeds(judged["numbers"].get("measured", {}))]
            known.append(
                {
                    "verdict": verdict, "scale": scale,
                    "by_exhibit": {table: judged["measured"] for table, judged in answers.items()},
                    "partial": any(found[table, scale].get("partial") for table in answers),
                    "seeds_to_decide": max(seeds) if seeds and verdict == "undecided" else None,
                }
            )  # fmt: skip
    nothing: dict[str, Any] = {
        "verdict": None,
        "scale": None,
        "by_exhibit": {},
        "partial": False,
        "seeds_to_decide": None,
    }
    return next((each for each in known if each["verdict"] != "not addressed"), known[0] if known else nothing)


def _seeds(numbers: Any) -> Iterator[int]:
    """The numbers of seeds that would decide the open cases of a claim."""
    if isinstance(numbers, Mapping):
        if "seeds_to_decide" in numbers:
            yield numbers["seeds_to_decide"]
        for key, value in numbers.items():
            if key not in ("here", "among_what_the_paper_searched"):
                yield from _seeds(value)
    elif isinstance(numbers, list):
        for value in numbers:
            yield from _seeds(value)


def describe(status: Mapping[str, Any]) -> str:
    """One line about a paper."""
    ran, total = status["ran"], len(status["exhibits"])
    some = sum(bool(exhibit["scales"]) for exhibit in status["exhibits"])
    scales = ", ".join(f"{ran[scale]} at {scale}" for scale in reversed(SCALES))
    published = [claim for claim in status["claims"] if claim["published"]]
    decided = sum(claim["verdict"] in ("yes", "no") for claim in published)
    open_ = sum(claim["seeds_to_decide"] is not None for claim in published)
    return (
        f"{status['paper']}: results of {some} of {total} exhibits ({scales}); claims of the paper: {decided} of "
        f"{len(published)} decided, {open_} more with the number of seeds that would decide them"
    )
