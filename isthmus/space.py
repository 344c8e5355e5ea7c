"""What a study searches: architectures, the fields in which their candidates differ, and what a candidate must fulfil.

model: {name: hourglass_mlp, norm: layer}          what all candidates share
vary:
  d_z: [785, 1000]                                 choices
  d_h: {low: 16, high: 512, log: true, points: 6}  a range; a grid takes six values of it, a sampler any
  depth: {low: 2, high: 6}
where: [d_z > d_in, d_h < d_z, params <= 2M]       fields of the model, and its cost
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from isthmus.protocols import Settings

Value = bool | int | float | str
_SCALES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}


def amount(value: Any) -> Any:
    """``200k`` and ``1.5M`` as numbers; anything else as it is, for pydantic to judge."""
    if isinstance(value, str) and (match := re.fullmatch(r"\s*(\d+(?:\.\d+)?(?:e\d+)?)\s*([kmgb]?)\s*", value.lower())):
        number = float(match[1]) * _SCALES[match[2]]
        return int(number) if math.isfinite(number) and number == int(number) else number
    return value


Amount = Annotated[int, BeforeValidator(amount), Field(ge=1)]


class Range(Settings):
    """Numbers from ``low`` to ``high``, both included: integers where both are, otherwise real."""

    low: int | float
    high: int | float
    log: bool = False
    step: Annotated[int, Field(ge=1)] = 1
    """Between two integers; without ``log``."""
    points: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """How many values a grid takes; without it, every integer."""

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"the range from {self.low} to {self.high} is empty")
        if self.log and self.low <= 0:
            raise ValueError(f"a logarithmic range starts above 0, not at {self.low}")
        if self.log and self.step > 1:
            raise ValueError("a logarithmic range has no step; say points")
        return self

    @property
    def is_integer(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def values(self) -> tuple[int | float, ...]:
        """What a grid takes."""
        if self.points is None:
            if not self.is_integer:
                raise ValueError(f"a grid over real numbers from {self.low} to {self.high} needs points")
            return tuple(range(int(self.low), int(self.high) + 1, self.step))
        to, back = (math.log, math.exp) if self.log else (float, float)
        start, stop = to(self.low), to(self.high)
        inner = [back(start + (stop - start) * i / (self.points - 1)) for i in range(1, self.points - 1)]
        values = [self.low, *inner, self.high][: self.points]
        return tuple(dict.fromkeys(map(round, values) if self.is_integer else values))


Choices = Annotated[tuple[Value, ...], Field(min_length=1)]


class Space(Settings):
    """One architecture and the fields in which its candidates differ."""

    model: dict[str, Any]
    vary: dict[str, Range | Choices] = Field(default_factory=dict)
    where: tuple[str, ...] = ()

    @field_validator("where")
    @classmethod
    def _can_be_read(cls, where: tuple[str, ...]) -> tuple[str, ...]:
        for text in where:
            condition(text)
        return where

    @model_validator(mode="after")
    def _names_an_architecture(self) -> Self:
        if not isinstance(self.model.get("name"), str):
            raise ValueError("a space has a model with a name, such as {name: hourglass_mlp}")
        if both := sorted(self.model.keys() & self.vary.keys()):
            raise ValueError(f"{', '.join(both)} cannot be fixed and varied at once")
        return self

    def grid(self) -> Iterator[dict[str, Any]]:
        """The settings of every model in the grid, whether it fulfils the conditions or not."""
        axes = [item.values() if isinstance(item, Range) else item for item in self.vary.values()]
        for values in itertools.product(*axes):
            yield self.model | dict(zip(self.vary, values, strict=True))

    def grid_size(self) -> int:
        return math.prod(len(item.values() if isinstance(item, Range) else item) for item in self.vary.values())


class Budget(Settings):
    """What a candidate may cost at most."""

    params: Amount | None = None
    trainable_params: Amount | None = None
    macs: Amount | None = None
    training_flops: Amount | None = None
    """Of one row, forward and backward."""

    def exceeded(self, cost: Mapping[str, Any]) -> str:
        """Which limit a candidate breaks, in words; empty if none."""
        for name, limit in self:
            if limit is not None and cost[name] > limit:
                return f"{name} above {limit}"
        return ""


_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
_COMBINE: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}  # fmt: skip


def condition(text: str) -> Callable[[Mapping[str, Any]], bool]:
    """A comparison such as ``d_h < d_z / 2`` as a function of the names in it. It is read, never executed."""
    plain = re.sub(r"\b(\d+(?:\.\d+)?)([kKmMgG])\b", lambda match: str(amount(match[0])), text)
    try:
        tree = ast.parse(plain.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    if not isinstance(tree, ast.Compare) or not all(type(item) in _COMPARE for item in tree.ops):
        raise ValueError(f"{text!r} is not a comparison such as d_h < d_z")
    comparison = tree
    terms = [_term(part, text) for part in (comparison.left, *comparison.comparators)]
    tests = [_COMPARE[type(item)] for item in comparison.ops]

    def holds(names: Mapping[str, Any]) -> bool:
        values = [term(names) for term in terms]
        return all(test(a, b) for test, a, b in zip(tests, values, values[1:], strict=False))

    return holds


def _term(node: ast.expr, text: str) -> Callable[[Mapping[str, Any]], Any]:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str):
        constant = node.value
        return lambda names: constant
    if isinstance(node, ast.Name):
        return lambda names: names[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _COMBINE:
        combine, left, right = _COMBINE[type(node.op)], _term(node.left, text), _term(node.right, text)
        return lambda names: combine(left(names), right(names))
    raise ValueError(f"{text!r} may hold names of fields, numbers, + - * / % and comparisons")
