"""Every registered name says in one line what it is, and every field of every config what it means."""

from __future__ import annotations

import pytest

from isthmus.core.config import Pruning, RunConfig, StudyConfig
from isthmus.core.fields import list_fields
from isthmus.core.protocols import Settings
from isthmus.core.registry import Kind, catalogue, find
from isthmus.core.space import Range, Space
from isthmus.core.titles import meaning, model_kind
from isthmus.core.train_config import TrainConfig

KINDS: tuple[Kind, ...] = ("sources", "tasks", "models")
COMPONENTS = [(kind, name) for kind in KINDS for name, home in catalogue(kind).items() if home.startswith("isthmus.")]


PATHWAYS = [("pathways", name) for name, home in catalogue("pathways").items() if home.startswith("isthmus.")]


@pytest.mark.parametrize(("kind", "name"), [*COMPONENTS, *PATHWAYS])
def test_every_field_of_a_component_says_what_it_means(kind: Kind, name: str) -> None:
    assert [field.name for field in list_fields(find(kind, name).Config) if not field.meaning] == []


@pytest.mark.parametrize("config", [TrainConfig, RunConfig, StudyConfig, Pruning, Range, Space])
def test_every_field_of_a_run_and_a_study_says_what_it_means(config: type[Settings]) -> None:
    assert [field.name for field in list_fields(config) if not field.meaning] == []


@pytest.mark.parametrize("kind", KINDS)
def test_no_two_names_have_one_meaning(kind: Kind) -> None:
    meanings = [meaning(kind, name) for name in catalogue(kind)]
    assert len(set(meanings)) == len(meanings)
    assert all(10 < len(line) <= 120 for line in meanings)


def test_every_model_of_ours_has_a_kind() -> None:
    models = [name for kind, name in COMPONENTS if kind == "models"]
    assert not {name for name in models if model_kind(name) == "Other models"}


def test_a_field_is_described_as_it_is_typed() -> None:
    fields = {field.name: field for field in list_fields(find("tasks", "classification").Config)}
    assert fields["resize"].accepts == "integer from 1 to 1,024 or null"
    assert fields["resize"].default == "null"
    assert fields["augment.resized_crop"].accepts == "[2 × number > 0 and ≤ 1] or null"
    assert fields["augment.flip"].meaning == "Mirror half of the images left to right."
    assert "name" not in fields
    required = {field.name: field for field in list_fields(find("sources", "table").Config)}["path"]
    assert required.default == "required"


def test_a_class_without_source_text_has_no_meanings() -> None:
    made: dict[str, type[Settings]] = {}
    exec("class Made(Settings):\n    width: int = 3\n    'Not found.'", {"Settings": Settings}, made)
    assert [tuple(field) for field in list_fields(made["Made"])] == [("width", "", "integer", "3")]
