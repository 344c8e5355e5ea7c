"""What every test gets: checked shapes, a home of its own, and one thread."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
import torch
from beartype import beartype
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """beartype, but for ``Self``, which it understands only where it decorates a whole class."""
    hints = {name: Any if hint is Self else hint for name, hint in function.__annotations__.items()}
    function.__annotations__ = hints
    return beartype(function)


# Some virtual machines announce bfloat16 matrix instructions and forbid them: a product would end the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# How long an example takes says something about a busy machine, and nothing about the claim.
# Where a change is judged, examples are the same every time; elsewhere hypothesis looks for new ones, so that half of
# its usual hundred is enough for one run.
settings.register_profile(
    "isthmus",
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="ISTHMUS_FIXED_EXAMPLES" in os.environ,
)
settings.load_profile("isthmus")

gc.disable()  # nothing that imports and the collection of tests make is garbage


def pytest_collection_finish() -> None:
    gc.freeze()  # and no collection in a test has to look at it again
    gc.enable()


SHARED = Path(os.environ.get("ISTHMUS_DATA") or Path(__file__).parents[2] / "shared" / "data")
SHAPED = ["isthmus.layers", "isthmus.models", "isthmus.tasks.augment", "isthmus.tasks"]
install_import_hook(SHAPED, "tests.conftest.checked")


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches the user's home or another test's, finds data by chance, or asks for more than one core."""
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "isthmus-home"))
    monkeypatch.delenv("ISTHMUS_DATA", raising=False)
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _short_searches() -> Iterator[None]:
    """`isthmus find` in seconds; tests/search/test_rounds.py carries out all rounds."""
    from isthmus.search import race

    with pytest.MonkeyPatch.context() as patch:
        short = (race.Round(range(2), 3), race.Round(range(2, race.FOLDS), 1))
        patch.setattr(race, "ROUNDS", race.ROUNDS | {True: short})
        yield


@pytest.fixture
def shared_data() -> Path:
    """The folder with the full data sets, where this machine has one."""
    if not SHARED.is_dir():
        pytest.skip(f"the data sets are not on this machine: no folder {SHARED}; set ISTHMUS_DATA")
    return SHARED
