"""`isthmus reproduce`: run the studies, test the claims, and write measured beside published results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from isthmus.core.config import StudyConfig
from isthmus.core.errors import UserError, nearest
from isthmus.core.files import home, read_json, write_text, write_with
from isthmus.core.record import RunRecord
from isthmus.core.registry import find
from isthmus.papers import import_exhibits, list_papers, load_paper
from isthmus.papers.engine.claims import NotStored
from isthmus.papers.engine.exhibit import SCALES, AnalysisInput, Exhibit, Findings, MeasuredPart, Part, Scale
from isthmus.papers.engine.protocols import KINDS, Kind
from isthmus.papers.engine.rows import identify, make_rows, recall_candidate
from isthmus.papers.engine.tables import markdown, rows_csv
from isthmus.studies.fronts import Candidate, summarise
from isthmus.training.prepare import Options, load_data

SCHEMA = "isthmus.reproduction/1"


class Done(Protocol):
    """A study whose runs have finished."""

    @property
    def folders(self) -> Sequence[Path]: ...

    def records(self) -> Sequence[RunRecord]: ...


CarryOut = Callable[[StudyConfig, Options, int], Done]


def list_exhibits(paper: str | None = None) -> list[dict[str, str]]:
    """A line for each table and figure of one paper, or of all papers."""
    return [
        {"paper": key, "table": name, "printed as": exhibit.printed_as, "shows": exhibit.shows}
        for key in ([paper] if paper else list_papers())
        for name, exhibit in import_exhibits(key).items()
    ]


def find_exhibit(paper: str, table: str) -> Exhibit:
    known: dict[str, Exhibit] = import_exhibits(paper)
    if table.upper() not in known:
        raise UserError(f"{paper} has no {table!r} to reproduce; {nearest(table.upper(), known)}")
    return known[table.upper()]


def reproduce(
    paper: str, table: str, scale: str, out: Path | None = None, *, carry_out: CarryOut, workers: int = 1,
    data_dir: Path | None = None, partial: bool = False, protocol: str = "printed",
    overrides: Sequence[str] = (), stored: Sequence[Path] = (),
) -> dict[str, Any]:  # fmt: skip
    """Reproduce a table or figure and write measured beside published results.

    Returns the content of ``result.json``. ``carry_out`` trains a study; finished runs are not repeated. A ``partial``
    result leaves out studies without a finished run, and says how many runs of the others have ended. ``protocol`` is
    ``printed`` or, at the paper's scale, ``code``; ``overrides`` such as ``seeds=5`` change what `Part.change` allows.
    A study that is part of a complete result below ``stored`` is taken from there.
    """
    exhibit, table = find_exhibit(paper, table), table.upper()
    if scale not in SCALES:
        raise UserError(f"there is no scale {scale!r}; {nearest(scale, SCALES)}")
    chosen: Scale = scale  # type: ignore[assignment]
    kind = _check_protocol(protocol, chosen)
    command = f"isthmus reproduce {paper} {table} --scale {scale}" + " --protocol code" * (kind == "code")
    command = " ".join([command, *overrides])
    options = Options(data_dir=data_dir, command=command)
    parts = [part.follow(kind).change(overrides) for part in exhibit.parts(chosen)]
    sources = {part.study.base.source.model_dump_json(): part.study.base.source for part in parts}
    for source in list(sources.values())[1:]:
        load_data(source, data_dir)  # missing files of later parts are reported before the first part trains
    for study in exhibit.first(chosen) if exhibit.first else ():
        carry_out(study, options, workers)
    if stored and exhibit.analyse and exhibit.opens_runs:
        raise UserError(
            f"{paper} {table} measures trained networks, which stored results do not hold; leave out --stored"
        )
    measured, notes, unfinished, taken = _measure_parts(
        parts, lambda study: carry_out(study, options, workers), partial, stored, f"{paper} {table}"
    )
    if parts and not measured:
        raise UserError(f"no run of {paper} {table} at scale {scale} is on record; train them without --recorded")
    analysis = exhibit.analyse(AnalysisInput(measured, chosen, data_dir)) if exhibit.analyse else {}
    findings = Findings(measured, analysis)
    result = {
        "schema": SCHEMA,
        "paper": paper,
        "title": load_paper(paper).title,
        "table": table,
        "printed_as": exhibit.printed_as,
        "shows": exhibit.shows,
        "scale": scale,
        "protocol": kind,
        "overrides": list(overrides),
        "command": command + " --stored" * bool(notes),
        "contradictions": _gather(parts, lambda part: part.contradictions),
        "differences": [
            *unfinished,
            *notes,
            *_gather(parts, lambda part: part.differences),
            *analysis.get("differences", ()),
        ],
        "rows": make_rows(measured, analysis.get("rows", {})),
        "claims": _judge_claims(exhibit, findings, chosen, partial=bool(unfinished)),
        "partial": bool(unfinished),
        "quantities": [asdict(quantity) for quantity in analysis.get("quantities", ())],
        "analysis": {name: value for name, value in analysis.items() if name not in ("quantities", "differences")},
        "studies": [part.study.model_dump(mode="json", exclude_defaults=True) for part in parts],
    }
    _write(
        out or default_folder(paper, table, scale, kind), result, exhibit, findings, page=bool(measured) and not taken
    )
    return result


class Kept(NamedTuple):
    candidates: list[Candidate]
    home: str
    """The paper and the table of the stored result."""


def recall_study(part: Part, folders: Sequence[Path]) -> Kept | None:
    """The candidates of a part's study from a complete stored result that has the same study."""
    wanted = part.study.model_dump(mode="json", exclude_defaults=True)
    maximise = find("tasks", part.study.base.task.name).maximise
    for path in (path for folder in folders for path in sorted(folder.rglob("result.json"))):
        result = read_json(path)
        if result.get("schema") != SCHEMA or result.get("partial") or wanted not in result["studies"]:
            continue
        names = [each.title for each in find_exhibit(result["paper"], result["table"]).parts(result["scale"])]
        title = names[result["studies"].index(wanted)]
        rows = [row for row in result["rows"] if row["part"] == title and row["measured"]]
        if rows:
            return Kept([recall_candidate(row, maximise) for row in rows], f"{result['paper']} {result['table']}")
    return None


def _measure_parts(
    parts: Sequence[Part], complete: Callable[[StudyConfig], Done], partial: bool, stored: Sequence[Path], own: str
) -> tuple[list[MeasuredPart], list[str], list[str], int]:
    """The parts with their networks; which of them another table stored; how far the unfinished ones are; and how many
    parts were not trained here. ``own`` is the table itself, whose runs need no note."""
    measured, notes, unfinished, extra, taken = list[MeasuredPart](), list[str](), list[str](), count(1), 0
    for part in parts:
        if stored and (kept := recall_study(part, stored)) is not None:
            taken += 1
            if kept.home != own:
                notes.append(f"{part.title}: the runs stored with {kept.home}")
            measured.append(identify(part, kept.candidates, (), extra))
            continue
        done = complete(part.study)
        item = identify(part, summarise(done.records(), refits=True), done.folders, extra)
        if partial:
            unfinished.append(_describe_progress(item))
        elif not item.candidates:
            raise UserError(f"no run of the study {part.study.name!r} finished; `isthmus runs list` shows why")
        measured += [item] if item.candidates else []
    return measured, notes, unfinished, taken


def _check_protocol(protocol: str, scale: Scale) -> Kind:
    if protocol not in KINDS:
        raise UserError(f"there is no protocol {protocol!r}; {nearest(protocol, KINDS)}")
    if protocol == "code" and scale != "paper":
        raise UserError(f"--protocol code applies to --scale paper; --scale {scale} has its own protocol")
    return "code" if protocol == "code" else "printed"


def default_folder(paper: str, table: str, scale: str, protocol: str = "printed") -> Path:
    suffix = "" if protocol == "printed" else f"-{protocol}"
    return home() / "reproductions" / f"{paper}-{table.upper()}-{scale}{suffix}"


def judge_below(root: Path) -> Iterator[Path]:
    """Test the claims of every stored result below a folder again, from its stored values, and rewrite its tables."""
    found = sorted(root.rglob("result.json"))
    if not found:
        raise UserError(f"there is no result of `isthmus reproduce` below {root}")
    for path in found:
        result = read_json(path)
        if not isinstance(result, dict) or result.get("schema") != SCHEMA:
            raise UserError(f"{path} is not a result of `isthmus reproduce`")
        exhibit, extra = find_exhibit(result["paper"], result["table"]), count(1)
        measured = []
        for part in exhibit.parts(result["scale"]):
            part = part.follow(result.get("protocol", "printed")).change(result.get("overrides", ()))
            rows = [row for row in result["rows"] if row["part"] == part.title and row["measured"]]
            if not rows:  # of a partial result
                continue
            candidates = [recall_candidate(row, find("tasks", row["config"]["task"]["name"]).maximise) for row in rows]
            measured.append(identify(part, candidates, (), extra))
        result["rows"] = make_rows(measured, result["analysis"].get("rows", {}))
        result["claims"] = _judge_claims(
            exhibit,
            Findings(measured, result["analysis"]),
            result["scale"],
            result["claims"],
            result.get("partial", False),
        )
        _write_tables(path.parent, result)
        yield path.parent


def _describe_progress(item: MeasuredPart) -> str:
    study, ended = item.part.study, len(item.folders)
    tried = len(study.seeds) if study.rates_on == "every_seed" else 1
    each = tried * len(study.rates) + len(study.seeds) - tried
    return f"{item.part.title}: {ended} of {each * len(study.candidates)} runs have ended so far"


def _gather(parts: Sequence[Part], lines_of: Callable[[Part], list[str]]) -> list[str]:
    """Lines that all parts share are listed once; every other line starts with the title of its part."""
    if not parts:
        return []
    shared = set.intersection(*(set(lines_of(part)) for part in parts))
    own = [f"{part.title}: {line}" for part in parts for line in lines_of(part) if line not in shared]
    return own + [line for line in lines_of(parts[0]) if line in shared]


def _judge_claims(
    exhibit: Exhibit, findings: Findings, scale: Scale, stored: Sequence[dict[str, Any]] = (), partial: bool = False
) -> list[dict[str, Any]]:
    """The claims with their answers. A claim that needs a metric missing from ``stored`` keeps its old answer."""
    claims, known = [], {claim["id"]: claim for claim in stored}
    for name, test in exhibit.tests.items():
        try:
            judgement = vars(test.judge(findings))
            if partial:
                judgement = judgement | {"because": f"so far: {judgement['because']}"}
            if scale == "smoke":
                because = f"the smoke scale shows that everything runs and decides nothing; {judgement['because']}"
                judgement = judgement | {"measured": "not addressed", "because": because}
        except NotStored:
            claims.append(known[name])
            continue
        stated = {"id": name, "statement": test.statement, "supported": test.supported}
        claims.append(stated | judgement | {"test": " ".join((test.judge.__doc__ or "").split())})
    return claims


def _write(folder: Path, result: dict[str, Any], exhibit: Exhibit, findings: Findings, page: bool) -> None:
    """Everything in one folder; ``result.json`` last, so that its presence means the folder is complete.

    The ``page`` reads run records, which stored results do not have.
    """
    from isthmus.reports import write_report

    figure = exhibit.draw(findings)
    write_with(folder / "figure.png", lambda path: figure.savefig(path, format="png", dpi=150))
    folders = [path for item in findings.parts for path in item.folders]
    known, fronts = load_paper(result["paper"]).tables, []
    for part in (item.part for item in findings.parts):
        table = known.get(part.table)
        if table and table.task and len(table.rows) == len(part.printed):
            fronts.append(f"{result['paper']}/{part.table}")
    title = f"{result['title']}: {result['printed_as']}, scale {result['scale']}"
    if page:
        write_report(folders, folder, title, result["command"], published=fronts)
    _write_tables(folder, result)


def _write_tables(folder: Path, result: dict[str, Any]) -> None:
    write_text(folder / "table.md", markdown(result))
    write_text(folder / "rows.csv", rows_csv(result))
    text = json.dumps(result, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_text(folder / "result.json", text + "\n")
