"""The folder of an export: a trained model that needs neither its data nor its record.

model.safetensors, model.onnx or model.pt2     the model in the chosen format
task.safetensors                               what the task learned: scaling, class targets
config.json                                    the model's settings
README.md                                      a model card
export.json                                    written last: the format, the task, names and checksums
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import TypeAdapter, ValidationError

from isthmus.core.errors import UserError
from isthmus.core.files import read_sealed, sha256, write_sealed

SCHEMA = "isthmus.export/1"
EXPORT = "export.json"
FormatName = Literal["onnx", "torch", "safetensors", "narrow"]
FORMATS: tuple[FormatName, ...] = get_args(FormatName)
FILES: dict[FormatName, str] = {
    "onnx": "model.onnx", "torch": "model.pt2", "safetensors": "model.safetensors", "narrow": "model.safetensors",
}  # fmt: skip


@dataclass(frozen=True)
class Exported:
    """What ``export.json`` says. ``files`` maps names to their SHA-256."""

    format: FormatName
    run: str
    model: dict[str, Any]
    task: dict[str, Any]
    source: dict[str, Any] = field(default_factory=dict)  # how files to predict from are read
    classes: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    table: dict[str, Any] = field(default_factory=dict)  # how the features are made of a user's table
    raw: bool = False  # whether the graph takes raw columns and gives values in the user's units, or probabilities
    metrics: dict[str, float] = field(default_factory=dict)  # of the test split
    int8: dict[str, Any] = field(default_factory=dict)  # which layers are int8, and what was measured to choose them
    files: dict[str, str] = field(default_factory=dict)
    schema: str = SCHEMA


def is_exported(folder: Path) -> bool:
    return (folder / EXPORT).is_file()


def write_exported(folder: Path, content: Exported) -> None:
    write_sealed(folder / EXPORT, asdict(content))


def read_exported(folder: Path) -> Exported:
    path = folder / EXPORT
    content = read_sealed(path)
    if content.get("schema") != SCHEMA:
        raise UserError(f"{path} has schema {content.get('schema')!r}; this version reads {SCHEMA!r}")
    try:
        exported = TypeAdapter(Exported).validate_python(content)
    except ValidationError as error:
        wrong = error.errors()[0]["loc"][0]
        raise UserError(f"{path} is damaged: {wrong} is missing or of another kind; export the run again") from None
    if exported.raw and FILES[exported.format].endswith(".safetensors"):
        raise UserError(f"{path} is damaged: only graphs take raw columns; export the run again")
    return exported


def exported_file(folder: Path, name: str, exported: Exported) -> Path:
    """A file of the folder, after comparing it with its checksum."""
    path = folder / name
    if name not in exported.files or not path.is_file():
        raise UserError(f"{path} is missing; export the run again")
    if sha256(path) != exported.files[name]:
        raise UserError(f"{path} is damaged or was altered: its checksum is not the one in {EXPORT}")
    return path
