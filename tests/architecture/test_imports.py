"""Who may import whom (DESIGN.md), read off the source; and what help and ``import isthmus`` do not import."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import isthmus
from isthmus.registry import _declared_names

ROOT = Path(isthmus.__file__).parent
KINDS = ("models", "sources", "tasks")

LEAVES = {"errors", "files", "draws"}  # anybody may import these
ALLOWED = {
    "errors": set(),
    "files": {"errors"},
    "draws": set(),
    "protocols": {"errors"},
    "record": {"errors", "files"},
    "papers": {"errors", "files"},
    "exported": {"errors", "files"},
    "streaming": LEAVES | {"sources"},
    "intervals": set(),
    "fronts": {"record", "errors", "intervals"},
    "volumes": {"errors", "fronts", "intervals"},
    "machine": set(),
    "interrupts": set(),
    "registry": LEAVES | {"protocols"},
    "sudoku": {"errors", "sudoku"},
    "sources": LEAVES | {"protocols", "machine", "sources", "sudoku", "registry", "tokenizers"},
    "augment": LEAVES | {"protocols", "augment"},
    "layers": LEAVES | {"protocols", "machine", "layers"},
    "dynamics": LEAVES | {"protocols"},
    "associative_memory": set(),
    "hopfield": LEAVES | {"protocols", "dynamics"},
    "tasks": LEAVES | {"protocols", "augment", "tasks", "sudoku"},
    "models": LEAVES | {"protocols", "layers", "dynamics", "models"},
    "training": LEAVES | {"protocols", "record", "machine", "layers", "training"},
    "space": LEAVES | {"protocols"},
    "config": LEAVES | {"protocols", "registry", "training", "space"},
    "shape_theory": {"errors"},
    "counting": LEAVES | {"protocols", "registry"},
    "weights": {"errors", "machine"},
    "timm_weights": {"errors"},
    "recipes": LEAVES | {"config", "recipes"},
    "reports": LEAVES | {"record", "papers", "intervals", "fronts", "volumes", "registry", "reports"},
}
NO_TORCH = {
    "errors",
    "files",
    "record",
    "papers",
    "intervals",
    "fronts",
    "volumes",
    "reports",
    "cli",
    "terminal",
    "runs",
    "recipes",
}
HEAVY = {"torch", "numpy", "pydantic", "torchmetrics", "PIL", "pyarrow", "matplotlib", "plotly", "yaml"}


class Import(NamedTuple):
    file: Path
    module: str  # "isthmus.record" or "torch.nn"
    late: bool  # within a function


def _imports(file: Path) -> list[Import]:
    """Every import of a file but those for the type checker."""
    tree = ast.parse(file.read_text())
    skipped, late = set[ast.AST](), set[ast.AST]()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            skipped |= set(ast.walk(node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            late |= set(ast.walk(node))
    found = []
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found += [Import(file, alias.name, node in late) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import hides who is imported"
            names = [f"isthmus.{alias.name}" for alias in node.names] if node.module == "isthmus" else [node.module]
            found += [Import(file, str(name), node in late) for name in names]
    return found


def _part(file: Path) -> str:
    return file.relative_to(ROOT).parts[0].removesuffix(".py")


FILES = sorted(ROOT.rglob("*.py"))
IMPORTS = [each for file in FILES for each in _imports(file)]
OURS = [each for each in IMPORTS if each.module.startswith("isthmus.")]


def test_parts_import_only_what_the_design_allows() -> None:
    wrong = [
        f"{each.file.relative_to(ROOT)} imports {each.module}"
        for each in OURS
        if (part := each.module.split(".")[1]) not in ALLOWED.get(_part(each.file), {part})
    ]
    assert not wrong


def test_every_part_that_is_not_a_door_has_its_rule() -> None:
    doors = {
        "__init__",
        "cli",
        "terminal",
        "run",
        "runs",
        "loading",
        "prediction",
        "masked_images",
        "tokenizers",
        "puzzles",
        "samples",
        "diagnosis",
        "studies",
        "bench",
    }
    above_run = {"analysis", "export", "reproduction", "sklearn", "timm"}
    assert {_part(file) for file in FILES} <= ALLOWED.keys() | doors | above_run


def test_registered_files_do_not_import_each_other() -> None:
    kinds = (*KINDS, "recipes")
    registered = {
        f"isthmus.{kind}.{file.stem}" for kind in kinds for file in (ROOT / kind).glob("*.py") if _declared_names(file)
    }
    assert len(registered) >= 3
    inside = [each for each in OURS if _part(each.file) in kinds]
    assert not [f"{each.file.name} imports {each.module}" for each in inside if each.module in registered]


def test_training_knows_no_concrete_model_or_task() -> None:
    text = "".join(file.read_text() for file in (ROOT / "training").glob("*.py"))
    names = {name for kind in KINDS for file in (ROOT / kind).glob("*.py") for name in _declared_names(file)}
    assert not {name for name in names if f'"{name}"' in text or f"'{name}'" in text}


def test_what_reads_records_needs_no_torch() -> None:
    wrong = [each for each in IMPORTS if each.module.split(".")[0] == "torch" and _part(each.file) in NO_TORCH]
    assert not wrong


def test_the_command_line_imports_heavy_parts_late() -> None:
    files = [*(ROOT / "cli").glob("*.py"), ROOT / "bench" / "command.py"]
    assert len(files) > 2
    early = {each.module for each in IMPORTS if each.file in files and not each.late}
    ours = {name for name in early if name.startswith("isthmus") and not name.startswith("isthmus.cli")}
    assert ours == {"isthmus.errors", "isthmus.bench.command"}
    assert not HEAVY & {name.split(".")[0] for name in early}


def _imported_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sorted(name for name in sys.modules if '.' not in name))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_isthmus_is_light() -> None:
    assert not HEAVY & _imported_after("import isthmus; isthmus.__all__; dir(isthmus)")


def test_help_is_light() -> None:
    called = "from typer.testing import CliRunner; from isthmus.cli import app; r = CliRunner().invoke(app, ['--help'])"
    assert not HEAVY & _imported_after(f"{called}; assert r.exit_code == 0 and 'train' in r.output")


@pytest.mark.parametrize("reader", ["isthmus.reports", "isthmus.reports.page", "isthmus.papers", "isthmus.fronts"])
def test_reading_records_does_not_import_torch(reader: str) -> None:
    assert "torch" not in _imported_after(f"import {reader}")


def test_no_module_shares_the_name_of_a_public_function() -> None:
    modules = {file.stem for file in ROOT.glob("*.py")} | {file.parent.name for file in ROOT.glob("*/__init__.py")}
    assert not modules & set(isthmus.__all__)
    assert all(getattr(isthmus, name) for name in isthmus.__all__)
