"""Pages that say what the code says: the command line, the models, and each paper with what we measured of it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer.main

from isthmus.cli.main import app
from isthmus.core.fields import list_fields
from isthmus.core.protocols import Settings
from isthmus.core.registry import Kind, catalogue, find
from isthmus.core.titles import meaning
from isthmus.core.train_config import TrainConfig
from isthmus.papers import Paper, import_exhibits, list_papers, load_paper
from isthmus.papers.engine.exhibit import Part
from isthmus.papers.engine.protocols import read, show


def write_pages(folder: Path, results: Path) -> None:
    """Files whose content is the same are left alone, so that a second build has little to do."""
    pages = {"commands.md": command_page(), "models.md": model_page(), "fields.md": field_page()}
    pages["protocols.md"] = protocol_page()
    for key in list_papers():
        pages[f"paper-{key}.md"] = paper_page(load_paper(key), reproductions(results, key), folder)
    folder.mkdir(exist_ok=True)
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def table(header: list[str], rows: list[list[Any]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ").replace("<", "&lt;").replace("*", "\\*")


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def command_page() -> str:
    parts = ["# Command line", "Every command has `--help`; `--json` is for programs."]
    for name, command in commands(typer.main.get_command(app)):
        parts += [f"## isthmus {name}", (command.help or "").strip()]
        rows = [_option(parameter) for parameter in command.params if parameter.name != "help"]
        parts.append(table(["", "", "default"], rows) if rows else "")
    return "\n\n".join(part for part in parts if part) + "\n"


def _option(parameter: Any) -> list[Any]:
    shown = ", ".join(parameter.opts) if parameter.param_type_name == "option" else (parameter.name or "").upper()
    default = "required" if parameter.required else parameter.default
    return [f"`{shown}`", getattr(parameter, "help", "") or "", "" if default in (None, False) else f"`{default}`"]


def model_page() -> str:
    parts = ["# Models", "Each file says which paper it implements, how its symbols are called here, and what differs."]
    homes: dict[str, list[str]] = {}
    for name, home in catalogue("models").items():
        if home.startswith("isthmus."):
            homes.setdefault(home.partition(":")[0], []).append(name)
    for module, names in homes.items():
        config = find("models", names[0]).Config
        text = (sys.modules[module].__doc__ or "").strip()
        parts += ["## " + ", ".join(f"`{name}`" for name in names), f"```text\n{text}\n```", field_table(config)]
    return "\n\n".join(parts) + "\n"


def field_page() -> str:
    """The fields of runs and studies but those of models, which have a page of their own."""
    parts = [
        "# Fields",
        "Each of these is a field of a config file and an override of a command: `isthmus train digits-mixer "
        "train.epochs=3 task.label_smoothing=0.1`. `isthmus sources NAME`, `isthmus tasks NAME`, `isthmus pathways "
        "NAME` and `isthmus describe train` print the same. The fields of `model.*` are on the page of "
        "[models](models.md).",
        "## train",
        field_table(TrainConfig),
    ]
    kinds: tuple[tuple[Kind, str], ...] = (("tasks", "task"), ("sources", "source"), ("pathways", "pathway"))
    for kind, word in kinds:
        for name, home in catalogue(kind).items():
            if home.startswith("isthmus."):
                fields = field_table(find(kind, name).Config)
                parts += [f"## {word}: {name}", meaning(kind, name), fields or "It has no fields."]
    return "\n\n".join(parts) + "\n"


def field_table(config: type[Settings]) -> str:
    rows = [[f"`{each.name}`", each.meaning, each.accepts, f"`{each.default}`"] for each in list_fields(config)]
    return table(["field", "meaning", "accepts", "default"], rows) if rows else ""


def protocol_page() -> str:
    parts = [
        "# Protocols at the paper's scale",
        "Every setting that a paper prints, beside ours under `--scale paper`: as printed (the default), and with "
        "`--protocol code` as in the authors' code, where it is known to differ. What the paper does not print is our "
        "choice. The remark says why a printed value is not followed; until it is, no measured value is said to "
        "agree with a printed one.",
    ]
    for key in list_papers():
        parts += protocol_sections(key)
    return "\n\n".join(parts) + "\n"


def protocol_sections(key: str) -> list[str]:
    """A section for each protocol of a paper, with the exhibits that follow it."""
    groups: dict[str, tuple[Part, list[str]]] = {}
    for name, exhibit in import_exhibits(key).items():
        for part in exhibit.parts("paper"):
            if part.protocol is not None:
                found = groups.setdefault(repr((part.protocol, part.source)), (part, []))
                found[1].extend([name] if name not in found[1] else [])
    sections = []
    for part, names in groups.values():
        sections += [f"## {load_paper(key).title}: {part.protocol.where}, {part.source}", _describe_part(part, names)]
        sections.append(table(["setting", "printed", "here", "in the code", "here, as in the code", "remark"],
                              protocol_rows(part)))  # fmt: skip
        left = [*part.protocol.open.get("printed", ()), *part.protocol.open.get("code", ())]
        sections += ["No setting of ours removes these differences:\n\n" + "\n".join(f"- {line}" for line in left)]
        if not left:
            sections.pop()
    return sections


def _describe_part(part: Part, names: list[str]) -> str:
    study = part.study
    rates = ", ".join(f"{rate:g}" for rate in study.rates)
    return (
        f"{', '.join(names)}. {len(study.seeds)} seed{'s' * (len(study.seeds) > 1)}; learning rates tried: {rates}. "
        + " ".join(f"{note[0].upper()}{note[1:]}." for note in part.notes)
    )


def protocol_rows(part: Part) -> list[list[str]]:
    protocol, code = part.protocol, part.follow("code")
    assert protocol is not None
    rows = []
    for path in dict.fromkeys([*protocol.printed, *protocol.unprinted, *protocol.code]):
        here, there = ([*dict.fromkeys(map(show, read(each.study, path)))] for each in (part, code))
        if not here:
            continue
        printed = show(protocol.printed[path]) if path in protocol.printed else "not printed"
        known = show(protocol.code[path]) if path in protocol.code else ""
        rows.append([f"`{path}`", printed, ", ".join(here), known, ", ".join(there) if known else "",
                     protocol.unapplied.get(path, "")])  # fmt: skip
    return rows


def reproductions(results: Path, key: str) -> dict[Path, dict[str, Any]]:
    """The folders of what was measured again of a paper, with their results."""
    found = {}
    for path in sorted(results.glob(f"{key}-*/result.json")):
        found[path.parent] = json.loads(path.read_text(encoding="utf-8"))
    return found


def paper_page(paper: Paper, measured: Mapping[Path, Mapping[str, Any]], folder: Path) -> str:
    parts = [f"# {paper.title}", ", ".join(paper.authors)]
    parts += ["## Claims", "Whether the paper's own tables bear a claim out, and what we found where we measured it."]
    rows = []
    for claim in paper.claims.values():
        found = [_verdict(result, claim.id) for result in measured.values()]
        said = "; ".join(text for text in found if text) or "not measured yet"
        rows.append([claim.id, claim.statement, claim.supported + (f": {claim.note}" if claim.note else ""), said])
    parts.append(table(["", "claim", "in print", "measured"], rows))
    if paper.discrepancies:
        parts += ["## Where print and arithmetic differ"]
        rows = [[each.where, each.printed, each.computed, each.note] for each in paper.discrepancies.values()]
        parts.append(table(["where", "printed", "follows", "note"], rows))
    parts += ["## Measured again"]
    if not measured:
        parts.append(f"Nothing yet. `isthmus reproduce {paper.key} …` measures the tables and figures that it lists.")
    for place, result in measured.items():
        parts += [f"### {result['printed_as']}, scale {result['scale']}", result["shows"], f"`{result['command']}`"]
        if (place / "figure.png").exists():
            picture = Path(os.path.relpath(place / "figure.png", folder)).as_posix()
            parts.append(f"![{result['printed_as']}, measured]({picture})")
    return "\n\n".join(parts) + "\n"


def _verdict(result: Mapping[str, Any], claim: str) -> str:
    for each in result["claims"]:
        if each["id"] == claim and each["measured"] != "not addressed":
            return f"{each['measured']} ({result['printed_as']}, {result['scale']}): {each['because']}"
    return ""
