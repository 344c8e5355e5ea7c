"""``isthmus bench``: the benchmarks, which only a checkout has."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from isthmus.core.errors import UserError

CHECKOUT = Path(__file__).parents[2]


def add_bench(app: typer.Typer) -> None:
    """Add the benchmarks if this is a checkout, otherwise a command that says where they are."""
    if (CHECKOUT / "benchmarks" / "command.py").is_file():
        if str(CHECKOUT) not in sys.path:
            sys.path.append(str(CHECKOUT))
        from benchmarks.command import app as bench

        app.add_typer(bench, name="bench")
    else:
        anything = {"allow_extra_args": True, "ignore_unknown_options": True}
        app.command("bench", context_settings=anything)(explain_absence)


def explain_absence() -> None:
    """Measure speed on this machine; needs a checkout of the repository."""
    raise UserError("the benchmarks are not part of the installed package; run `isthmus bench` from a checkout")
