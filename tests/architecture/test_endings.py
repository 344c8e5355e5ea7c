"""How commands end: whatever happens to the streams, the home folder or the process, nobody sees a traceback."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from isthmus.cli import failures, terminal
from isthmus.cli.failures import LONGEST, shorten
from isthmus.cli.streams import escape
from isthmus.core.errors import UserError
from isthmus.core.files import as_cell, home, write_text
from isthmus.core.record import CONFIG, RECORD, find_run, read_record
from isthmus.sources.streaming import write_columns
from tests.command_line import call, tiny, train
from tests.training.bits import weights, without_time

PROGRAM = [sys.executable, "-m", "isthmus"]
MARKUP = "[/x] [red]b[/red] :cat:"
"""Rich would refuse the first part, swallow the second and draw the third."""


def isthmus(*arguments: object, shell: str = "", **variables: str) -> subprocess.CompletedProcess[bytes]:
    """``isthmus ARGUMENTS`` in a process of its own, with the redirections that a shell makes."""
    command = ["sh", "-c", f'exec "$@" {shell}', "sh", *PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, env=os.environ | variables, check=False)


@pytest.mark.parametrize(("sent", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_while_the_commands_are_imported(sent: str, code: int) -> None:
    script = f"""
import os, signal, sys
class Sender:
    def find_spec(self, name, *others):
        if name == "isthmus.cli.main":
            os.kill(os.getpid(), signal.{sent})
sys.meta_path.insert(0, Sender())
from isthmus.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")


# Streams.


@pytest.mark.parametrize(
    ("shell", "code"), [(">&-", 0), ("2>&-", 0), ("<&-", 0), ("<&- >&- 2>&-", 0), (">/dev/full", 2), ("2>/dev/full", 0)]
)
def test_no_stream_is_needed(shell: str, code: int) -> None:
    done = isthmus("models", shell=shell)
    assert done.returncode == code, done
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr
    assert (b"No space left" in done.stderr) == (code == 2)


@pytest.mark.slow
def test_a_closed_stream_is_no_file_of_ours(tmp_path: Path) -> None:
    """The next file that is opened would get its number, and whatever is printed."""
    done = isthmus("train", tiny(tmp_path), "--json", shell=">&- 2>&-")
    assert done.returncode == 0
    (folder,) = (home() / "runs").iterdir()
    assert read_record(folder).status == "finished"


def test_a_question_without_anybody_to_answer(tmp_path: Path) -> None:
    folder = home() / "runs" / "0123"
    write_text(folder / CONFIG, "{}")
    for shell in ("<&-", "</dev/null"):
        done = isthmus("runs", "clean", "0123", shell=shell)
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
        assert b"--yes" in done.stderr
        assert folder.is_dir()


@pytest.mark.parametrize("arguments", [["models"], ["models", "--json"], ["--help"]], ids=" ".join)
def test_a_reader_that_leaves_early(arguments: list[str]) -> None:
    with subprocess.Popen([*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_an_encoding_without_our_characters() -> None:
    done = isthmus("shapes", "--omega", "2^12", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"\u2013" in done.stdout, "a minus sign that ASCII does not have"


def encoded(encoding: str, *arguments: object) -> tuple[int, bytes, str]:
    """``isthmus ARGUMENTS`` in this process, with an output of that encoding."""
    output = io.BytesIO()
    with io.TextIOWrapper(output, encoding=encoding) as stream:
        answer = call(*arguments, out=stream)
        stream.flush()
        return answer.code, output.getvalue(), answer.err


def test_json_says_it_in_ascii_where_it_must(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "café"))
    for encoding in ("ascii", "utf-8", "latin-1"):
        code, out, _ = encoded(encoding, "doctor", "--json")
        assert code == 0
        found = {line["subject"]: line["found"] for line in json.loads(out.decode(encoding))}
        assert found["ISTHMUS_HOME"] == str(tmp_path / "café")


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    """A file may have any bytes in its name."""
    place = tmp_path / os.fsdecode(b"\xff")
    place.mkdir()
    code, _, said = encoded("utf-8", "predict", "nothing", place / "x.npy")
    assert (code, said.count("\n")) == (2, 1)
    refused = call("train", tiny(tmp_path), f"source.path={place}", "source.name=arrays")
    assert (refused.code, "unexpected" in refused.err) == (2, False), refused
    code, out, said = encoded("utf-8", "train", tiny(place), "--json")
    assert code == 0, said
    assert json.loads(out)["status"] == "finished"
    run, rows = json.loads(out)["id"], place / "rows.npy"
    np.save(rows, np.zeros((2, 64), np.float32))
    for how in ([], ["--json"]):
        code, out, said = encoded("utf-8", "predict", run, rows, "--out", place / "out", *how)
        assert code == 0, said
        assert rb"\udcff" in out


# Markup.


def test_text_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.out.print(MARKUP)
    terminal.print_table(MARKUP, [MARKUP], [[MARKUP]])
    terminal.err.print(MARKUP)
    with terminal.TrainingDisplay("psnr") as training:
        training.line({"split": "validation", "epoch": 1, "loss": 1.0, MARKUP: 2.0})
        training.progress.update(training.task, news=MARKUP)
        training.progress.refresh()
    with terminal.StudyDisplay(1.0, 1, 0) as study:
        study.advance("run", 1.0, 0.5, MARKUP)
        study.progress.refresh()
        study.finish("run", 1.0, MARKUP, MARKUP)
    said = capsys.readouterr()
    assert said.out.count(MARKUP) == 4
    assert said.err.count(MARKUP) >= 3


def test_a_bar_shows_names_as_they_are() -> None:
    """Where somebody watches."""
    watched = io.StringIO()
    console = Console(file=watched, force_terminal=True, width=120, markup=False, emoji=False)
    study = terminal.StudyDisplay(1.0, 1, 0)
    study.progress.live.console = console
    study.advance("run", 1.0, 0.5, MARKUP)
    console.print(study.progress.get_renderable())
    assert MARKUP in watched.getvalue()


@pytest.mark.parametrize("name", ["[/x]", "[red]x[/red]", ":cat:", "a[b] \\[c]"])
def test_runs_clean_names_what_it_removes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / name
    monkeypatch.setenv("ISTHMUS_HOME", str(place))
    record = train(tmp_path)
    assert str(place) in call("train", tiny(tmp_path)).err
    assert str(place) in call("doctor").out.replace("\n", "")
    (folder,) = (place / "runs").iterdir()
    page = call("report", "--out", place / "page", "--title", name)
    assert page.out.strip() == str(place / "page" / "index.html")
    assert call("predict", record["id"], tmp_path / f"{Path(name).name}.npy").code == 2
    cleaned = call("runs", "clean", record["id"], "--yes")
    assert cleaned.out.strip() == str(folder)
    assert not folder.exists()


# Folders.


def test_a_loop_of_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train(tmp_path)["id"]
    np.save(tmp_path / "rows.npy", np.zeros((2, 64), np.float32))
    for name in ("loop", "loop.npy", "loop.json", "loop.csv"):
        (tmp_path / name).symlink_to(tmp_path / name)
    loop = tmp_path / "loop"
    table = {"name": "arrays", "path": str(tmp_path / "loop.csv"), "targets": "y"}
    for arguments in (
        ["predict", run, tmp_path / "loop.npy"],
        ["predict", run, tmp_path / "rows.npy", "--out", loop],
        ["predict", run, tmp_path / "rows.npy", "--out", loop / "inside"],
        ["predict", loop, tmp_path / "rows.npy"],
        ["export", run, "--to", "safetensors", "--out", loop],
        ["report", loop],
        ["report", "--out", loop],
        ["runs", "clean", loop, "--yes"],
        ["train", tmp_path / "loop.json"],
        ["train", tiny(tmp_path, source=table, task={"name": "regression"})],
        ["train", tiny(tmp_path, source={"name": "mnist"}), "--data-dir", loop],
    ):
        answer = call(*arguments)
        assert answer.code == 2, (arguments, answer)
        assert "loop" in answer.err
    monkeypatch.setenv("ISTHMUS_HOME", str(loop))
    assert "ISTHMUS_HOME" in call("train", tiny(tmp_path)).err
    assert call("runs", "list", "--json").json() == []
    assert call("doctor").code in (0, 1)


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container: HOME is not set, and the user has no entry."""

    def unknown(number: int) -> None:
        raise KeyError(number)

    for name in ("HOME", "ISTHMUS_HOME", "ISTHMUS_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)


def test_without_a_home_the_variable_to_set_is_named(homeless: None, tmp_path: Path) -> None:
    for arguments in (["runs", "list"], ["train", tiny(tmp_path)], ["predict", "x", "y.npy"], ["report"]):
        answer = call(*arguments)
        assert (answer.code, answer.err.count("\n")) == (2, 1), answer
        assert "set ISTHMUS_HOME" in answer.err
    assert "set ISTHMUS_HOME" in call("doctor").out.replace("\n", "")
    assert call("models").code == 0


def test_with_the_variable_no_home_is_needed(homeless: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "here"))
    assert train(tmp_path)["status"] == "finished"
    refused = call("predict", "~/run", "x.npy")
    assert (refused.code, refused.err.count("\n")) == (2, 1)


# Unforeseen errors.


def _report(line: str) -> str:
    path = Path(line.rpartition(" is in ")[2])
    assert path.stat().st_mode & 0o077 == 0, "for its owner only"
    return path.read_text()


def test_an_unforeseen_error_is_two_lines_and_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise KeyError(f"\x1b[31m{MARKUP}\n" + "x" * 1000)

    monkeypatch.setattr("isthmus.studies.runs.overview", fail)
    answer = call("runs", "list", "--json")
    what, where = answer.err.splitlines()
    assert answer.code == 1
    assert "KeyError" in what
    assert "\x1b" not in answer.err, "a terminal would obey it"
    assert max(map(len, (what, where))) <= LONGEST
    report = _report(where)
    assert str(home()) in where
    assert all(part in report for part in ("Traceback", "x" * 1000, "isthmus runs list --json", "torch ", "python "))
    monkeypatch.setenv("ISTHMUS_TRACEBACK", "1")
    assert "Traceback" in call("runs", "list").err


def test_a_report_finds_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("isthmus.studies.runs.overview", fail)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "file").touch()
    for place in (tmp_path / "file" / "below", tmp_path / ("long/" * 60)):
        monkeypatch.setenv("ISTHMUS_HOME", str(place))
        where = call("runs", "list").err.splitlines()[1]
        assert str(tmp_path / "temporary") in where
        assert "ZeroDivisionError" in _report(where)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    answer = call("runs", "list")
    assert (answer.code, answer.err.count("\n")) == (1, 2)


def test_few_reports_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "_KEPT", 3)
    for _ in range(6):
        assert failures.write_report("message", ValueError("x"))
    assert len(list((home() / "errors").iterdir())) == 3


@given(st.text(max_size=900))
def test_a_line_keeps_its_beginning_and_its_end(text: str) -> None:
    line = shorten(text)
    assert len(line) <= LONGEST
    with mock.patch("sys.stderr", io.TextIOWrapper(io.BytesIO(), encoding="latin-1")):
        assert len(escape(shorten(escape(text)))) <= LONGEST
    assert line == text if len(text) <= LONGEST else line.startswith(text[:150]) and line.endswith(text[-80:])


@pytest.mark.parametrize(
    ("error", "code", "lines"),
    [
        (UserError("x" * 5000), 2, 2),
        (UserError("\x1b" * 280), 2, 2),
        (UserError("two\nlines"), 2, 1),
        (MemoryError(), 2, 1),
        (OSError(errno.ENOSPC, "No space left on device"), 2, 1),
        (OSError(errno.ENAMETOOLONG, "File name too long", "x" * 5000), 2, 2),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), 1, 2),
        (RecursionError("maximum recursion depth exceeded"), 1, 2),
        (KeyboardInterrupt(), 130, 2),  # an empty line ends the one with ^C
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 1, 0),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_every_error_has_its_code(error: BaseException, code: int, lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr("isthmus.studies.runs.overview", fail)
    answer = call("runs", "list")
    assert answer.code == code
    said = [line for line in answer.err.splitlines() if line]
    assert len(said) == min(lines, 1 if code == 130 else lines)
    assert all(line.startswith("isthmus: ") and len(line) <= LONGEST for line in said)


@pytest.mark.parametrize(
    "arguments", [["--[/x]"], ["[/x]"], ["train"], ["train", "--devices", "[/x]", "y"], ["runs", "x" * 9000]]
)
def test_a_wrong_command_line_is_one_line(arguments: list[str]) -> None:
    answer = call(*arguments)
    first, *more = answer.err.splitlines()
    assert answer.code == 2
    assert len(first) <= LONGEST
    assert "-h`" in first
    assert len(more) == (len(arguments[-1]) > LONGEST)


# Leftovers.


def _left_behind(folder: Path) -> list[Path]:
    """What a process leaves that is killed after it wrote the record, and one that is killed while it writes."""
    files = [folder / name for name in ("state-3.safetensors", "state.json", f".{RECORD}.abcd1234.json")]
    for file in files:
        file.write_bytes(b"half")
    return files


@pytest.mark.parametrize("look", ["train", "list"])
def test_leftovers_of_a_finished_run_are_removed_at_the_next_look(look: str, tmp_path: Path) -> None:
    folder = find_run(train(tmp_path)["id"])
    left = _left_behind(folder)
    kept = {path.name: path.read_bytes() for path in folder.iterdir() if path not in left and path.name != ".lock"}
    assert call("train", tiny(tmp_path)).code == 0 if look == "train" else call("runs", "list").code == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"} == kept
    assert RECORD in kept


def test_leftovers_stay_while_another_process_owns_the_folder(tmp_path: Path) -> None:
    from filelock import FileLock

    folder = find_run(train(tmp_path)["id"])
    left = _left_behind(folder)
    with FileLock(folder / ".lock"):
        assert call("train", tiny(tmp_path)).code == 0
        assert all(path.exists() for path in left)
    (folder / RECORD).write_text("{}")
    assert call("runs", "list").code == 0
    assert all(path.exists() for path in left), "the state may be all that is left of a run without a record"


def test_temporary_files_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    abandoned = tmp_path / "out" / ".a[1].txt.abcd1234.txt"
    others = [tmp_path / "out" / name for name in (".a[1].txt", ".a[1].txt.backup.txt", ".b.txt.abcd1234.txt")]
    for path in (abandoned, *others):
        path.write_text("half")
    write_text(tmp_path / "out" / "a[1].txt", "whole")
    assert not abandoned.exists()
    assert all(path.exists() for path in others), "files of others, or of a file that was not written"


def test_a_temporary_file_in_use_is_not_removed(tmp_path: Path) -> None:
    write = (
        "import sys; from pathlib import Path; from isthmus.core.files import write_with\n"
        "def slowly(path):\n"
        "    path.write_text('theirs'); print('writing', flush=True); sys.stdin.read()\n"
        "write_with(Path(sys.argv[1]), slowly)"
    )
    target = tmp_path / "a.txt"
    command = [sys.executable, "-c", write, str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == b"writing\n"
        write_text(target, "ours")
        other.stdin.close()
        assert other.wait() == 0
    assert target.read_text() == "theirs"


def test_an_abandoned_export_is_removed(tmp_path: Path) -> None:
    run = train(tmp_path)["id"]
    abandoned = tmp_path / ".model.abcd1234"
    abandoned.mkdir()
    (abandoned / "model.onnx").touch()
    assert call("export", run, "--to", "safetensors", "--out", tmp_path / "model").code == 0
    assert not abandoned.exists()


@pytest.mark.parametrize("content", ["", "{", "null", '{"seed": 1}'])
def test_a_damaged_config_of_an_unfinished_run_is_written_again(content: str, tmp_path: Path) -> None:
    record = train(tmp_path, "train.epochs=2")
    folder = find_run(record["id"])
    whole = (folder / CONFIG).read_bytes()
    (folder / RECORD).unlink()
    (folder / CONFIG).write_text(content)
    assert train(tmp_path, "train.epochs=2")["metrics"] == record["metrics"]
    assert (folder / CONFIG).read_bytes() == whole
    assert [line["status"] for line in call("runs", "list", "--json").json()] == ["finished"]


def test_an_unfinished_run_with_another_digit_in_its_config_is_listed_as_damaged(tmp_path: Path) -> None:
    """Once, the list showed a depth of 7 for a network of one block (`make fuzz`, seed 16, file 278)."""
    folder = find_run(train(tmp_path, "train.epochs=2")["id"])
    (folder / RECORD).unlink()

    def list_statuses() -> list[str]:
        return [line["status"] for line in call("runs", "list", "--json").json()]

    assert list_statuses() == ["unfinished"]
    config = (folder / CONFIG).read_text()
    depth = json.loads(config)["model"]["depth"]
    (folder / CONFIG).write_text(config.replace(f'"depth": {depth}', f'"depth": {depth + 6}'))
    assert list_statuses() == ["damaged"]


# Signals.

LONG = {"epochs": 40, "batch_size": 64}


def stopped(command: list[str], when: Callable[[], object], number: int, group: bool) -> tuple[int, str]:
    """The exit code, and what was said, of a program that gets a signal as soon as something holds."""
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    until = time.monotonic() + 120
    while not when():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.01)
    (os.killpg if group else os.kill)(process.pid, number)
    _, said = process.communicate()
    return process.returncode, said


def lines_of_logs() -> int:
    return sum(path.read_text().count("\n") for path in (home() / "runs").glob("*/metrics.jsonl"))


def compare_with_undisturbed(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *more: str) -> None:
    """The run goes on to the bits of one that was never disturbed."""
    (folder,) = (home() / "runs").iterdir()
    assert not (folder / RECORD).exists()
    assert (folder / "state.json").exists()
    assert call("train", file, *more).code == 0
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "undisturbed"))
    assert call("train", file, *more).code == 0
    whole = home() / "runs" / folder.name
    assert weights(folder) == weights(whole)
    assert without_time(folder) == without_time(whole)


def test_sigterm_saves_and_the_same_command_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the same way: test_commands.py."""
    file = tiny(tmp_path, train=LONG)
    command = [*PROGRAM, "train", str(file)]
    ended, said = stopped(command, lambda: lines_of_logs() > 2, signal.SIGTERM, group=False)
    assert ended == 143
    assert said.splitlines()[-1].startswith("isthmus: stopped; repeat the command")
    compare_with_undisturbed(file, monkeypatch, tmp_path)


def test_a_second_sigterm_does_not_disturb_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`timeout` sends it to the process and to its group."""
    step = terminal.TrainingDisplay.step

    def terminated(display: terminal.TrainingDisplay, number: int, steps: int) -> None:
        step(display, number, steps)
        if number == 4:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    file = tiny(tmp_path, train=LONG)
    with monkeypatch.context() as patch:
        patch.setattr(terminal.TrainingDisplay, "step", terminated)
        answer = call("train", file)
    assert answer.code == 143
    assert signal.getsignal(signal.SIGTERM) is before
    compare_with_undisturbed(file, monkeypatch, tmp_path)


def test_a_signal_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is trained, the command ends at once."""
    run = train(tmp_path)["id"]

    def terminated(*arguments: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    monkeypatch.setattr("isthmus.export.formats.compare_outputs", terminated)
    answer = call("export", run, "--to", "safetensors", "--out", tmp_path / "out")
    assert answer.code == 143
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


STUDY: dict[str, Any] = {
    "name": "two",
    "base": {"source": {"name": "digits"}, "task": {"name": "denoise"}, "train": {"epochs": 40}, "threads": 1},
    "spaces": [{"model": {"name": "hourglass_mlp", "depth": 1, "d_z": 65}, "vary": {"d_h": [4, 8]}}],
}


@pytest.mark.slow
@pytest.mark.parametrize("group", [False, True], ids=["driver", "group"])
@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_saves_the_runs_of_a_study(
    workers: int, group: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "two.json").write_text(json.dumps(STUDY))
    arguments = ["study", str(tmp_path / "two.json"), "--workers", str(workers)]
    logs = lambda: list((home() / "runs").glob("*/metrics.jsonl"))  # noqa: E731
    ended, said = stopped([*PROGRAM, *arguments], lambda: len(logs()) == workers, signal.SIGTERM, group)
    assert ended == 143, said
    assert said.splitlines()[-1].startswith("isthmus: stopped; repeat the command")
    begun = [log.parent for log in logs() if not (log.parent / RECORD).exists()]
    assert begun
    assert all((folder / "state.json").exists() for folder in begun)
    assert call(*arguments).code == 0
    runs = sorted(home().glob("runs/*"))
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "undisturbed"))
    assert call(*arguments[:2], "--workers", 1).code == 0
    assert [weights(folder) for folder in runs] == [weights(folder) for folder in sorted(home().glob("runs/*"))]


@pytest.mark.slow
@pytest.mark.parametrize(("torchrun", "group"), [(False, False), (False, True), (True, False)])
def test_sigterm_saves_on_several_devices(
    torchrun: bool, group: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lightning_fabric")
    file = tiny(tmp_path, train={"epochs": 30, "batch_size": 200})
    launch = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2", "-m"]
    program = [sys.executable, *(launch if torchrun else ["-m"]), "isthmus"]
    command = [*program, "train", str(file), "--devices", "2"]
    ended, said = stopped(command, lambda: lines_of_logs() > 2, signal.SIGTERM, group)
    assert ended == (1 if torchrun else 143), said  # torchrun has its own words for it
    assert "isthmus: stopped; repeat the command" in said
    compare_with_undisturbed(file, monkeypatch, tmp_path, "--devices", "2")


# Cells.


@given(st.text(max_size=8) | st.floats().map(str) | st.sampled_from(["-5 to 5", "=cmd()", "+x", "@x", "-1e-3", "+3"]))
def test_no_text_is_a_formula_and_no_number_is_text(text: str) -> None:
    cell = as_cell(text)
    assert cell in (text, f"'{text}")
    try:
        is_number = bool(text) and text.isascii() and "_" not in text and np.isfinite(float(text)) and text[-1] > " "
    except ValueError:
        is_number = False
    if cell[:1] in ("=", "+", "-", "@", "\t", "\r"):
        assert is_number
    if is_number and text[0] > " ":
        assert cell == text


def test_predictions_are_no_formulas(tmp_path: Path) -> None:
    words: dict[str, Any] = {"=a": np.array(["=1+1", "plain"]), "b": ["-5 to 5", "-5"]}
    write_columns(tmp_path / "words.csv", iter([words]))
    numbers = {"a": np.array([-1.5, 3.0]), "b": np.array([1e-9, -1e30])}
    write_columns(tmp_path / "numbers.csv", iter([numbers]))
    texts = [(tmp_path / name).read_text() for name in ("words.csv", "numbers.csv")]
    read = [list(csv.reader(text.splitlines())) for text in texts]
    assert read[0] == [["'=a", "b"], ["'=1+1", "'-5 to 5"], ["plain", "-5"]]
    assert read[1] == [["a", "b"], ["-1.5", "1e-09"], ["3", "-1e+30"]]
