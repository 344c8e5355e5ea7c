"""What would fail later is said before anything is installed, in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tools" / "make-venv.sh"
OLD = 'case "$*" in *version_info*) exit 1;; --version) echo Python 3.9.1; exit;; esac'
NO_VENV = 'case "$*" in *ensurepip*) exit 1;; esac'
FULL = 'printf "a b c d\\nx 100 90 20480\\n"'


def make(folder: Path, python: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(SCRIPT), "new-environment", "."],
        cwd=folder,
        env=os.environ | {"PYTHON": python} | (environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )


def program(folder: Path, name: str, body: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("body", "message"),
    [(OLD, "Python 3.9.1 is too old; install Python 3.11"), (NO_VENV, "no venv module; on Debian: apt-get install")],
)
def test_a_python_that_cannot_do(body: str, message: str, tmp_path: Path) -> None:
    python = program(tmp_path, "python", f'{body}\nexec "{sys.executable}" "$@"')
    finished = make(tmp_path, str(python))
    assert finished.returncode == 2
    assert message in finished.stderr
    assert finished.stderr.count("\n") == 1
    assert not (tmp_path / "new-environment").exists()


def test_no_python_at_all(tmp_path: Path) -> None:
    finished = make(tmp_path, "python-that-is-not-there")
    assert finished.returncode == 2
    assert "there is no python-that-is-not-there" in finished.stderr


def test_a_full_disk(tmp_path: Path) -> None:
    program(tmp_path, "df", FULL)
    finished = make(tmp_path, sys.executable, {"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert finished.returncode == 2
    assert "only 20 MB free" in finished.stderr
    assert not (tmp_path / "new-environment").exists()


@pytest.mark.slow
@pytest.mark.parametrize("mode", [[], ["--editable"]], ids=["installed", "editable"])
def test_the_folder_of_a_clone_does_not_hide_the_package(mode: list[str], tmp_path: Path) -> None:
    """As after ``git clone …/isthmus; pip install ./isthmus``, in the folder that contains the clone."""
    clone = tmp_path / "isthmus"
    shutil.copytree(ROOT / "isthmus", clone / "isthmus", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    venv.create(tmp_path / "env", symlinks=True)
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))  # whose own .pth files are not read
    python = str(tmp_path / "env" / "bin" / "python")

    def run(*words: str) -> str:
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(words, cwd=tmp_path, env=clean, check=True, capture_output=True, text=True).stdout

    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", *mode, "./isthmus")
    home = clone if mode else site
    assert run(python, "-c", "import isthmus; print(isthmus.__file__, isthmus.UserError)").startswith(str(home))
    assert run(python, "-m", "isthmus", "--version").startswith("isthmus ")
    assert run(str(tmp_path / "env" / "bin" / "isthmus"), "--version").startswith("isthmus ")
