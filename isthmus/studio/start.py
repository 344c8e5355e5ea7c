"""Start a search: what the data hold, what `isthmus find` would do with them, and the button."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, cast

import numpy as np

from isthmus.core.errors import UserError
from isthmus.core.registry import catalogue, component
from isthmus.core.titles import meaning
from isthmus.core.units import amount, parse_seconds
from isthmus.reports.markup import count, mark_code, shorten
from isthmus.reports.sections import name_problem
from isthmus.reports.text import magnitude
from isthmus.studio.index import problem_key
from isthmus.studio.layout import Part, View, command, link, table
from isthmus.studio.opened import KINDS, LARGEST, Opened, list_pictures, read_shapes
from isthmus.studio.panel import address

PICTURES = 10
"""Thumbnails of a folder of images."""
BUDGET, WITHIN = "50k", "2m"
_MOST_COLUMNS, _EXAMPLES = 200, 3
_MOST_PLANS = 32


@dataclass(frozen=True)
class Choice:
    """What the form says: empty fields leave the choice to `isthmus find`."""

    opened: Opened
    target: str = ""
    task: str = ""
    budget: str = BUDGET
    within: str = WITHIN

    @classmethod
    def read(cls, opened: Opened, given: Mapping[str, str]) -> Choice:
        """A choice from the fields of a form; a wrong one is an error that says what to give."""
        texts = {name: given.get(name, "").strip() for name in ("target", "task", "budget", "within")}
        found = cls(opened, texts["target"], texts["task"], texts["budget"] or BUDGET, texts["within"] or WITHIN)
        if found.task and found.task not in catalogue("tasks"):
            raise UserError(f"there is no task {found.task[:100]!r}")
        if not isinstance(found.params, int) or found.params < 1:
            raise UserError(f"budget {found.budget[:100]!r} is not a number of parameters; give one such as 50k")
        parse_seconds(found.within)
        return found

    @property
    def params(self) -> Any:
        return amount(self.budget)

    @property
    def seconds(self) -> float:
        return parse_seconds(self.within)

    @property
    def words(self) -> list[str]:
        """The command line after ``isthmus``. A value cannot be taken for an option: each follows its name."""
        chosen = {"target": self.target, "task": self.task}
        options = [f"--{name}={value}" for name, value in chosen.items() if value]
        return ["find", self.opened.data, *options, f"--budget={self.budget}", f"--within={self.within}"]


@dataclass(frozen=True)
class Plan:
    """What a search would do."""

    title: str
    problem: str
    words: tuple[str, ...]
    findings: tuple[str, ...]
    rows: Mapping[str, int]
    sizes: tuple[int, ...]
    """Parameters of the networks of the first round."""
    folds: int
    pictures: tuple[str, ...]
    """Some of its images, as addresses; of a folder, the page shows the files themselves."""


def make_plan(choice: Choice) -> Plan:
    """Read the data as `isthmus find` does, and list the networks that it begins with."""
    from isthmus.core.protocols import SPLITS, ModelConfig
    from isthmus.search.networks import list_networks
    from isthmus.search.question import ask
    from isthmus.search.race import FOLDS, SMALL
    from isthmus.training.counting import count_params
    from isthmus.training.prepare import Options

    question = ask(
        choice.opened.data, [choice.target] if choice.target else None, choice.task or None, None, (), Options()
    )
    rows: dict[str, int] = {name: len(question.data.split(name)) for name in SPLITS}
    is_small = rows["train"] + rows["validation"] < SMALL and "folds" in type(question.source).model_fields
    signature = question.learned.signature
    networks = list_networks(signature, question.task.name, rows["train"], choice.params)
    models = {str(each["model"]): cast("ModelConfig", component("models", each["model"])) for each in networks}
    sizes = tuple(sorted(count_params(model.complete(signature, 0)) for model in models.values()))
    config = {"source": question.source.model_dump(mode="json"), "task": question.task.model_dump(mode="json")}
    return Plan(
        name_problem(config), problem_key(config), question.words, question.findings, rows, sizes,
        FOLDS if is_small else 0, () if choice.opened.path else _take_pictures(question.data.train.inputs),
    )  # fmt: skip


def _take_pictures(rows: Any) -> tuple[str, ...]:
    """Some images of a source; none if its rows are no images."""
    if rows.ndim != 4 or rows.shape[1] not in (1, 3) or rows.dtype != np.uint8:
        return ()
    return tuple(address(rows[place]) for place in np.linspace(0, len(rows) - 1, PICTURES).astype(int))


class Plans:
    """Plans are made one after the other, away from the pages, and kept while their file does not change."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "plans")
        self._known = dict[tuple[Any, ...], Future[Plan]]()
        self._lock = threading.Lock()

    def find(self, choice: Choice) -> Future[Plan]:
        path = choice.opened.path
        changed = path.stat().st_mtime_ns if path and path.exists() else 0
        key = (choice.opened.data, changed, choice.target, choice.task, choice.budget)
        with self._lock:
            if key not in self._known:
                self._known[key] = self._pool.submit(make_plan, choice)
                while len(self._known) > _MOST_PLANS:
                    self._known.pop(next(iter(self._known)))
            return self._known[key]


class Start(View):
    """Where data are dropped or named."""

    title, place, is_live = "Start a search", "/start", False

    def __init__(self, opened: list[Opened], error: str = "", given: str = "") -> None:
        self.opened, self.error, self.given = opened, error, given

    def parts(self) -> dict[str, Part]:
        wrong = f"<p class='error' role='alert'>{escape(self.error)}</p>" if self.error else ""
        endings = ",".join(KINDS)
        drop = (
            f"<div class='drop' data-drop data-largest='{LARGEST}'><label>Drop a table, arrays or a zip of images "
            f"here, or choose a file <input type='file' accept='{endings}'></label>"
            "<p class='note' role='status'></p></div>"
        )
        names = "".join(f"<option value='{escape(name)}'>" for name in catalogue("sources"))
        name = (
            "<form method='post' action='/open' class='controls'><label>Or the path of a file, of a folder of images, "
            "or the name of a source <input name='data' list='sources' required size='40' "
            f"value='{escape(self.given)}'></label><datalist id='sources'>{names}</datalist> "
            "<button class='act'>Open</button>"
            "<p class='first'>For a first look: "
            "<button class='act' name='data' value='bikes' formnovalidate>bikes</button> is a table, "
            "<button class='act' name='data' value='digits' formnovalidate>digits</button> are small images; both are "
            "embedded.</p></form>"
        )
        rows = [
            [link(f"/start/{each.id}", each.title), f"<code>{shorten(each.data, 70)}</code>"] for each in self.opened
        ]
        before = f"<h2>Opened before</h2>{table('Opened before', ['Name', 'Data'], rows)}" if rows else ""
        return {"open": wrong + drop + name, "before": before}


class StartSearch(View):
    """One set of data: what it holds, the form, and the plan, which follows the form."""

    place, is_live = "/start", False

    def __init__(self, plans: Plans, opened: Opened, given: Mapping[str, str]) -> None:
        self.plans, self.opened, self.given = plans, opened, given
        self.title = f"Search: {opened.title}"

    def parts(self) -> dict[str, Part]:
        trouble, shown, columns = "", "", list[str]()
        choice = Choice(self.opened)
        try:
            shown, columns = describe_data(self.opened)
            choice = Choice.read(self.opened, self.given)
        except UserError as error:
            trouble = f"<p class='error' role='alert'>{escape(str(error))}</p>"
        same = "" if trouble else command(shlex.join(["isthmus", *choice.words]))
        return {
            "form": self._form(choice, columns),
            "same": f"<p class='note'>The same in a terminal:</p>{same}" if same else "",
            "plan": trouble or self._plan(choice),
            "data": shown,
        }

    def _form(self, choice: Choice, columns: list[str]) -> str:
        is_numbered = self.opened.data.lower().endswith(".npy")
        targets = {"": "chosen by Isthmus"} | {name: f"column {name}" * is_numbered or name for name in columns}
        if choice.target and choice.target not in targets:
            targets[choice.target] = choice.target
        tasks = {"": "by the target"} | {name: name for name in catalogue("tasks")}
        fields = _select("target", "Predict", targets, choice.target) if columns or choice.target else ""
        fields += _select("task", "Task", tasks, choice.task)
        fields += _text("budget", "At most so many parameters", choice.budget) + _text(
            "within", "Within", choice.within
        )
        path = f"/start/{self.opened.id}"
        return (
            f"<form class='fields' method='get' action='{path}' data-follow>{fields}"
            f"<button class='act unscripted'>Update the plan</button> "
            f"<button class='act strong' formmethod='post' formaction='{path}'>Start the search</button></form>"
        )

    def _plan(self, choice: Choice) -> str:
        future = self.plans.find(choice)
        if not future.done():
            return "<h2>Plan</h2><p role='status' data-again>Isthmus is reading the data …</p>"
        error = future.exception()
        if error is not None:
            text = str(error) if isinstance(error, UserError) else f"unexpected error: {type(error).__name__}: {error}"
            return f"<h2>Plan</h2><p class='error' role='alert'>{escape(text)}</p>"
        return f"<h2>Plan</h2>{describe_plan(future.result(), choice)}"


def describe_plan(plan: Plan, choice: Choice) -> str:
    rows = ", ".join(f"{number:,} {'training' if name == 'train' else name}" for name, number in plan.rows.items())
    how = f"cross-validated with {plan.folds} folds" if plan.folds else "compared on validation rows"
    sizes = f"{magnitude(plan.sizes[0])} to {magnitude(plan.sizes[-1])}" if plan.sizes else "no"
    said = [
        f"{plan.title}: {rows} rows.",
        f"It begins with {count(len(plan.sizes), 'network')} of {sizes} parameters, {how}; the better ones are trained "
        "for longer, and the best one on all rows but the test rows.",
        f"It ends after {choice.within} or earlier, and takes every core of this machine, at most 8.",
    ]
    lines = [*(escape(text) for text in said), *(mark_code(text) for text in (*plan.words, *plan.findings))]
    shown = "".join(f"<img src='{each}' alt='image {number}'>" for number, each in enumerate(plan.pictures, 1))
    shown = f"<h2>Images</h2><div class='thumbnails'>{shown}</div>" if shown else ""
    return f"<ul class='facts'>{''.join(f'<li>{line}</li>' for line in lines)}</ul>{shown}"


def _select(name: str, label: str, options: Mapping[str, str], chosen: str) -> str:
    each = "".join(
        f"<option value='{escape(value)}'{' selected' * (value == chosen)}>{escape(text)}</option>"
        for value, text in options.items()
    )
    return f"<label>{label} <select name='{name}'>{each}</select></label> "


def _text(name: str, label: str, value: str) -> str:
    return f"<label>{label} <input name='{name}' value='{escape(value)}' size='8' required></label> "


def describe_data(opened: Opened) -> tuple[str, list[str]]:
    """What the data hold, as HTML, and the names that can be predicted."""
    from isthmus.sources.table import write_bikes

    path = write_bikes() if opened.data == "bikes" else opened.path
    if path is None:
        return f"<h2>Data</h2><p>{escape(meaning('sources', opened.data))}</p>", []
    if not path.exists():
        raise UserError(f"{path} is not there any more")
    if opened.kind == "images":
        return _describe_images(opened), []
    if opened.kind == "arrays":
        shapes = read_shapes(path)
        rows = [[escape(name or "the only array"), escape(str(shape))] for name, shape in shapes.items()]
        names = [name for name in shapes if name]
        if not names and len(sizes := shapes[""].sizes) == 2:  # a column of the only array is predicted, by its number
            names = [str(number) for number in range(min(sizes[1], _MOST_COLUMNS))]
        return f"<h2>Arrays</h2>{table('Arrays', ['Name', 'Shape and type'], rows)}", names
    return _describe_table(path)


def _describe_images(opened: Opened) -> str:
    from isthmus.sources.image_folder import look_at

    assert opened.path is not None
    facts = look_at(opened.path)
    classes = ", ".join(facts.classes[:20]) + (" …" if len(facts.classes) > 20 else "")
    pictures = list_pictures(opened.path, PICTURES)
    shown = "".join(
        f"<img src='/start/{opened.id}/pictures/{number}' alt='{escape(path.parent.name)}: {escape(path.name)}'>"
        for number, path in enumerate(pictures)
    )
    kinds = f"{len(facts.classes)} classes: {escape(classes)}" if len(facts.classes) > 1 else "no classes"
    grey = "grey" if facts.are_grey else "coloured"
    return f"<h2>Images</h2><p>{grey}, about {facts.side} pixels; {kinds}</p><div class='thumbnails'>{shown}</div>"


def _describe_table(path: Path) -> tuple[str, list[str]]:
    import pyarrow.compute as compute

    from isthmus.sources import cells
    from isthmus.sources.dialects import read_frame

    frame = read_frame(path)
    found, names = frame.table, [str(name) for name in frame.table.column_names]
    rows = []
    for name in names[:_MOST_COLUMNS]:
        column = found[name]
        texts = cells.texts(column)
        examples = list(dict.fromkeys(str(value) for value in texts.slice(0, 50).to_pylist() if value is not None))
        rows.append(
            [
                shorten(name),
                escape(cells.recognise(column).kind),
                f"{compute.count_distinct(texts).as_py():,}",
                f"{texts.null_count:,}",
                escape(", ".join(example[:30] for example in examples[:_EXAMPLES])),
            ]
        )
    heads = ["Column", "Kind", "Different", "Missing", "Such as"]
    more = f"<p>and {len(names) - _MOST_COLUMNS:,} more columns</p>" if len(names) > _MOST_COLUMNS else ""
    title = f"{count(found.num_rows, 'row')}, {count(len(names), 'column')}"
    return f"<h2>{title}</h2>{table('Columns', heads, rows, (2, 3))}{more}", names
