"""Design a network: its fields as sliders, drawn to scale, with what it costs, and trained at the press of a button."""

from __future__ import annotations

import itertools
import json
import math
import re
import shlex
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl, urlencode

from isthmus.core.config import override, run_config
from isthmus.core.errors import UserError, nearest
from isthmus.core.fields import read_meanings
from isthmus.core.files import digest, make_folder, write_json
from isthmus.core.registry import component, find, meaning, model_title, presets
from isthmus.core.space import amount
from isthmus.reports.drawing import draw_network, widest_layer
from isthmus.reports.sections import name_problem
from isthmus.reports.text import architecture_title, duration, magnitude
from isthmus.studio.index import Index, Run, problem_key
from isthmus.studio.layout import Part, View, command

if TYPE_CHECKING:
    from isthmus.core.protocols import ModelConfig, Signature

EMBEDDED = (
    ("digits", "classification"), ("digits", "denoise"), ("mnist5k", "denoise"), ("bikes", "regression"),
    ("sudoku", "sudoku"),
)  # fmt: skip
"""Problems that every home has."""
_KNOWN_PROBLEMS = 20
_OF_THE_TASK = frozenset({"name", "d_in", "d_out", "input_shape", "output_shape", "vocabulary", "allow_any_shape"})
_TRAINING = {"epochs": "20", "batch_size": "128", "learning_rate": "0.001"}
_FIRST_BUDGET = 50_000
_PACE_BUDGETS = (10_000, 50_000)
_MOST_BLOCKS = 2_000
"""Blocks times iterations that are counted; deeper networks would take seconds."""
_STEPS, _WARM_UP, _PACE_BATCH = 9, 2, 32
_MOST_SECONDS = 0.5
"""Time for the measured steps of one network."""


@dataclass(frozen=True)
class Problem:
    """A source and a task, and what the task asks of a network."""

    key: str
    title: str
    config: Mapping[str, Any]
    run: Path | None = None
    """A finished run, whose task knows the shapes without the data."""


def list_problems(index: Index) -> list[Problem]:
    """The problems of finished runs, the latest first, and the embedded ones."""
    found: dict[str, Problem] = {}
    for run in itertools.islice(index.newest(), 1000):
        if run.record and run.record.status == "finished" and run.problem not in found:
            found[run.problem] = _of_run(run)
            if len(found) == _KNOWN_PROBLEMS:
                break
    for source, task in EMBEDDED:
        config = {
            "source": component("sources", {"name": source}).model_dump(mode="json"),
            "task": component("tasks", {"name": task}).model_dump(mode="json"),
        }
        key = problem_key(config)
        found.setdefault(key, Problem(key, name_problem(config), config))
    return list(found.values())


def _of_run(run: Run) -> Problem:
    config = {name: run.config[name] for name in ("source", "task")}
    source = {name: value for name, value in config["source"].items() if name not in ("fold", "folds")}
    return Problem(run.problem, name_problem(config), config | {"source": source}, run.folder)


@cache
def find_signature(key: str, config: str, run: Path | None) -> Signature:
    """The shapes of a problem, from a run's task or from its data."""
    from isthmus.training.loading import load_task
    from isthmus.training.run import learn_task, load_data

    if run is not None:
        return load_task(run).signature
    parts = json.loads(config)
    data = load_data(component("sources", parts["source"]))
    return learn_task(component("tasks", parts["task"]), data).signature


def signature_of(problem: Problem) -> Signature:
    return find_signature(problem.key, json.dumps(problem.config), problem.run)


def _is_usable(problem: Problem) -> bool:
    """Whether its shapes are known; the embedded problems always are."""
    try:
        return bool(_spaces(signature_of(problem)))
    except UserError:
        return False


@cache
def _spaces(signature: Signature) -> dict[str, Any]:
    """The architectures that fit a problem, each with what a search varies."""
    from isthmus.studies.budget import declared_spaces

    found: dict[str, Any] = {}
    for budget in (_FIRST_BUDGET, 50 * _FIRST_BUDGET):
        for space in declared_spaces(signature, budget):
            found.setdefault(space.model["name"], space)
    return found


@cache
def first_settings(signature: Signature, name: str, budget: int) -> dict[str, Any]:
    """The most promising network of an architecture within a budget, or within the next larger one that has any."""
    from isthmus.studies.budget import fit_widths

    space = _spaces(signature)[name]
    for enough in (budget, 10 * budget, 100 * budget, 1000 * budget):
        for shape in space.shapes()[:8]:
            fitted = fit_widths(space, shape, signature, [enough])[0]
            if fitted is not None:
                return dict(fitted.model)
    raise UserError(f"{name} has no network for this problem; choose another architecture")


@dataclass(frozen=True)
class Design:
    """A network for a problem."""

    model: ModelConfig
    given: Mapping[str, Any]
    """The settings as they are typed."""

    @property
    def title(self) -> str:
        return model_title(self.model.model_dump(mode="json"))


def read_design(signature: Signature, name: str, texts: Mapping[str, str]) -> Design:
    """The network that fields describe; fields that are left out are those of the most promising network."""
    known = find("models", name).Config.model_fields
    settings = {"name": name} | first_settings(signature, name, _FIRST_BUDGET)
    # A field of the form that is empty has its default.
    fields = {key: value for key, value in texts.items() if key in known and key not in _OF_THE_TASK}
    settings = {key: value for key, value in settings.items() if fields.get(key, "x") != ""}
    settings = override(settings, [f"{key}={value}" for key, value in fields.items() if value != ""])
    model = cast("ModelConfig", component("models", settings)).complete(signature, 0)
    blocks, iterations = _depth_of(model)
    if blocks * iterations > _MOST_BLOCKS:
        raise UserError(
            f"{blocks} blocks × {iterations} iterations are too many to count; the limit is {_MOST_BLOCKS:,}"
        )
    return Design(model, settings)


def _depth_of(model: Any) -> tuple[int, int]:
    layout = getattr(model, "layout", None)
    if layout is None:
        return getattr(model, "depth", 1), 1
    return len(layout.blocks), max(1, layout.iterations)


def fit_to_budget(signature: Signature, design: Design, budget: int) -> dict[str, Any]:
    """The same network with the largest width within a budget; widths that a search keeps in proportion stay so."""
    from isthmus.studies.budget import find_largest
    from isthmus.training.counting import count_params

    space = _spaces(signature)[design.model.name]
    ratios = [name.partition("/") for name in space.vary if "/" in name]
    width = getattr(design.model, space.width)
    first = -(-space.low // space.step)

    def widen(number: int) -> dict[str, Any]:
        wide = (first + number - 1) * space.step
        scaled = {field: max(1, round(wide * getattr(design.model, field) / width)) for field, _, _ in ratios}
        return dict(design.given) | {space.width: wide} | scaled

    def count(number: int) -> float:
        try:
            return count_params(cast("ModelConfig", component("models", widen(number))).complete(signature, 0))
        except UserError:
            return math.inf

    number = find_largest(count, budget)
    if not number:
        raise UserError(f"no width of {design.model.name} fits {budget:,} parameters; reduce another field")
    return widen(number)


@dataclass(frozen=True)
class Price:
    """What a design costs."""

    params: int
    macs: int
    memory: float
    """Bytes of a training: weights, gradients, two moments, the best weights, and what a batch keeps."""
    step: float
    """Seconds of a training step on one core of this machine, predicted."""


def price(signature: Signature, design: Design, batch: int) -> Price:
    from isthmus.training.counting import cost, count_kept

    counted, kept = cost(design.model), count_kept(design.model)
    memory = 16.0 * counted.trainable_params + 4.0 * counted.params + 4.0 * batch * kept.saved_values
    pace = measure_pace(signature, design.model.name)
    return Price(counted.params, counted.macs, memory, pace[0] + pace[1] * batch * counted.training_flops)


_PACES: dict[tuple[Any, str], tuple[float, float]] = {}
_MEASURING = threading.Lock()


def measure_pace(signature: Signature, name: str) -> tuple[float, float]:
    """Seconds of a step on one core: a constant, and a part per floating-point operation, by two measured networks."""
    with _MEASURING:
        if (signature, name) not in _PACES:
            points = [_time_step(signature, first_settings(signature, name, budget)) for budget in _PACE_BUDGETS]
            (low, fast), (high, slow) = points
            slope = (slow - fast) / (high - low) if high > low and slow > fast else slow / high
            _PACES[signature, name] = max(0.0, slow - slope * high), slope
        return _PACES[signature, name]


def _time_step(signature: Signature, settings: Mapping[str, Any], batch: int = _PACE_BATCH) -> tuple[float, float]:
    """The floating-point operations of a step of AdamW, and the seconds that it takes."""
    import torch

    from isthmus.training.counting import cost, example_input
    from isthmus.training.run import arithmetic

    config = cast("ModelConfig", component("models", settings)).complete(signature, 0)
    with arithmetic(1):
        model = find("models", config.name)(config)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        x, times = example_input(model, batch), list[float]()
        while len(times) <= _WARM_UP or (len(times) < _STEPS and sum(times) < _MOST_SECONDS):
            began = time.perf_counter()
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            times.append(time.perf_counter() - began)
    return float(batch * cost(config).training_flops), statistics.median(times[_WARM_UP:])


def sketch(model: Any) -> dict[str, Any]:
    """The sizes that a drawing needs: the stream, the widest layer that reads it, blocks and iterations."""
    settings: dict[str, Any] = model.model_dump(mode="json")
    if {"d_z", "d_h", "depth"} <= settings.keys():
        return settings
    layout = getattr(model, "layout", None)
    if layout is None:
        return {}
    return {
        "d_z": layout.width, "d_h": _hidden_width(model, layout.width), "depth": len(layout.blocks),
        "iterations": layout.iterations, "pathway": settings.get("pathway"),
    }  # fmt: skip


@cache
def _hidden_width(model: Any, stream: int) -> int:
    import torch
    from torch import nn

    with torch.device("meta"):
        built = find("models", model.name)(model)
    inner = [
        module.out_features
        for name, module in built.named_modules()
        if isinstance(module, nn.Linear) and module.in_features == stream and "head" not in name
    ]
    return max(inner, default=stream)


class Designer(View):
    """The page: a form of fields, and beside it the network and its costs."""

    title, place, is_live = "Design a network", "/design", False

    def __init__(self, index: Index, given: Mapping[str, str]) -> None:
        self.given = dict(given)
        self.problems = list_problems(index)
        chosen = [problem for problem in self.problems if problem.key == given.get("problem")]
        if given.get("problem") and not chosen:
            raise UserError("this problem is not there any more; choose another")
        self.problem = chosen[0] if chosen else next(filter(_is_usable, self.problems))

    def parts(self) -> dict[str, Part]:
        try:
            signature = signature_of(self.problem)
            names = list(_spaces(signature))
            if not names:
                raise UserError("no architecture declares networks for this problem; choose another one")
        except UserError as error:
            chosen = f"<form method='get' action='/design'><div class='fields'>{self._choose_problem()}</div></form>"
            return {
                "form": f"{chosen}<p class='error' role='alert'>{escape(str(error))}</p>",
                "network": "",
                "same": "",
            }
        name = self.given.get("model") or names[0]
        if name not in names:
            raise UserError(f"{name[:60]!r} does not fit this problem; {nearest(name, names)}")
        trouble = ""
        try:
            design = read_design(signature, name, self.given)
            if self.given.get("fit"):
                design = self._fit(signature, name, design)
        except UserError as error:
            trouble, design = str(error), read_design(signature, name, {})
        form = self._form(signature, names, design)
        if trouble:
            return {"network": f"<p class='error' role='alert'>{escape(trouble)}</p>", "form": form, "same": ""}
        return {"network": self._compare(signature, design), "form": form, "same": self._same(design)}

    def _fit(self, signature: Signature, name: str, design: Design) -> Design:
        budget = amount(self.given["fit"])
        if not isinstance(budget, int) or budget < 1:
            raise UserError(f"{self.given['fit'][:60]!r} is not a number of parameters; give one such as 50k")
        fitted = fit_to_budget(signature, design, budget)
        return read_design(signature, name, {key: _type(value) for key, value in fitted.items()})

    def _form(self, signature: Signature, names: Sequence[str], design: Design) -> str:
        models = {name: f"{architecture_title(name)} – {meaning('models', name)}" for name in names}
        chosen = self._choose_problem()
        chosen += choose("model", "Architecture", models, design.model.name, "data-reload")
        fields = "".join(_control(design, name, schema) for name, schema in _schema(design.model).items())
        training = "".join(
            number(name, name.replace("_", " "), self.given.get(name, default)) for name, default in _TRAINING.items()
        )
        other = self.given.get("other", "")
        hidden = f"<input type='hidden' name='other' value='{escape(other)}'>" if other else ""
        return (
            f"<form class='design' method='get' action='/design' data-follow>{hidden}"
            f"<div class='fields'>{chosen}</div>"
            f"<fieldset><legend>Network</legend><div class='sliders'>{fields}</div></fieldset>"
            f"<fieldset><legend>Training</legend><div class='fields'>{training}</div></fieldset>"
            "<p><button class='act'>Update</button> "
            "<button class='act strong' formmethod='post' formaction='/design/train'>Train this</button></p></form>"
            "<form class='fields' method='get' action='/design' data-with='form.design'>"
            f"{number('fit', 'Parameters', self.given.get('fit', ''), kind='text')}"
            f"{self._carry(design)}<button class='act'>Fit to this budget</button></form>"
        )

    def _choose_problem(self) -> str:
        problems = {problem.key: problem.title for problem in self.problems}
        return choose("problem", "Problem", problems, self.problem.key, "data-reload")

    def _carry(self, design: Design) -> str:
        """The fields of the design in another form, for browsers without scripts."""
        return "".join(
            f"<input type='hidden' name='{escape(name)}' value='{escape(value)}'>"
            for name, value in self._query(design).items()
        )

    def _query(self, design: Design) -> dict[str, str]:
        known = {"problem": self.problem.key, "model": design.model.name}
        known |= {name: _type(value) for name, value in design.given.items() if name != "name"}
        known |= {name: self.given[name] for name in (*_TRAINING, "other") if self.given.get(name)}
        return known

    def _compare(self, signature: Signature, design: Design) -> str:
        """The design, and the one that was kept beside it, on one scale."""
        designs = {"This design": design}
        trouble = ""
        if other := self.given.get("other"):
            fields = dict(parse_qsl(other[:10_000], keep_blank_values=True, max_num_fields=200))
            try:
                designs["Kept design"] = read_design(signature, fields.get("model", ""), fields)
            except UserError as error:
                trouble = f"<p class='error'>The kept design does not fit this problem: {escape(str(error))}</p>"
        batch = _whole(self.given.get("batch_size"), 128)
        sketches = [sketch(each.model) for each in designs.values()]
        widest = max(map(widest_layer, sketches))
        prices = [price(signature, each, batch) for each in designs.values()]
        shown = "".join(
            _show(title, each, drawn, cost, widest, place)
            for place, (title, each, drawn, cost) in enumerate(
                zip(designs, designs.values(), sketches, prices, strict=True)
            )
        )
        mine = self._query(design)
        mine.pop("other", None)
        keep = urlencode(mine | {"other": urlencode(mine)})
        back = f"<a class='act' href='/design?{escape(other)}'>Go back to the kept design</a>" if other else ""
        note = (
            "Step time: predicted for one core of this machine, from two measured networks of the same architecture. "
            "Memory: weights, gradients, optimiser, best weights, and what a batch keeps for the gradient."
        )
        return (
            f"{trouble}<div class='pair'>{shown}</div><p><a class='act' href='/design?{escape(keep)}'>"
            f"Keep this design beside the next ones</a> {back}</p><p class='note'>{note}</p>"
        )

    def _same(self, design: Design) -> str:
        settings = design.model.model_dump(mode="json", exclude_defaults=True)
        words = [f"{name}={_type(value)}" for name, value in settings.items() if name != "name"]
        typed = shlex.join(["isthmus", "describe", design.model.name, *words])
        return f"<p class='note'>The same costs in a terminal:</p>{command(typed)}"


def _show(title: str, design: Design, drawn: Mapping[str, Any], cost: Price, widest: int, place: int) -> str:
    picture = draw_network(drawn, f"var(--shape-{place})", widest) if drawn else "<p>It has no residual stream.</p>"
    shown = {
        "Parameters": f"{cost.params:,}",
        "Multiply-adds per row": f"{cost.macs:,}",
        "Memory to train": magnitude(cost.memory) + "B",
        "Step": duration(cost.step) if cost.step >= 0.1 else f"{1000 * cost.step:.3g} ms",
    }
    rows = "".join(
        f"<div><dt>{name}</dt><dd><b data-number='{name.split()[0].lower()}'>{escape(text)}</b></dd></div>"
        for name, text in shown.items()
    )
    return (
        f"<div><h2>{title}</h2><p class='quiet'>{escape(design.title)}</p>"
        f"<figure>{picture}</figure><dl class='figures'>{rows}</dl></div>"
    )


def _schema(model: Any) -> dict[str, dict[str, Any]]:
    """The JSON schema of every field that a person chooses."""
    schema = type(model).model_json_schema()
    found = {}
    for name, field in schema["properties"].items():
        if name in _OF_THE_TASK or name.endswith("_seed"):
            continue
        kinds = [each for each in field.get("anyOf", [field]) if each.get("type") != "null"]
        found[name] = kinds[0] | {"optional": len(kinds) < len(field.get("anyOf", kinds))}
    return found


def _control(design: Design, name: str, schema: Mapping[str, Any]) -> str:
    """A field as a slider, a choice or a text."""
    value = getattr(design.model, name)
    meant = read_meanings(type(design.model)).get(name, "")
    if name == "pathway":
        pathways = dict.fromkeys(["plain", *presets()])
        text = _type(design.given.get("pathway", "plain"))
        return choose(name, name, {each: each for each in dict.fromkeys([text, *pathways])}, text, title=meant)
    if "enum" in schema or schema.get("type") == "boolean":
        each = schema.get("enum", ["true", "false"])
        options = {"": "default"} if schema.get("optional") else {}
        return choose(name, name, options | {str(one): str(one) for one in each}, _type(value), title=meant)
    if schema.get("type") in ("integer", "number"):
        whole = schema["type"] == "integer"
        return slider(name, value, _limits(schema, value, whole), whole, meant)
    return number(name, name, "" if value is None else _type(value), kind="text", title=meant)


def _limits(schema: Mapping[str, Any], value: Any, whole: bool) -> tuple[float, float]:
    """The ends of a slider: those of the field, as far as a person would go."""
    low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    high = schema.get("maximum", schema.get("exclusiveMaximum", math.inf))
    reach = 4 * (value or (64 if whole else 1))
    return low, min(high, max(reach, 16 if whole else 1))


def slider(name: str, value: Any, limits: tuple[float, float], whole: bool, meant: str = "") -> str:
    """A range and a number that follow each other; without scripts, the number alone counts."""
    low, high = limits
    step = "1" if whole else "any"
    shown = "" if value is None else _type(value)
    fine = "1" if whole else f"{(high - low) / 200:g}"
    return (
        f"<div class='slider'><label for='field-{name}' title='{escape(meant)}'>{escape(name)}</label>"
        f"<input type='range' data-for-field='field-{name}' min='{low:g}' max='{high:g}' step='{fine}' "
        f"value='{shown or low}' aria-label='{escape(name)}, slider'>"
        f"<input type='number' id='field-{name}' name='{escape(name)}' value='{shown}' min='{low:g}' "
        f"step='{step}'></div>"
    )


def choose(name: str, label: str, options: Mapping[str, str], chosen: str, more: str = "", title: str = "") -> str:
    each = "".join(
        f"<option value='{escape(value)}'{' selected' * (value == chosen)}>{escape(text)}</option>"
        for value, text in options.items()
    )
    return (
        f"<label class='chosen' title='{escape(title)}'>{escape(label)} "
        f"<select name='{escape(name)}' {more}>{each}</select></label> "
    )


def number(name: str, label: str, value: str, kind: str = "number", title: str = "") -> str:
    step = " step='any'" if kind == "number" else ""
    return (
        f"<label class='chosen' title='{escape(title)}'>{escape(label)} <input type='{kind}' name='{escape(name)}' "
        f"value='{escape(value)}' size='10'{step}></label> "
    )


def _type(value: Any) -> str:
    """A value as it is typed."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _whole(text: str | None, default: int) -> int:
    return int(text) if text and re.fullmatch("[0-9]{1,6}", text) and int(text) else default


@dataclass(frozen=True)
class Training:
    """A design that is to be trained."""

    words: tuple[str, ...]
    title: str
    problem: str
    run: str


def plan_training(home: Path, index: Index, given: Mapping[str, str]) -> Training:
    """Write the config of a run of the design, for `isthmus train`."""
    from isthmus.training.run import prepare

    page = Designer(index, given)
    signature = signature_of(page.problem)
    design = read_design(signature, given.get("model", ""), given) if given.get("model") in _spaces(signature) else None
    if design is None:
        raise UserError("choose an architecture")
    texts = {name: given.get(name) or default for name, default in _TRAINING.items()}
    train = override({}, [f"{name}={value}" for name, value in texts.items()])
    settings = {**page.problem.config, "model": design.given, "train": train, "threads": 1}
    config = run_config(settings)
    run = prepare(config)
    path = make_folder(home / "studio" / "configs") / f"{digest(settings, 16)}.json"
    write_json(path, json.loads(config.model_dump_json()))
    return Training(("train", str(path)), f"training: {design.title}", page.problem.key, run.id)
