"""What conftest.py gives to every test: checked shapes (otherwise they would be comments) and a home of its own."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import typing

import pytest
import torch
from jaxtyping import TypeCheckError

import isthmus
from isthmus.core import files
from isthmus.layers.projections import FixedProjection
from isthmus.tasks.augment import orient
from isthmus.tasks.super_resolution import reduce_images
from tests.conftest import SHAPED


def test_a_wrong_shape_is_refused_in_every_package_with_shapes():
    model = isthmus.create_model("hourglass_mlp", d_in=4, d_out=2, d_z=8, d_h=3, depth=1)
    wrong_calls = [
        lambda: orient(torch.zeros(2, 3, 4), torch.zeros(2, dtype=torch.long)),
        lambda: orient(torch.zeros(2, 3, 4, 4), torch.zeros(3, dtype=torch.long)),
        lambda: reduce_images(torch.zeros(3, 4, 4), 2),
        lambda: FixedProjection("uniform", 4, 8, 0)(torch.zeros(2, 4, dtype=torch.long)),
        lambda: model.blocks[0].update(torch.zeros(2, 1, 8)),  # type: ignore[index, operator, union-attr]
        lambda: model(torch.zeros(2, 4, dtype=torch.long)),
    ]
    for call in wrong_calls:
        with pytest.raises(TypeCheckError):
            call()


def modules():
    for name in SHAPED:
        module = importlib.import_module(name)
        yield module
        for found in pkgutil.iter_modules(getattr(module, "__path__", []), f"{name}."):
            yield importlib.import_module(found.name)


def functions(owner, module):
    for member in vars(owner).values():
        inner = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if inspect.isclass(inner) and inner.__module__ == module.__name__:
            yield from functions(inner, module)
        elif inspect.isfunction(inner) and inner.__module__ == module.__name__:
            yield inner


@pytest.mark.parametrize("module", list(modules()), ids=lambda module: module.__name__)
def test_every_annotation_can_be_evaluated(module):
    # The import hook passes silently over an annotation that it cannot evaluate: that shape would never be checked.
    for function in functions(module, module):
        typing.get_type_hints(inspect.unwrap(function))


def test_home_is_the_tests_own(tmp_path):
    assert tmp_path in files.home().parents
