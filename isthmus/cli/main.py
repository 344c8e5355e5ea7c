"""The command line. Commands import their dependencies when called, so that `--help` is fast."""

from __future__ import annotations

import difflib
import errno
import os
import re
import sys
import time
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any

import typer

from isthmus.cli import options
from isthmus.cli.analyze import analyze
from isthmus.cli.bench import add_bench
from isthmus.cli.demo import demo
from isthmus.cli.describe import describe
from isthmus.cli.doctor import doctor
from isthmus.cli.evaluate import evaluate
from isthmus.cli.export import export
from isthmus.cli.failures import fail, fail_unexpected
from isthmus.cli.find import find
from isthmus.cli.models import models
from isthmus.cli.pathways import pathways
from isthmus.cli.predict import predict
from isthmus.cli.recipes import recipes
from isthmus.cli.report import report
from isthmus.cli.reproduce import reproduce
from isthmus.cli.runs import app as runs
from isthmus.cli.scale import scale
from isthmus.cli.shapes import shapes
from isthmus.cli.sources import sources
from isthmus.cli.streams import discard_output, flush_output, open_streams, say
from isthmus.cli.studio import studio
from isthmus.cli.study import study
from isthmus.cli.tasks import tasks
from isthmus.cli.train import train
from isthmus.cli.verify_shape import verify_shape
from isthmus.core.errors import UserError, is_shortage

app = typer.Typer(
    help="Find, train and explain the shape of residual networks: wide skips, narrow computation.",
    epilog="Runs, reports and caches live in ISTHMUS_HOME (default ~/.isthmus), data files in ISTHMUS_DATA.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    demo, find, studio, verify_shape, study, scale, reproduce, train, export, predict, analyze, evaluate, report,
    models, pathways, sources, tasks, recipes, describe, shapes, doctor,
):  # fmt: skip
    app.command()(command)
app.add_typer(runs, name="runs")
add_bench(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        import isthmus

        print(f"isthmus {isthmus.__version__}")
        raise typer.Exit


@app.callback()
def _accept_version(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


_INTERRUPTED = 130
"""Typer's exit code for a KeyboardInterrupt."""
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EBADF}


def main() -> None:
    """Run the command line.

    A user error prints one line and exits with 2, an unexpected error two lines and 1; a signal exits with 130 or 143.
    """
    from isthmus.core.interrupts import end_on_signals, exit_code

    options.started = time.monotonic()
    open_streams()
    with end_on_signals():
        try:
            code = _run()
            if code == _INTERRUPTED:
                if os.environ.get("RANK", "0") == "0":  # under torchrun, only the first process prints
                    say("isthmus: stopped; repeat the command to resume")
                code = exit_code()
        except KeyboardInterrupt:  # a second signal during the shutdown
            code = exit_code()
    sys.exit(code)


@cache
def _command() -> Any:
    """The parser of all commands, built once."""
    return typer.main.get_command(app)


def _run() -> int:
    """Run the command that was typed; returns its exit code."""
    from isthmus.core.interrupts import was_interrupted

    try:
        code = _command().main(prog_name="isthmus", standalone_mode=False) or 0
        flush_output()
    except UserError as error:
        return fail(str(error), error)
    except SystemExit as end:  # Rich and Typer exit so when the pipe is closed: `isthmus runs list | head`
        discard_output()
        return end.code if isinstance(end.code, int) else 1
    except OSError as error:
        discard_output()
        return _fail_on_disk(error)
    except typer.Abort as error:
        if was_interrupted():  # at the prompt
            return _INTERRUPTED
        return fail("the prompt got no answer; pass --yes to skip it", error)
    except Exception as error:
        if hasattr(error, "format_message"):  # Typer's usage errors, whose class it does not export
            return _fail_on_usage(error)
        if is_shortage(error):
            return fail("out of memory; use a smaller model or train.batch_size", error)
        return fail_unexpected(error)
    return int(code)


def _fail_on_disk(error: OSError) -> int:
    """A full or unwritable disk that no other code reported."""
    if error.errno == errno.EPIPE:
        return 1
    if error.filename is None and error.errno not in _DISK_ERRORS:
        return fail_unexpected(error)
    where = "the disk" if error.filename is None else str(error.filename)
    return fail(f"{where}: {error.strerror or error}", error)


def _fail_on_usage(error: Any) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":  # the help was shown
        return 2
    message = " ".join(error.format_message().split()).rstrip(".")
    path = context.command_path if context is not None else "isthmus"
    advice = f"`{path} -h` shows the usage"
    parameters = context.command.params if context is not None else []
    if message.startswith("Missing"):
        advice = f"type `{path} {' '.join(_show(each) for each in parameters if each.required)}`; {advice}"
    elif message.startswith("No such option") and _is_setting(error.option_name, parameters):
        advice = f"settings are typed as key=value, such as train.epochs=20; {advice}"
    elif message.startswith("No such command") and os.path.exists(sys.argv[1]):  # noqa: PTH110 (any text is allowed)
        advice = f"type `isthmus find {sys.argv[1]}` for your data; {advice}"
    message = re.sub(r"\.? Did you mean", "; did you mean", f"{message[:1].lower()}{message[1:]}")
    return fail(f"{message}{'' if message.endswith('?') else ';'} {advice}", error)


def _is_setting(option: str, parameters: Sequence[Any]) -> bool:
    """Whether a command takes settings, and has no option of nearly this name."""
    names = [name for each in parameters for name in each.opts]
    return "overrides" in names and not difflib.get_close_matches(option, names, n=1, cutoff=0.75)


def _show(parameter: Any) -> str:
    """A required parameter as the user would type it."""
    name = parameter.name.upper()
    return name if parameter.param_type_name == "argument" else f"{parameter.opts[0]} {name}"
