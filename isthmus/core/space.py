"""The search space of a study: architectures, the fields that vary, and conditions on candidates.

model: {name: hourglass_mlp, norm: layer}          fixed fields
vary:
  d_z: [785, 1000]                                 choices
  train.weight_decay: [0, 0.1]                     a training setting, by its full name
  d_h: {low: 16, high: 512, log: true, points: 6}  a range; a grid takes six values, a sampler any
  depth: {low: 2, high: 6}
where: [d_z > d_in, d_h < d_z, params <= 2M]       conditions on fields and costs
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from isthmus.core.protocols import Settings
from isthmus.core.registry import find
from isthmus.core.units import amount

Value = bool | int | float | str
_LONGEST_CONDITION, _MOST_TERMS = 500, 50
_LARGEST_END = 2**53
"""The largest integer that float64 represents exactly, which samplers use."""


Amount = Annotated[int, BeforeValidator(amount), Field(ge=1)]
End = Annotated[int | float, Field(ge=-_LARGEST_END, le=_LARGEST_END)]


class Range(Settings):
    """Numbers from ``low`` to ``high``, inclusive: integers if both are integers, otherwise real."""

    low: End
    """The smallest value."""
    high: End
    """The largest value."""
    log: bool = False
    """Whether values are evenly spread on a logarithmic scale."""
    step: Annotated[int, Field(ge=1)] = 1
    """Step between integers; not with ``log``."""
    points: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Number of values in a grid (default: every integer)."""

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"the range from {self.low} to {self.high} is empty")
        if self.log and self.low <= 0:
            raise ValueError(f"a logarithmic range starts above 0, not at {self.low}")
        if self.log and self.step > 1:
            raise ValueError("a logarithmic range has no step; set points instead")
        return self

    @property
    def is_integer(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def values(self) -> Sequence[int | float]:
        """The values of a grid; a range of integers takes no memory."""
        if self.points is None:
            if not self.is_integer:
                raise ValueError(f"a grid from {self.low} to {self.high} needs points; or set sampling.name=tpe")
            return range(int(self.low), int(self.high) + 1, self.step)
        to, back = (math.log, math.exp) if self.log else (float, float)
        start, stop = to(self.low), to(self.high)
        inner = [back(start + (stop - start) * i / (self.points - 1)) for i in range(1, self.points - 1)]
        values = [self.low, *inner, self.high][: self.points]
        return tuple(dict.fromkeys(map(round, values) if self.is_integer else values))


Choices = Annotated[tuple[Value, ...], Field(min_length=1)]
Varied = dict[str, Range | Choices]
_RECIPE = "train."


def split_recipe(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of a candidate's model, and its training settings by their names in ``train``."""
    model = {name: value for name, value in settings.items() if not name.startswith(_RECIPE)}
    return model, {name.removeprefix(_RECIPE): value for name, value in settings.items() if name not in model}


class Space(Settings):
    """One architecture and the fields in which its candidates differ."""

    model: dict[str, Any]
    """The architecture's name and its fixed fields."""
    vary: Varied = Field(default_factory=dict)
    """The fields that differ, each with its choices or its range; ``train.…`` is a training setting."""
    where: tuple[str, ...] = ()
    """Conditions that a candidate must meet, such as ``d_h < d_z`` or ``params <= 2M``."""

    @field_validator("where")
    @classmethod
    def _can_be_read(cls, where: tuple[str, ...]) -> tuple[str, ...]:
        for text in where:
            condition(text)
        return where

    @model_validator(mode="after")
    def _names_an_architecture(self) -> Self:
        if not isinstance(self.model.get("name"), str):
            raise ValueError("a space needs a model with a name, such as {name: hourglass_mlp}")
        if both := sorted(self.model.keys() & self.vary.keys()):
            raise ValueError(f"{', '.join(both)} cannot be both fixed in model and varied")
        return self

    def grid(self) -> Iterator[dict[str, Any]]:
        """The settings of every model in the grid, before conditions are applied."""
        for values in itertools.product(*self._axes()):
            yield self.model | dict(zip(self.vary, values, strict=True))

    def grid_size(self) -> int:
        """The number of models in the grid."""
        return math.prod(len(axis) for axis in self._axes())

    def _axes(self) -> list[Sequence[Value]]:
        return [item.values() if isinstance(item, Range) else item for item in self.vary.values()]


class Budget(Settings):
    """Upper limits on the cost of a candidate, by any registered cost that is counted."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Amount] = Field(init=False)

    params: Amount | None = None
    """The largest number of parameters."""
    trainable_params: Amount | None = None
    """The largest number of trained parameters."""
    macs: Amount | None = None
    """The most multiply-adds of one forward pass."""
    training_flops: Amount | None = None
    """For one row, forward and backward."""

    @model_validator(mode="after")
    def _names_costs(self) -> Self:
        for name in self.model_extra or ():
            if find("costs", name).is_measured:
                raise ValueError(f"{name} is measured when a study runs; a budget limits costs that are counted")
        return self

    def exceeded_limit(self, cost: Mapping[str, Any]) -> str:
        """The first limit that a candidate exceeds, as text; empty if none."""
        for name, limit in self:
            if limit is not None and cost[name] > limit:
                return f"{name} above {limit}"
        return ""


_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
_COMBINE: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}  # fmt: skip
_Term = Callable[[Mapping[str, Any]], Any]


def condition(text: str) -> Callable[[Mapping[str, Any]], bool]:
    """Parse a comparison such as ``d_h < d_z / 2`` into a function of its names, without executing it.

    Text is allowed only beside ``==`` and ``!=``, as in ``norm == 'layer'``.
    """
    if len(text) > _LONGEST_CONDITION:
        raise ValueError(f"a condition of {len(text)} characters is too long; the limit is {_LONGEST_CONDITION}")
    plain = re.sub(r"\b(\d+(?:\.\d+)?)([kKmMgG])\b", lambda match: str(amount(match[0])), text)
    try:
        tree = ast.parse(plain.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    if not isinstance(tree, ast.Compare) or not all(type(item) in _COMPARE for item in tree.ops):
        raise ValueError(f"{text!r} is not a comparison such as d_h < d_z")
    if sum(isinstance(node, ast.Name | ast.Constant) for node in ast.walk(tree)) > _MOST_TERMS:
        raise ValueError(f"{text[:60]!r}… has too many terms; the limit is {_MOST_TERMS}")
    compared = []
    for test, sides in zip(tree.ops, itertools.pairwise((tree.left, *tree.comparators)), strict=True):
        left, right = (_term(side, text, allows_text=isinstance(test, ast.Eq | ast.NotEq)) for side in sides)
        compared.append((_COMPARE[type(test)], left, right))

    def holds(names: Mapping[str, Any]) -> bool:
        # Evaluate all before combining, so that an unknown name is always an error.
        answers = [test(left(names), right(names)) for test, left, right in compared]
        return all(answers)

    return holds


def _term(node: ast.expr, text: str, allows_text: bool = False) -> _Term:
    """One side of a comparison, or an operand, as a function of the names."""
    if isinstance(node, ast.Constant) and (_is_number(node.value) or (allows_text and isinstance(node.value, str))):
        return lambda names: node.value
    if isinstance(node, ast.Name):
        return lambda names: names[node.id] if allows_text else _number(names[node.id], node.id)
    if isinstance(node, ast.BinOp) and type(node.op) in _COMBINE:
        combine, left, right = _COMBINE[type(node.op)], _term(node.left, text), _term(node.right, text)
        return lambda names: _number(combine(left(names), right(names)), "a result")
    raise ValueError(f"{text!r} may contain names, finite numbers, + - * / %, comparisons, and text beside == or !=")


def _is_number(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def _number(value: Any, what: str) -> Any:
    if not _is_number(value):
        raise TypeError(f"{what} is {value!r}, not a finite number")
    return value


class FittedSpace(Space):
    """What a search varies in one architecture whose width is fitted to a budget of parameters.

    A model's file declares it in ``search_space(signature, budget)``. ``vary`` names fields of the model, multiples of
    the width (``d_h/d_z``) and training settings (``train.learning_rate``). Choices are given the most promising first.
    """

    width: str
    """The field that is fitted: the largest value within the budget is taken."""
    step: Annotated[int, Field(ge=1)] = 1
    """The width is a multiple of it."""
    low: Annotated[int, Field(ge=1)] = 1
    """Narrower networks are not worth trying."""

    def shapes(self) -> list[dict[str, Any]]:
        """Every choice of what varies: the most promising first, then those that differ from it in one field, …"""
        ranked = (tuple(enumerate(axis)) for axis in self._axes())
        chosen = sorted(itertools.product(*ranked), key=lambda choice: sum(rank for rank, _ in choice))
        return [dict(zip(self.vary, (value for _, value in choice), strict=True)) for choice in chosen]

    def widen(self, shape: Mapping[str, Any], width: int) -> dict[str, Any]:
        """The model settings of a shape with this width."""
        fields = self.model | {self.width: width}
        for name, value in split_recipe(shape)[0].items():
            field, _, of_width = name.partition("/")
            fields[field] = max(1, round(value * width)) if of_width else value
        return fields

    def recipe(self, shape: Mapping[str, Any]) -> dict[str, Any]:
        """The training settings of a shape."""
        return split_recipe(shape)[1]
