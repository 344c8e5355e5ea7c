"""`isthmus reproduce`: carry the studies out, judge what they found, and write it beside what is printed."""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from isthmus.config import StudyConfig
from isthmus.errors import UserError, nearest
from isthmus.files import home, read_json, write_text, write_with
from isthmus.papers import list_papers, load_paper
from isthmus.record import RunRecord
from isthmus.registry import find
from isthmus.reproduction.protocol import SCALES, Exhibit, Findings, Given, Measured, NotStored, Part, Scale
from isthmus.reproduction.rendering import markdown, rows_csv, show
from isthmus.reproduction.rows import identified, of_candidates, recalled, rows
from isthmus.run import Options, load_data

SCHEMA = "isthmus.reproduction/1"


class Done(Protocol):
    """A study that was carried out."""

    @property
    def folders(self) -> Sequence[Path]: ...

    def records(self) -> Sequence[RunRecord]: ...


CarryOut = Callable[[StudyConfig, Options, int], Done]


def list_reproductions() -> dict[str, dict[str, Exhibit]]:
    """The tables and figures of each paper that can be measured again."""
    homes = {key: f"isthmus.reproduction.{key}" for key in list_papers()}
    return {key: importlib.import_module(name).TABLES for key, name in homes.items() if importlib.util.find_spec(name)}


def list_exhibits(paper: str | None = None) -> list[dict[str, str]]:
    """A line for each table and figure, of one paper or of all."""
    papers = list_reproductions() if paper is None else {paper: _exhibits(paper)}
    return [
        {"paper": key, "table": name, "printed as": exhibit.printed_as, "shows": exhibit.shows}
        for key, exhibits in papers.items()
        for name, exhibit in exhibits.items()
    ]


def find_exhibit(paper: str, table: str) -> Exhibit:
    known = _exhibits(paper)
    if table.upper() not in known:
        raise UserError(f"{paper} has no {table!r} to reproduce; {nearest(table.upper(), known)}")
    return known[table.upper()]


def _exhibits(paper: str) -> dict[str, Exhibit]:
    known = list_reproductions()
    if paper not in known:
        raise UserError(f"there is no reproduction of {paper!r}; {nearest(paper, known)}")
    return known[paper]


def reproduce(
    paper: str,
    table: str,
    scale: str,
    out: Path | None = None,
    workers: int = 1,
    data_dir: Path | None = None,
    as_json: bool = False,
    carry_out: CarryOut | None = None,
) -> dict[str, Any]:
    """Measure a table or a figure again and show it beside what is printed; returns what ``result.json`` holds.

    What is on record is not trained again, and an interrupted reproduction goes on where it stopped.
    """
    exhibit, table = find_exhibit(paper, table), table.upper()
    if scale not in SCALES:
        raise UserError(f"there is no scale {scale!r}; {nearest(scale, SCALES)}")
    chosen: Scale = scale  # type: ignore[assignment]
    command = f"isthmus reproduce {paper} {table} --scale {scale}"
    options = Options(data_dir=data_dir, command=command)
    parts = exhibit.parts(chosen)
    _need_data(parts, data_dir)
    carry_out, extra = carry_out or _complete, count(1)
    for study in exhibit.first(chosen) if exhibit.first else ():
        carry_out(study, options, workers)
    measured = [_measure(part, options, workers, carry_out, extra) for part in parts]
    analysis = exhibit.analyse(Given(measured, chosen, data_dir)) if exhibit.analyse else {}
    findings = Findings(measured, analysis)
    result = {
        "schema": SCHEMA,
        "paper": paper,
        "title": load_paper(paper).title,
        "table": table,
        "printed_as": exhibit.printed_as,
        "shows": exhibit.shows,
        "scale": scale,
        "command": command,
        "differences": [*_differences(parts), *analysis.get("differences", ())],
        "rows": rows(measured, analysis.get("rows", {})),
        "claims": _judged(exhibit, findings),
        "quantities": [asdict(quantity) for quantity in analysis.get("quantities", ())],
        "analysis": {name: value for name, value in analysis.items() if name not in ("quantities", "differences")},
        "studies": [part.study.model_dump(mode="json", exclude_defaults=True) for part in parts],
    }
    folder = out or home() / "reproductions" / f"{paper}-{table}-{scale}"
    _write(folder, result, exhibit, findings)
    if as_json:
        from isthmus import terminal

        terminal.print_json(result, sort_keys=True)
    else:
        show(result, str(folder))
    return result


def judge_again(folder: Path) -> dict[str, Any]:
    """Judge a stored result by today's rules, from the values that it holds, and write its tables anew."""
    result = read_json(folder / "result.json")
    if not isinstance(result, dict) or result.get("schema") != SCHEMA:
        raise UserError(f"{folder / 'result.json'} is no result of `isthmus reproduce`")
    exhibit, extra = find_exhibit(result["paper"], result["table"]), count(1)
    measured = []
    for part in exhibit.parts(result["scale"]):
        stored = [row for row in result["rows"] if row["part"] == part.title and row["measured"]]
        candidates = [recalled(row, find("tasks", row["config"]["task"]["name"]).maximise) for row in stored]
        measured.append(of_candidates(part, candidates, (), extra))
    result.setdefault("quantities", [])
    result["rows"] = rows(measured, result["analysis"].get("rows", {}))
    result["claims"] = _judged(exhibit, Findings(measured, result["analysis"]), result["claims"])
    _write_tables(folder, result)
    return result


def judge_below(root: Path) -> Iterator[Path]:
    """Judge every stored result in a folder again."""
    found = sorted(root.rglob("result.json"))
    if not found:
        raise UserError(f"there is no result of `isthmus reproduce` below {root}")
    for path in found:
        judge_again(path.parent)
        yield path.parent


def _write_tables(folder: Path, result: dict[str, Any]) -> None:
    write_text(folder / "table.md", markdown(result))
    write_text(folder / "rows.csv", rows_csv(result))
    write_text(folder / "result.json", _canonical(result))


def _complete(config: StudyConfig, options: Options, workers: int) -> Done:
    from isthmus.studies.command import complete

    return complete(config, options, workers)


def _need_data(parts: Sequence[Part], data_dir: Path | None) -> None:
    """Data that is missing for the last part is missed before hours are spent on the first."""
    sources = {part.study.base.source.model_dump_json(): part.study.base.source for part in parts}
    for source in list(sources.values())[1:]:
        load_data(source, data_dir)


def _measure(part: Part, options: Options, workers: int, carry_out: CarryOut, extra: count[int]) -> Measured:
    done = carry_out(part.study, options, workers)
    measured = identified(part, done.records(), done.folders, extra)
    if not measured.candidates:
        raise UserError(f"no run of the study {part.study.name!r} finished; `isthmus runs list` shows why")
    return measured


def _differences(parts: Sequence[Part]) -> list[str]:
    """What all parts share once, and the rest with the part that it is about."""
    if not parts:
        return []
    shared = set.intersection(*(set(part.differences) for part in parts))
    own = [f"{part.title}: {line}" for part in parts for line in part.differences if line not in shared]
    return own + [line for line in parts[0].differences if line in shared]


def _judged(exhibit: Exhibit, findings: Findings, stored: Sequence[dict[str, Any]] = ()) -> list[dict[str, Any]]:
    """The claims with their answers; one that needs a metric which was not ``stored`` keeps the answer it had."""
    claims, known = [], {claim["id"]: claim for claim in stored}
    for name, test in exhibit.tests.items():
        try:
            judgement = vars(test.judge(findings))
        except NotStored:
            claims.append(known[name])
            continue
        stated = {"id": name, "statement": test.statement, "supported": test.supported}
        claims.append(stated | judgement | {"test": " ".join((test.judge.__doc__ or "").split())})
    return claims


def _canonical(result: dict[str, Any]) -> str:
    return json.dumps(result, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _has_printed_front(item: Measured, result: dict[str, Any]) -> bool:
    table = load_paper(result["paper"]).tables.get(item.part.table)
    return table is not None and bool(table.task) and len(table.rows) == len(item.part.printed)


def _write(folder: Path, result: dict[str, Any], exhibit: Exhibit, findings: Findings) -> None:
    """Everything in one folder; ``result.json`` last, so that where it is, the rest is."""
    from isthmus.reports import write_report

    figure = exhibit.draw(findings)
    write_with(folder / "figure.png", lambda path: figure.savefig(path, format="png", dpi=150))
    folders = [path for item in findings.parts for path in item.folders]
    tables = [f"{result['paper']}/{item.part.table}" for item in findings.parts if _has_printed_front(item, result)]
    title = f"{result['title']}: {result['printed_as']}, scale {result['scale']}"
    if findings.parts:
        write_report(folders, folder, title, result["command"], published=tables)
    _write_tables(folder, result)
