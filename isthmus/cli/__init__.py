"""The command line. Every command imports what it needs when it is called, so that help answers at once."""

from __future__ import annotations

import sys

import typer

from isthmus.bench.command import app as bench
from isthmus.cli import applying, knowing, runs, studying, training
from isthmus.errors import UserError

app = typer.Typer(
    help="Find, train and explain the shape of residual networks: wide skips, narrow computation.",
    epilog="Runs, reports and caches live in ISTHMUS_HOME (default ~/.isthmus), data files in ISTHMUS_DATA.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _part in (studying, training, applying, knowing):
    app.add_typer(_part.app)
app.add_typer(runs.app, name="runs")
app.add_typer(bench, name="bench")


def main() -> None:
    """Run the command line. What a user did wrong is one line and exit code 2; a stop is 130."""
    try:
        app(prog_name="isthmus")
    except UserError as error:
        _fail(str(error))
    except SystemExit as end:
        if end.code == 130:  # what Typer makes of a KeyboardInterrupt
            _fail("stopped; the same command goes on where it stopped", 130)
        raise
    except BrokenPipeError:  # `isthmus runs list | head`
        sys.stderr.close()
    except MemoryError:
        _fail("out of memory; a smaller model or batch would fit")
    except RuntimeError as error:  # torch's own kinds of it
        if "memory" not in str(error):
            raise
        _fail("out of memory; a smaller model or batch would fit")
    except OSError as error:  # a full or unwritable disk, where no message of ours was nearer
        _fail(f"{error.filename or 'the disk'}: {error.strerror or error}")


def _fail(message: str, code: int = 2) -> None:
    print(f"isthmus: {' '.join(message.splitlines())}", file=sys.stderr)
    sys.exit(code)
