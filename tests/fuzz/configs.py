"""Mutated configs of recipes and of small studies, through `isthmus train` and `isthmus study` until training begins.

Wrong: an accepted config that does not hold a value as it was given, that has another run id after it was written and
read again, a candidate that breaks a condition, a metric outside its range, or one that depends on a table's units.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import math
import operator
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast
from unittest import mock

import numpy as np
import yaml
from PIL import Image

from isthmus.core.config import RunConfig, StudyConfig, read_settings, run_config, study_config
from isthmus.core.errors import UserError
from isthmus.core.registry import catalogue, find
from isthmus.core.train_config import TrainConfig
from isthmus.core.units import amount
from isthmus.studies.plan import Plan
from isthmus.training.prepare import Options, Prepared
from isthmus.training.prepare import prepare as prepare_run
from isthmus.training.run import run
from tests.fuzz.cases import Failure, call

COUNT, AT_ONCE, SECONDS = 5_000, 25, 60.0
_UNITS, _TRAINED = 100, 20
"""Every so many cases, a table in other units, and an accepted config that is trained."""

TINY: dict[str, Any] = {
    "source": {"name": "digits"}, "task": {"name": "denoise"}, "train": {"epochs": 1, "batch_size": 400}, "threads": 1,
    "model": {"name": "hourglass_mlp", "d_z": 70, "d_h": 8, "depth": 1},
}  # fmt: skip
SPACE = {"model": {"name": "hourglass_mlp"}, "vary": {"d_z": [65, 70], "d_h": [4, 8], "depth": {"low": 1, "high": 2}}}
STUDY: dict[str, Any] = {
    "name": "fuzz", "base": {name: value for name, value in TINY.items() if name != "model"}, "spaces": [SPACE],
    "sampling": {"name": "random", "candidates": 4},
}  # fmt: skip
DATA: dict[str, list[dict[str, Any]]] = {
    "regression": [{"name": "arrays", "path": "table.npz", "targets": "y"}],
    "classification": [{"name": "digits"}, {"name": "image_folder", "path": "pictures"}],
    "sudoku": [{"name": "sudoku", "train": 4, "validation": 2, "test": 2}],
}
"""Small data for each task; the others take digits."""

DEEP = functools.reduce(lambda inner, _: [inner], range(60), cast("Any", 1))
HOSTILE: list[Any] = [
    None, True, False, 0, -1, 1, 2, 3, 7, 0.5, 1e-3, -0.0, 5e-324, 1e308, math.nan, math.inf, -math.inf, 2**31,
    2**63 - 1, 2**63, 2**64, 10**30, 10**400, "", " ", "1", "1e-3", "1_000", "0x10", "٣", "nan", "inf", "None", "null",
    "true", "yes", "x" * 5_000, "a\nb", "\x00", "\x1b[31mred", "[/x]", "[bold]x", "ünï", "名前", "🦆", "\u202eabc",
    "\ud800", "%s %q", "{0}", "../../x", "/dev/zero", "~nobody/x", "con fig", [], {}, [[]], {"": 1}, {"name": "digits"},
    [1, "a", None], [0.9, 0.99], DEEP, list(range(3_000)), {str(i): i for i in range(300)},
]  # fmt: skip
CONDITIONS = [
    "d_z > d_in", "d_h < d_z / 2", "params <= 2M", "'%q' % d_z > 1", "1 < " + "+".join(["d_z"] * 980), "d_z",
    "d_z > 1 #",
    "'x' * 10**11 > 1", "d_h % 0 == 1", "d_h / 0 > 1", "9" * 5_000 + " > d_z", "d_z < nothing", "d_z < d_z < d_z",
    "__import__('os')", "(" * 500 + "d_z" + ")" * 500 + " > 1", "d_z > 1e999", "d_h * 10**400 > 1", "d_h > 'a'", "",
    "name > 1", "d_z == 2 ** 999999999", "[d_z] > [1]", "d_z if d_z else d_h", "d_z > ~1", "not d_z", "d_z > 1.5e3k",
    "d_z > 1\nd_h > 1", "d_h * " * 90 + "d_h > 0", "d_h < True", "init < 2", "-d_z < 0", "d_z != d_h",
]  # fmt: skip
COMPARE: dict[str, Callable[[Any, Any], bool]] = {"<": operator.lt, ">=": operator.ge, "!=": operator.ne}
Trick = Callable[[str], str | bytes]
YAML_TRICKS: list[Trick] = [
    lambda text: text + "seed: 1\nseed: 2\n",
    lambda text: text + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}' if i else '1'] * 10)}]\n" for i in range(10)),
    lambda text: text + "seed: !!python/object/apply:os.system [true]\n",
    lambda text: text + "seed: !!binary aGk=\n",
    lambda text: text + "seed: 2001-01-01\n",
    lambda text: text + "? [a, b]\n: 1\n",
    lambda text: text + "seed: &s [*s]\n",
    lambda text: text + "<<: [1, 2]\n",
    lambda text: text + "---\n" + text,
    lambda text: "\ufeff" + text.replace("\n", "\r\n"),
    lambda text: text.replace("  ", "\t"),
    lambda text: "%YAML 9.9\n---\n" + text,
    lambda text: text + "seed: 1:30\n",
    lambda text: text + "seed: 0o17\n",
    lambda text: text + "x: " + "[" * 3_000,
    lambda text: text + "x: " + "9" * 200_000 + "\n",
    lambda text: text + "\x07",
    lambda text: text[: len(text) // 2],
    lambda text: "",
    lambda text: "- 1\n- 2\n",
]
JSON_TRICKS: list[Trick] = [
    lambda text: text.replace("{", '{"seed": 1, "seed": 2, ', 1),
    lambda text: text.replace("{", '{"seed": NaN, ', 1),
    lambda text: text.replace("{", '{"seed": 1e999, ', 1),
    lambda text: text.replace("{", '{"seed": ' + "9" * 6_000 + ", ", 1),
    lambda text: text.replace("{", '{"x": ' + "[" * 100_000, 1),
    lambda text: "\ufeff" + text,
    lambda text: text + text,
    lambda text: text[:-2],
    lambda text: json.dumps(text),
    lambda text: f"[{text}]",
]
ENCODINGS: list[Trick] = [
    lambda text: text.encode("utf-16", "surrogatepass"),
    lambda text: b"\xff\xfe\x00" + text.encode("utf-8", "surrogatepass"),
    lambda text: text.encode("utf-8", "surrogatepass") + b"\x00",
]
TWICE = (YAML_TRICKS[0], JSON_TRICKS[0])
"""What gives a field twice must be refused: one of the two would be ignored."""


class Held(BaseException):
    """Training is about to begin; no ``except Exception`` keeps it."""

    def __init__(self, what: Any) -> None:
        self.what = what


@functools.cache
def recipes() -> list[tuple[str, dict[str, Any]]]:
    """The settings of every recipe, with the command that takes it."""
    found = []
    for name in catalogue("recipes"):
        config = find("recipes", name)()
        command = "train" if isinstance(config, RunConfig) else "study"
        found.append((command, config.model_dump(mode="json", exclude_defaults=True)))
    return found


def warm_up() -> None:
    """What the first of several processes would import anew for each."""

    recipes()
    prepare_run(run_config(TINY))


def prepare(store: Path) -> None:
    """Little files of data, which every case finds beside its config."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(60, 3))
    np.savez(store / "table.npz", x=x, y=x @ [1.0, -2.0, 0.5])
    for number in range(12):
        folder = store / "pictures" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), number, np.uint8)).save(folder / f"{number}.png")


def attack(number: int, draw: random.Random, store: Path) -> str:
    if number % _UNITS == 0:
        return check_units(draw)
    is_tiny = number % _TRAINED == 0
    command, settings = draw_base(draw, is_tiny)
    overrides = mutate(draw, settings)
    file, trick = deliver(draw, settings)
    words = [command, str(file), "--data-dir", str(store), "--", *overrides]
    with held():
        try:
            answer = call(*words)
        except Held as hold:
            plan = hold.what
            if trick in TWICE:
                raise Failure("wrong", f"{file} gives a field twice, and one of them is ignored") from None
            (check_run if command == "train" else check_study)(plan, {} if trick or overrides else settings)
            if command == "train" and is_tiny:
                return train(plan)
            return f"{command} accepted"
        except RecursionError as error:
            raise Failure("traceback", error) from None
    if not answer.is_refusal:
        raise Failure("wrong", f"isthmus {' '.join(words)[:300]}: exit {answer.code} and nothing was prepared")
    return f"{command} refused"


@contextlib.contextmanager
def held() -> Iterator[None]:
    """`train` and `study` stop when everything is ready."""

    def hold(prepared: Prepared, *_: Any) -> None:
        raise Held(prepared)

    def hold_study(config: StudyConfig | Plan, options: Options, *_: Any, **__: Any) -> None:
        plan = config if isinstance(config, Plan) else Plan.of(config, options)
        raise Held(plan if plan.preview else None)

    with mock.patch("isthmus.api.train.run", hold), mock.patch("isthmus.cli.complete.complete_study", hold_study):
        yield


def draw_base(draw: random.Random, is_tiny: bool) -> tuple[str, dict[str, Any]]:
    """A config to mutate: a recipe's or a small one, nearly always on data that are here and small."""
    command, settings = draw.choice([("train", TINY), ("study", STUDY)] if draw.random() < 0.5 else recipes())
    if is_tiny:
        command, settings = "train", TINY
    settings = json.loads(json.dumps(settings))
    setup = settings if command == "train" else settings["base"]
    if is_tiny and draw.random() < 0.5:
        setup["task"] = {"name": "regression"}
    if (setup["source"]["name"] != "digits" and draw.random() < 0.95) or is_tiny:
        setup["source"] = dict(draw.choice(DATA.get(setup["task"]["name"], [{"name": "digits"}])))
    return command, settings


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of everything in a nested value."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(inner, (*path, key))


def mutate(draw: random.Random, settings: dict[str, Any]) -> list[str]:
    """One to three changes in place, half of them such that the config may stay good; overrides are returned."""
    overrides = []
    is_gentle = draw.random() < 0.5
    for _ in range(draw.choice([1, 1, 2, 3])):
        *path, key = draw.choice(list(places(settings)))
        parent = functools.reduce(lambda value, part: value[part], path, cast("Any", settings))
        way = draw.random()
        if way < 0.2 and isinstance(settings.get("spaces"), list) and isinstance(settings["spaces"][0], dict):
            path, parent, key, value = ["spaces", 0], settings["spaces"][0], "where", draw_conditions(draw, is_gentle)
        elif way < 0.5 and isinstance(parent, dict):
            key, value = draw_field(draw, path, parent, is_gentle)
        elif way < 0.7 or is_gentle:
            value = vary(draw, parent[key], is_gentle)
        elif way < 0.95:
            value = copy.deepcopy(draw.choice(HOSTILE))  # a later change may be made inside it
        else:
            del parent[key]
            continue
        words = [part for part in (*path, key) if isinstance(part, str) and part and not set(part) & {".", "="}]
        if draw.random() < 0.3 and len(words) == len(path) + 1:
            text = value if isinstance(value, str) else json.dumps(value)
            overrides.append(f"{'.'.join(words)}={text}".replace("\x00", "?").replace("\ud800", "?"))
        else:
            parent[key] = value
    return overrides


def draw_field(draw: random.Random, path: list[Any], parent: dict[str, Any], is_gentle: bool) -> tuple[str, Any]:
    """A field that this part of a config has, with a value that it may take; or else one that it has not."""
    kind: Any = {"source": "sources", "task": "tasks", "model": "models"}.get(str(path[-1]) if path else "")
    config: Any = TrainConfig if path[-1:] == ["train"] else StudyConfig if "spaces" in parent else RunConfig
    if kind and str(parent.get("name")) in catalogue(kind):
        config = find(kind, parent["name"]).Config
    if not is_gentle and draw.random() < 0.3:
        return draw.choice(["", "d_y", "naem", "model.d_z", "ü", "x" * 500, "[/x]", "\x1b[2J", "__class__"]), 1
    if not is_gentle and kind and draw.random() < 0.3:
        return "name", draw.choice([*catalogue(kind), "nothing", "vit/tiny-hourglass"])
    schema = config.model_json_schema()["properties"]
    name = draw.choice(list(schema))
    parts = [part for part in (schema[name], *schema[name].get("anyOf", ())) if "type" in part or "enum" in part]
    fitting = [value for part in parts for value in (*part.get("enum", ()), *PLAUSIBLE.get(part.get("type", ""), ()))]
    anything = [value for values in PLAUSIBLE.values() for value in values]
    return name, draw.choice(fitting if is_gentle and fitting else anything)


PLAUSIBLE: dict[str, list[Any]] = {
    "integer": [1, 2, 3, 4, 8, 16, "2", 4.0],
    "number": [0.0, 0.1, 0.5, 1e-3, "1e-2", 1, 0.9],
    "boolean": [True, False, "yes"],
    "array": [[1], [0.5, 0.9], [0, 1]],
    "null": [None],
}


def vary(draw: random.Random, value: Any, is_gentle: bool) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value if is_gentle else draw.choice([value, [value], {"name": value}, str(value), None])
    ways = [value, value * 2, value // 2, value + 1, str(value), float(value)]
    return draw.choice(ways if is_gentle else [*ways, -value, value + 0.5, [value], f"{value}k", value * 10**9])


def draw_conditions(draw: random.Random, is_gentle: bool) -> Any:
    left, sign, right = (
        draw.choice(["d_z", "d_h", "depth"]),
        draw.choice(list(COMPARE)),
        draw.choice(["d_h", "2", "70"]),
    )
    conditions = [f"{left} {sign} {right}", draw.choice(CONDITIONS)]
    if is_gentle:
        return conditions[:1]
    return draw.choice([conditions, conditions[1:], conditions[1], [1], conditions * 300])


def deliver(draw: random.Random, settings: dict[str, Any]) -> tuple[Path, Trick | None]:
    """The config in a file, and the trick that was played on its text, if one was."""
    is_json = draw.random() < 0.5
    file = Path("config.json" if is_json else draw.choice(["config.yaml", "config.yml"]))
    text = json.dumps(settings) if is_json else yaml.safe_dump(settings, sort_keys=False)
    trick = draw.choice([*(JSON_TRICKS if is_json else YAML_TRICKS), *ENCODINGS]) if draw.random() < 0.1 else None
    content = trick(text) if trick else text
    file.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
    return file, trick


def check_run(prepared: Prepared, given: dict[str, Any]) -> None:
    """It holds what was given, and is the same run after its config was written and read again."""
    check_given(prepared.config, given)
    complete = prepared.config.model_dump(mode="json")
    for name, text in (("again.json", json.dumps(complete)), ("again.yaml", yaml.safe_dump(complete))):
        Path(name).write_text(text, encoding="utf-8")
        again = prepare_run(run_config(read_settings(Path(name))), data=prepared.data)
        if again.id != prepared.id or again.config != prepared.config:
            raise Failure("wrong", f"{prepared.id} is {again.id} after {name}: {text[:500]}")


def check_study(plan: Plan, given: dict[str, Any]) -> None:
    """Likewise; and no candidate is outside its space."""
    check_given(plan.config, given)
    Path("again.json").write_text(json.dumps(plan.config.model_dump(mode="json")), encoding="utf-8")
    again = Plan.of(study_config(read_settings(Path("again.json"))), plan.options)
    if again.identity != plan.identity or [p.key for p in again.preview] != [p.key for p in plan.preview]:
        raise Failure("wrong", f"another study after it was written and read: {plan.identity}")
    listed = [model.model_dump(mode="json") for model in plan.config.candidates]
    for proposal in plan.preview:
        model = proposal.model.model_dump(mode="json") | {
            f"train.{name}": value for name, value in proposal.recipe.items()
        }
        if not any(all(model[key] == value for key, value in one.items() if value is not None) for one in listed):
            spaces = [space for space in plan.config.spaces if is_inside(model, space.model_dump(mode="json"))]
            if not spaces:
                raise Failure("wrong", f"{model} is in no space of {plan.config.spaces}")


def is_inside(model: dict[str, Any], space: dict[str, Any]) -> bool:
    """Read off independently of the package, as far as conditions are as plain as those drawn here."""
    if not all(is_same(value, model.get(name)) for name, value in space["model"].items() if "/" not in str(value)):
        return False
    for name, values in space["vary"].items():
        if isinstance(values, dict):
            values = [model[name]] if values["low"] <= model[name] <= values["high"] else []
        if not any(is_same(value, model[name]) for value in values):
            return False
    for text in space["where"]:
        left, _, rest = text.partition(" ")
        sign, _, right = rest.partition(" ")
        if left in model and sign in COMPARE and (right.isdecimal() or right in model):
            number = int(right) if right.isdecimal() else model[right]
            if not COMPARE[sign](model[left], number):
                return False
    return True


DECIDED_BY_TASK = ("d_in", "d_out", "input_shape", "output_shape")


def check_given(config: Any, given: dict[str, Any]) -> None:
    """Every value of the file stands in the config; overrides are drawn for other fields or replace some."""
    found = config.model_dump(mode="json")
    for path in places(given):
        value, held_value = (functools.reduce(step, path, cast("Any", tree)) for tree in (given, found))
        if isinstance(value, dict | list) or path[-1] == "name" or held_value is MISSING:
            continue
        # Of what the task decides, null is as good as nothing.
        if not is_same(value, held_value) and not (value is None and path[-1] in DECIDED_BY_TASK):
            raise Failure("wrong", f"{'.'.join(map(str, path))}: {value!r} was given, and {held_value!r} is used")


MISSING = object()


def step(value: Any, part: Any) -> Any:
    if isinstance(value, dict):
        return value.get(part, MISSING)
    return value[part] if isinstance(value, list) and isinstance(part, int) and part < len(value) else MISSING


def is_same(given: Any, held_value: Any) -> bool:
    """Equal as a person would say: ``"1e-3"`` is 0.001, ``200k`` is 200000, ``yes`` is true, 3 may name a column."""
    if isinstance(held_value, bool) or isinstance(given, bool):
        return str(given).lower() in (("true", "yes", "on", "t", "y", "1", "1.0") if held_value is True else
                                      ("false", "no", "off", "f", "n", "0", "0.0", "-0.0"))  # fmt: skip
    if isinstance(held_value, list):
        return held_value in ([given], [str(given)])
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        return float(amount(given)) == float(amount(held_value))
    return bool(given == held_value) or (held_value is None and given == "None")


def train(prepared: Prepared) -> str:
    """Of a few: the record says what happened, and metrics are within their ranges."""
    config = prepared.config
    if prepared.cost.params > 100_000 or config.train.epochs > 4 or config.train.devices > 1 or config.threads > 2:
        return "train accepted"
    try:
        record = run(prepared, Options())
    except UserError:
        return "training refused"
    if run(prepared, Options()) != record:
        raise Failure("wrong", f"{record.id} has another record when it is looked up")
    for split, metrics in record.metrics.items():
        for name, value in metrics.items():
            if not math.isfinite(value) or ("accuracy" in name and not 0 <= value <= 1) or (name == "r2" and value > 1):
                raise Failure("wrong", f"{split} {name} is {value}")
    return f"training {record.status}"


def check_units(draw: random.Random) -> str:
    """R² is the same where inputs or targets are in other units: to the bit for a power of two."""
    rows, features, base = draw.randint(30, 80), draw.randint(1, 4), np.random.default_rng(draw.randrange(2**32))
    x = base.normal(size=(rows, features)) * 10.0 ** draw.uniform(-3, 3)
    y = (x / x.std()) @ base.normal(size=features) + base.normal(size=rows) * draw.choice([0.0, 0.1, 1.0])
    size = {"d_z": features + draw.randint(4, 8), "d_h": draw.randint(1, 4), "depth": draw.randint(1, 2)}
    model = {"name": "hourglass_mlp"} | size
    train_settings = {"epochs": draw.randint(1, 3), "batch_size": draw.choice([8, 16, 64])}
    factors = {
        "as it is": 1.0,
        "a power of two": 2.0 ** draw.randint(-45, 45),
        "a power of ten": 10.0 ** draw.randint(-15, 15),
    }
    scaled = draw.choice(["x", "y"])
    found: dict[str, dict[str, float]] = {}
    for name, factor in factors.items():
        np.savez("scaled.npz", x=x * factor if scaled == "x" else x, y=y * factor if scaled == "y" else y)
        source = {"name": "arrays", "path": str(Path("scaled.npz").resolve()), "targets": "y", "kind": "regression"}
        settings = TINY | {"source": source, "task": {"name": "regression"}, "model": model, "train": train_settings}
        metrics = run(run_config(settings), Options()).metrics
        found[name] = {split: metrics[split]["r2"] for split in metrics}
    for split, value in found["as it is"].items():
        two, ten = found["a power of two"][split], found["a power of ten"][split]
        if two != value or abs(ten - value) > 1e-5 * max(1.0, abs(value)):
            raise Failure(
                "wrong", f"{split} r2 with {scaled} times 1, {list(factors.values())[1:]}: {value}, {two}, {ten}"
            )
    return "table in other units"
