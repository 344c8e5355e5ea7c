"""Files that are whole or absent, and the records that are read from them."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from isthmus.core import machine
from isthmus.core.errors import UserError
from isthmus.core.files import digest, read_json, read_sealed, sha256, write_json, write_sealed, write_text, write_with
from isthmus.core.machine import CAN_CHANGE_BITS, code_version
from isthmus.core.record import (
    METRICS,
    LogChecks,
    find_run,
    flatten,
    read_metrics,
    read_record,
    remove_leftovers,
    run_folders,
    runs_folder,
    verify_file,
    write_record,
)
from isthmus.training.samples import write_sheet, write_values
from tests.unit.fabricated_runs import record


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "file.txt"
    write_text(file, "old")

    def half(temporary: Path) -> None:
        temporary.write_text("ne")
        raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError):
        write_with(file, half)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_write_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    replace = Path.replace

    def rename(path: Path, target: Path) -> Path:
        order.append("rename")
        return replace(path, target)

    monkeypatch.setattr("os.fsync", lambda number: order.append("flush"))
    monkeypatch.setattr(Path, "replace", rename)
    write_text(tmp_path / "file", "text")
    assert order == ["flush", "rename"]


def test_written_files_are_for_everybody_to_read(tmp_path: Path) -> None:
    write_text(tmp_path / "deep" / "er" / "file", "text")
    assert (tmp_path / "deep" / "er" / "file").stat().st_mode & 0o777 == 0o644


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "")
    with pytest.raises(UserError, match="file/below"):
        write_text(tmp_path / "file" / "below" / "x", "")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="folder"):
        write_text(tmp_path / "folder", "")


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False)))
def test_the_digest_of_a_value_does_not_depend_on_its_order(value: dict[str, Any]) -> None:
    backwards = dict(reversed(value.items()))
    assert digest(value) == digest(backwards) == digest(json.loads(json.dumps(value)))
    assert digest(value | {"more": 1}) != digest(value | {"more": 2})
    assert len(digest(value, 16)) == 16


def test_not_a_number_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "x.json", {"loss": float("nan")})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "{", "nul", "[" * 100_000, "1" * 5_000])
def test_json_that_is_none_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UserError, match=r"x\.json is damaged"):
        read_json(tmp_path / "x.json")


def test_a_seal_is_broken_by_any_change(tmp_path: Path) -> None:
    file = tmp_path / "sealed.json"
    write_sealed(file, {"step": 41, "loss": 0.5})
    assert read_sealed(file) == {"step": 41, "loss": 0.5}
    whole = file.read_text()
    for altered in (
        whole.replace("41", "42"),
        whole.replace("0.5", "NaN"),
        whole.replace("checksum", "check"),
        "[]",
        "{}",
    ):
        file.write_text(altered)
        with pytest.raises(UserError, match="checksum does not match"):
            read_sealed(file)


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    write_record(tmp_path, record(reason="ÄÖ\n"))
    assert read_record(tmp_path) == record(reason="ÄÖ\n")
    assert record().quality() == 21.5
    assert record().quality("validation") is None


def test_a_record_of_another_schema_is_refused(tmp_path: Path) -> None:
    write_record(tmp_path, record(schema="isthmus.run/99"))
    with pytest.raises(UserError, match=r"has schema 'isthmus\.run/99'"):
        read_record(tmp_path)


def test_a_field_that_a_later_version_added_is_passed_over(tmp_path: Path) -> None:
    write_sealed(tmp_path / "record.json", vars(record()) | {"carbon": 3})
    assert read_record(tmp_path) == record()


def test_the_checksums_of_files(tmp_path: Path) -> None:
    write_text(tmp_path / "weights", "abc")
    known = record(files={"weights": sha256(tmp_path / "weights"), "gone": "0"})
    assert known.files["weights"].startswith("ba7816bf8f01cfea"), "SHA-256 of abc, from the standard"
    assert verify_file(tmp_path, "weights", known) == tmp_path / "weights"
    write_text(tmp_path / "weights", "abd")
    for name, words in {"weights": "damaged or was altered", "gone": "missing", "other": "has no file other"}.items():
        with pytest.raises(UserError, match=words):
            verify_file(tmp_path, name, known)


def make_runs(*names: str) -> None:
    for name in names:
        write_json(runs_folder() / name / "config.json", {})


def test_a_run_is_found_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    make_runs("aaaa1111", "aaaa2222", "bbbb3333")
    assert (
        find_run("bbbb") == find_run("bbbb3333") == find_run(runs_folder() / "bbbb3333") == runs_folder() / "bbbb3333"
    )
    with pytest.raises(UserError, match=r"'aaaa' matches 2 runs; give more of the id: aaaa1111, aaaa2222"):
        find_run("aaaa")
    for nothing in ("cccc", "", "../runs", tmp_path):
        with pytest.raises(UserError, match="there is no run"):
            find_run(nothing)


def test_folders_that_are_no_runs_are_passed_over(tmp_path: Path) -> None:
    make_runs("b", "a")
    (runs_folder() / "notes").mkdir()
    assert [folder.name for folder in run_folders()] == ["a", "b"]
    assert list(run_folders(runs_folder() / "a")) == [runs_folder() / "a"]
    assert list(run_folders(tmp_path / "nowhere")) == []


def test_a_cut_last_line_of_the_log_is_left_out(tmp_path: Path) -> None:
    assert read_metrics(tmp_path) == []
    (tmp_path / METRICS).write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert [line["step"] for line in read_metrics(tmp_path)] == [1, 2]


@pytest.mark.parametrize("line", ['{"step": 1', "5", "[]", "{}", "", "\N{SNOWMAN}"])
def test_other_damage_of_the_log_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / METRICS).write_text(f'{{"step": 1}}\n{line}\n{{"step": 3}}\n')
    with pytest.raises(UserError, match=r"metrics\.jsonl is damaged at line 2"):
        read_metrics(tmp_path)


def write_log(folder: Path, losses: list[float]) -> list[str]:
    """As a run writes it."""
    checks = LogChecks(folder.name)
    lines = [{"step": step, "split": "train", "loss": loss} for step, loss in enumerate(losses)]
    texts = [json.dumps(line | {"check": checks.add(line)}) for line in lines]
    (folder / METRICS).write_text("".join(f"{text}\n" for text in texts))
    return texts


@given(st.lists(st.floats(0, 100), min_size=2, max_size=6), st.data())
def test_whatever_happens_to_a_log_its_sealed_lines_are_as_written(losses: list[float], data: st.DataObject) -> None:
    """Lines change, lose their checksum, go, or change places: what is read is a beginning of the log, or an error."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = write_log(folder, losses)
        written = read_metrics(folder, sealed=True)
        assert [line["loss"] for line in written] == losses
        place = data.draw(st.integers(0, len(texts) - 1))
        content = json.loads(texts[place])
        how = data.draw(st.sampled_from(["value", "value without checksum", "gone", "swapped", "other run"]))
        if how == "gone":
            del texts[place]
        elif how == "swapped":
            texts[0], texts[place] = texts[place], texts[0]
        elif how == "other run":
            other = LogChecks("another")
            texts = [json.dumps(line | {"check": other.add(line)}) for line in written]
        else:
            content["loss"] = data.draw(st.floats(0, 100))
            content = {part: value for part, value in content.items() if how == "value" or part != "check"}
            texts[place] = json.dumps(content)
        (folder / METRICS).write_text("".join(f"{text}\n" for text in texts))
        try:
            found = read_metrics(folder, sealed=True)
        except UserError:
            return
        assert found == written[: len(found)]


def test_a_log_of_an_older_version_opens_and_decides_nothing(tmp_path: Path) -> None:
    (tmp_path / METRICS).write_text('{"step": 1}\n{"step": 2}\n')
    assert len(read_metrics(tmp_path)) == 2
    assert read_metrics(tmp_path, sealed=True) == []


def test_the_log_of_a_finished_run_is_compared_with_its_record(tmp_path: Path) -> None:
    write_log(tmp_path, [2.0, 1.0])
    write_record(tmp_path, record(id=tmp_path.name, files={METRICS: sha256(tmp_path / METRICS)}))
    assert len(read_metrics(tmp_path, sealed=True)) == 2
    (tmp_path / METRICS).write_text('{"step": 1}\n')
    for sealed in (False, True):
        with pytest.raises(UserError, match=METRICS):
            read_metrics(tmp_path, sealed=sealed)
    (tmp_path / METRICS).unlink()
    for sealed in (False, True):
        with pytest.raises(UserError, match="is missing"):
            read_metrics(tmp_path, sealed=sealed)


@pytest.mark.parametrize("name", [".record.json.abcd1234.json", ".tmpkskSt7", "state-1.safetensors"])
def test_what_a_killed_process_left_is_removed(name: str, tmp_path: Path) -> None:
    write_record(tmp_path, record(id=tmp_path.name))
    (tmp_path / name).write_bytes(b"half")
    remove_leftovers(tmp_path)
    assert not (tmp_path / name).exists()
    assert read_record(tmp_path).id == tmp_path.name


def test_flat() -> None:
    assert flatten({"a": 1, "b": {"c": {"d": 2}, "e": [3]}}) == {"a": 1, "b.c.d": 2, "b.e": [3]}


def test_the_code_version_sees_what_can_change_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.core.machine.__file__", str(tmp_path / "core" / "machine.py"))
    write_text(tmp_path / "models" / "a.py", "x = 1")
    write_text(tmp_path / "reports" / "b.py", "x = 1")
    before = code_version.__wrapped__()["digest"]
    write_text(tmp_path / "reports" / "b.py", "x = 2")
    write_text(tmp_path / "core" / "record.py", "x = 2")
    write_text(tmp_path / "tasks" / "row_prediction.py", "x = 2")
    assert code_version.__wrapped__()["digest"] == before, "what only reads records cannot change a run"
    write_text(tmp_path / "models" / "a.py", "x = 2")
    assert code_version.__wrapped__()["digest"] != before


# What only reads records, asks for runs, or writes down what was decided elsewhere.
WITHOUT_EFFECT = {
    "__init__.py", "__main__.py", "analysis/", "api/", "cli/", "core/__init__.py", "core/config.py", "core/costs.py",
    "core/errors.py", "core/fields.py", "core/files.py", "core/interrupts.py", "core/machine.py", "core/prediction.py",
    "core/record.py", "core/registry.py", "core/space.py", "core/titles.py", "core/units.py",
    "costs/", "export/", "papers/", "recipes/", "reports/", "search/", "sklearn/", "studies/", "studio/", "timm/",
}  # fmt: skip


def test_every_part_of_the_package_is_known_to_change_a_run_or_not() -> None:
    root = Path(machine.__file__).parents[1]
    parts = {f"{path.name}/" if path.is_dir() else path.name for path in root.iterdir() if path.name != "__pycache__"}
    inside = {f"core/{path.name}" for path in (root / "core").glob("*.py")}
    assert (parts | inside) - {"core/", "py.typed"} == {*CAN_CHANGE_BITS, *WITHOUT_EFFECT}
    assert not WITHOUT_EFFECT & {*CAN_CHANGE_BITS}


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
def test_a_sheet_of_samples(channels: int, tmp_path: Path) -> None:
    images = np.full((12, channels, 4, 4), 200, np.uint8)
    write_sheet(tmp_path / "sheet.png", [images, images[:, :, :2, :2], 0 * images])
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size == (10 * 90 + 6, 3 * 90 + 6)
        shown = [sheet.getpixel((48, 48 + 90 * line)) for line in range(3)]
    assert shown == [(200, 200, 200), (200, 200, 200), (0, 0, 0)]


def test_a_table_of_samples(tmp_path: Path) -> None:
    write_values(tmp_path / "values.csv", np.arange(24).reshape(12, 2), np.zeros((12, 2)))
    lines = (tmp_path / "values.csv").read_text().splitlines()
    assert lines[:2] == ["output_0,output_1,target_0,target_1", "0,1,0.0,0.0"]
    assert len(lines) == 11
