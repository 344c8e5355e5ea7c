"""Maps names to classes without importing their files, for this package and for entry points of other packages.

A file of ``sources/``, ``tasks/``, ``models/``, ``pathways/``, ``costs/`` or ``recipes/`` declares its names in a
literal, which is parsed and not executed::

    NAMES = {"hourglass_mlp": "ResidualMLP"}
    MEANINGS = {"hourglass_mlp": "A residual MLP …"}  # default: the first line of the file's docstring
    KIND = "Residual MLPs"  # of models: the heading below which lists show it
    TITLE_FIELDS = ("d_z", "d_h", "depth")  # of models: the fields that distinguish its networks in lists
    PRESETS = {"gained/rezero": {"name": "gained", "start": 0.0}, "rezero": "gained/rezero"}  # of pathways
    TITLE_FIELDS = {"gained": ("start", "per")}  # of pathways: by name
    RECIPES = {"demo": demo}  # of recipes: the functions themselves; only the names are parsed

Another package declares its names in its ``pyproject.toml``, and ``TITLE_FIELDS`` in the module::

    [project.entry-points."isthmus.models"]
    my_mlp = "my_package.my_mlp:MyMLP"

An analysis is a module with a function ``of_run`` (``analysis/__init__.py``); another package names the module alone.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
import threading
import warnings
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from pydantic import ValidationError

from isthmus.core.errors import UserError, nearest
from isthmus.core.protocols import Component, Settings

if TYPE_CHECKING:
    import torch

Kind = Literal["sources", "tasks", "models", "pathways", "costs", "analyses", "recipes"]
Config = TypeVar("Config", bound=Settings)
PACKAGE = Path(__file__).parents[1]
_PARSING = threading.Lock()


def _files(kind: Kind) -> list[Path]:
    """The files that may declare names; recipes are also in the folders of papers."""
    own = sorted((PACKAGE / ("analysis" if kind == "analyses" else kind)).glob("*.py"))
    return [*own, *sorted(PACKAGE.glob("papers/*/*recipes.py"))] if kind == "recipes" else own


def _declared_names(kind: Kind, path: Path) -> dict[str, str]:
    """The names of a file, each with the attribute that holds it; an analysis has the file's name and no attribute."""
    if kind == "analyses":
        functions = [each.name for each in _statements(path) if isinstance(each, ast.FunctionDef)]
        return {path.stem: ""} if "of_run" in functions else {}
    if kind == "recipes":
        table = _find_assignment(_statements(path), "RECIPES")
        return {ast.literal_eval(key): "RECIPES" for key in table.keys if key} if isinstance(table, ast.Dict) else {}
    return cast("dict[str, str]", _literal(_statements(path), "NAMES") or {})


def _literal(statements: list[ast.stmt], name: str) -> Any:
    value = _find_assignment(statements, name)
    return value and ast.literal_eval(value)


def _find_assignment(statements: list[ast.stmt], name: str) -> ast.expr | None:
    assignments = [each for each in statements if isinstance(each, ast.Assign)]
    return next((each.value for each in assignments if ast.unparse(each.targets[0]) == name), None)


def parse_code(text: str) -> ast.Module:
    """Parsed by one thread at a time: Python 3.11 counts the depth once for all threads (cpython issue 106905)."""
    with _PARSING:
        return ast.parse(text)


def _statements(path: Path) -> list[ast.stmt]:
    return parse_code(path.read_text(encoding="utf-8")).body


@cache
def catalogue(kind: Kind) -> dict[str, str]:
    """Every registered name of a kind with its location, ``module:attribute`` or ``module:``."""
    homes: dict[str, str] = {}
    for path in _files(kind):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        homes |= {name: f"{module}:{attribute}" for name, attribute in _declared_names(kind, path).items()}
    for entry in entry_points(group=f"isthmus.{kind}"):
        if entry.name in homes:
            warnings.warn(f"{entry.value} is ignored: {entry.name!r} is taken by {homes[entry.name]}", stacklevel=2)
        else:
            homes[entry.name] = entry.value
    return dict(sorted(homes.items()))


def find(kind: Kind, name: str) -> Any:
    """Import a registered object: a class, the function of a recipe, a cost, or the module of an analysis."""
    homes, singular = catalogue(kind), "analysis" if kind == "analyses" else kind.removesuffix("s")
    if name not in homes:
        listing = f"isthmus {kind}" if kind in ("recipes", "models", "pathways", "sources", "tasks") else ""
        known = [*homes, *presets()] if kind == "pathways" else homes
        raise UserError(f"unknown {singular} {name!r}; {nearest(name, known, listing)}")
    module, _, attribute = homes[name].partition(":")
    try:
        loaded = importlib.import_module(module)
        found: Any = getattr(loaded, attribute) if attribute else loaded
        return found[name] if attribute == "RECIPES" else found
    except Exception as error:  # a plug-in may raise anything
        raise UserError(f"{singular} {name!r} cannot be loaded from {homes[name]}: {error}") from error


def component(kind: Kind, settings: Any) -> Component:
    """The validated settings of a source, task, model or pathway, from a dictionary with its name.

    A pathway may also be given by its name alone, or by that of a preset.
    """
    if isinstance(settings, Component):
        return settings
    if kind == "pathways" and isinstance(settings, str):
        settings = {"name": settings}
    if not isinstance(settings, dict) or not isinstance(settings.get("name"), str):
        raise UserError(f"a {kind.removesuffix('s')} is given as {{name: …, field: value}}, not as {_clip(settings)}")
    if kind == "models":
        settings = _expand_variant(settings)
    elif kind == "pathways":
        settings = _expand_preset(settings)
    config: type[Component] = find(kind, settings["name"]).Config
    return build_config(config, settings, f"{settings['name']}: ")


def without_defaults(kind: Kind, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that differ from their defaults; all of them if what they belong to cannot be imported."""
    try:
        return component(kind, settings).model_dump(mode="json", exclude_defaults=True)
    except UserError:
        return settings


def variants(name: str) -> dict[str, dict[str, Any]]:
    """The published networks of a model by name; a general name such as ``vit`` has all of its file."""
    known: dict[str, dict[str, Any]] = getattr(sys.modules[find("models", name).__module__], "VARIANTS", {})
    return {key: fields for key, fields in known.items() if fields["name"] == name} or known


def _expand_variant(settings: dict[str, Any]) -> dict[str, Any]:
    """Replace a published name such as ``vit/tiny-hourglass`` by its fields; given fields override them."""
    name, slash, variant = settings["name"].partition("/")
    if not slash:
        return settings
    known = variants(name)
    if variant not in known:
        raise UserError(f"{name} has no variant {variant!r}; {nearest(variant, known)}")
    return {**known[variant], **settings, "name": known[variant]["name"]}


@cache
def presets() -> dict[str, dict[str, Any]]:
    """The settings of every preset of a pathway, by its name, such as ``streams/mhc-4`` or ``rezero``."""
    known: dict[str, Any] = {}
    for name in catalogue("pathways"):
        known |= read_variable("pathways", name, "PRESETS") or {}
    return {name: known[value] if isinstance(value, str) else value for name, value in sorted(known.items())}


def _expand_preset(settings: dict[str, Any]) -> dict[str, Any]:
    """Replace the name of a preset by its fields; given fields override them."""
    fields = presets().get(settings["name"])
    return settings if fields is None else {**fields, **settings, "name": fields["name"]}


def build_config(config: type[Config], settings: Mapping[str, Any], title: str = "") -> Config:
    """``config(**settings)``; a validation error becomes one line that names the nearest valid field."""
    try:
        return config(**settings)
    except ValidationError as error:
        raise UserError(title + _explain(error, config)) from None


def _explain(error: ValidationError, config: type[Any]) -> str:
    """All problems of a rejected config in one line, each with the given value and what is accepted."""
    problems = []
    found = error.errors(include_url=False)
    for problem in found:
        if problem["type"] == "too_short" and any(problem["loc"] == other["loc"][:-1] for other in found):
            continue  # a consequence of rejected items, which are reported themselves
        where = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            problems.append(f"unknown field {where!r}; {_advise_field(config, problem['loc'])}")
        elif problem["type"] == "missing":
            problems.append(f"{where} is required")
        elif problem["type"] == "value_error":
            problems.append(str(problem["ctx"]["error"]) if not where else f"{where}: {problem['ctx']['error']}")
        else:
            problems.append(f"{where}={_clip(problem.get('input'))}: {problem['msg'][:1].lower()}{problem['msg'][1:]}")
    return "; ".join(problems)


def _advise_field(config: type[Any], path: tuple[int | str, ...]) -> str:
    """The field that was probably meant: one of the same name further inside, or of nearly the same name."""
    *outer, last = path
    names = _fields_at(config, tuple(outer))
    inside = [f"{name}.{last}" for name in names if str(last) in _fields_at(config, (*outer, name))]
    return f"did you mean {inside[0]!r}?" if inside else nearest(str(last), names)


def _clip(value: Any) -> str:
    """The value, short enough for an error line."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or deep nesting
        text = f"this {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "…"


def _fields_at(config: type[Any], path: tuple[int | str, ...]) -> list[str]:
    for part in path:
        annotation = config.model_fields[str(part)].annotation if str(part) in config.model_fields else None
        if not hasattr(annotation, "model_fields"):
            return []
        config = cast("type[Any]", annotation)
    return list(config.model_fields)


def parse_file(kind: Kind, name: str) -> ast.Module:
    """The file that defines a name, parsed; an empty one for a name that is unknown here."""
    return parse_module(catalogue(kind).get(name, "").partition(":")[0])


@cache
def parse_module(module: str) -> ast.Module:
    """A file, parsed without importing it; an empty one for a broken plug-in."""
    try:
        spec = importlib.util.find_spec(module)
        return parse_code(Path(str(spec and spec.origin)).read_text(encoding="utf-8"))
    except Exception:  # not installed, or of another form
        return ast.Module([], [])


@cache
def read_variable(kind: Kind, name: str, variable: str) -> Any:
    """The literal value of a variable in the file that defines a name."""
    try:
        return _literal(parse_file(kind, name).body, variable)
    except ValueError:
        return None


@cache
def task_objective(name: str) -> str | None:
    """The objective of a task, read without importing its file; None if it is unknown here or not a literal."""
    wanted, body = catalogue("tasks").get(name, "").partition(":")[2], parse_file("tasks", name).body
    for _ in range(4):  # its class, and those that it inherits from
        for node in body:
            if isinstance(node, ast.ImportFrom) and wanted in [alias.name for alias in node.names]:
                body = parse_module(str(node.module)).body
        found = next((node for node in body if isinstance(node, ast.ClassDef) and node.name == wanted), None)
        value = _find_assignment(found.body, "objective") if found else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return value.value
        wanted = ast.unparse(found.bases[0]) if found and found.bases else ""
    return None


def list_models() -> list[str]:
    """The names that :func:`create_model` accepts, including those of installed packages."""
    return list(catalogue("models"))


def create_model(name: str, **config: Any) -> torch.nn.Module:
    """A newly initialised model; ``isthmus describe NAME`` lists the fields of ``config``.

    A published network has a name such as ``vit/tiny-hourglass``; given fields override its own.
    """
    settings = component("models", {"name": name, **config})
    model: torch.nn.Module = find("models", settings.name)(settings)
    return model
