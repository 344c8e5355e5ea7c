"""Dropped files, their limits, and the search that they start."""

from __future__ import annotations

import io
import re
import stat
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from isthmus.core.errors import UserError
from isthmus.core.files import home
from isthmus.studio import opened
from isthmus.studio.opened import Shelf, clean_name, unpack_images
from isthmus.studio.server import create_app
from isthmus.studio.start import Choice, make_plan

HERE = "http://127.0.0.1:8642"
FROM_HERE = {"Origin": HERE}
TABLE = "a,b,price\n" + "".join(f"{x},{x % 5},{3 * x}\n" for x in range(60))


@pytest.fixture
def client() -> TestClient:
    return TestClient(create_app(), base_url=HERE, follow_redirects=False)


def _picture() -> bytes:
    made = io.BytesIO()
    Image.new("L", (8, 8), 200).save(made, "png")
    return made.getvalue()


def _zip(members: Mapping[str, bytes], **facts: int) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            member = zipfile.ZipInfo(name)
            member.external_attr = facts.get("mode", 0) << 16
            archive.writestr(member, content, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def _drop(client: TestClient, name: str, content: bytes) -> str:
    answer = client.put(f"/uploads/{name}", content=content, headers=FROM_HERE)
    assert answer.status_code == 200, answer.text
    page: str = answer.json()["page"]
    return page


def test_a_dropped_table_shows_its_columns_and_the_command(client: TestClient) -> None:
    page = _drop(client, "houses.csv", TABLE.encode())
    text = client.get(page).text
    assert "60 rows, 3 columns" in text
    assert re.search(r"isthmus find \S+/houses.csv --budget=50k --within=2m", text)
    text = client.get(f"{page}?target=b&task=classification&budget=2k&within=30s").text
    assert "--target=b --task=classification --budget=2k --within=30s" in text
    assert "data-copy=" in text
    assert _drop(client, "houses.csv", TABLE.encode()) == page  # the same content is the same data
    assert "houses.csv" in client.get("/start").text


def test_wrong_fields_are_said_on_the_page(client: TestClient) -> None:
    page = _drop(client, "houses.csv", TABLE.encode())
    for query, said in (("budget=many", "50k"), ("within=soon", "90s"), ("task=guess", "no task")):
        text = client.get(f"{page}?{query}").text
        assert "role='alert'" in text
        assert said in text
        assert client.post(page, content=query, headers=FROM_HERE).status_code == 409


def test_a_value_is_never_an_option() -> None:
    data = opened.Opened("0" * 12, "/data/a.csv", "a.csv")
    words = Choice.read(data, {"target": "--help", "task": "regression"}).words
    assert words[:3] == ["find", "/data/a.csv", "--target=--help"]


def test_hostile_columns_stay_text(client: TestClient) -> None:
    page = _drop(client, "<b>x.csv", TABLE.replace("price", "<script>alert(1)</script>").encode())
    text = client.get(page).text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text


def test_arrays_show_their_shapes(client: TestClient) -> None:
    made = io.BytesIO()
    np.savez(made, x=np.zeros((20, 3)), y=np.zeros(20))
    text = client.get(_drop(client, "rows.npz", made.getvalue())).text
    assert "20 × 3, float64" in text
    made = io.BytesIO()
    np.savez(made, x=np.array([{}], dtype=object))
    assert "object" in client.get(_drop(client, "pickled.npz", made.getvalue())).text  # named, and never loaded


def test_a_column_of_the_only_array_can_be_predicted(client: TestClient) -> None:
    made = io.BytesIO()
    np.save(made, np.random.default_rng(0).normal(size=(60, 3)))
    page = _drop(client, "rows.npy", made.getvalue())
    assert "<option value='2'>column 2</option>" in client.get(page).text
    chosen = Choice(Shelf(home()).newest()[0], target="2")
    assert "column 2" in make_plan(chosen).title or "regression of 2" in make_plan(chosen).title


def test_embedded_data_show_columns_or_images(client: TestClient) -> None:
    answer = client.post("/open", content="data=&data=bikes", headers=FROM_HERE)  # the button beside an empty field
    text = client.get(answer.headers["Location"]).text
    assert "1,200 rows, 8 columns" in text
    assert "<option value='rentals'>" in text
    opened = Shelf(home()).open("digits")
    assert all(each.startswith("data:image/png") for each in make_plan(Choice(opened)).pictures)
    assert len(make_plan(Choice(opened)).pictures) == 10


def test_a_zip_of_images_shows_thumbnails(client: TestClient) -> None:
    names = [f"all/{kind}/{number}.png" for kind in ("cat", "dog") for number in range(3)]
    content = _zip({**dict.fromkeys(names, _picture()), "all/notes.txt": b"no", "__MACOSX/all/cat/0.png": b"no"})
    page = _drop(client, "pets.zip", content)
    text = client.get(page).text
    assert "2 classes: cat, dog" in text
    assert client.get(f"{page}/pictures/5").headers["Content-Type"] == "image/png"
    assert client.get(f"{page}/pictures/6").status_code == 404
    assert not list(home().rglob("*.txt"))


@pytest.mark.parametrize(
    "name", ["../../evil.png", "/tmp/evil.png", "a/../../evil.png", "..\\evil.png", "C:\\evil.png"]
)
def test_no_archive_writes_outside_its_folder(client: TestClient, name: str) -> None:
    answer = client.put("/uploads/a.zip", content=_zip({name: _picture()}), headers=FROM_HERE)
    assert answer.status_code == 400
    assert "outside" in answer.json()["error"]
    assert not list(home().parent.rglob("evil.png"))
    assert not list((home() / "studio" / "uploads").glob(".*"))  # nothing is left behind


def test_links_bombs_and_other_kinds_are_refused(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, content: bytes, said: str) -> None:
        answer = client.put(f"/uploads/{name}", content=content, headers=FROM_HERE)
        assert answer.status_code == 400
        assert said in answer.json()["error"], answer.text

    refuse("a.zip", _zip({"a.png": b"/etc/passwd"}, mode=stat.S_IFLNK | 0o777), "link")
    refuse("a.zip", b"PK\x03\x04 no archive", "archive")
    refuse("a.zip", _zip({"notes.txt": b"x"}), "no images")
    refuse("a.pkl", b"x", "known kind")
    refuse("a.pt", b"x", "known kind")
    refuse("a.csv", b"", "empty")
    monkeypatch.setattr(opened, "_LARGEST_IMAGE", 1000)
    refuse("a.zip", _zip({"a.png": bytes(2000)}), "too large")
    monkeypatch.setattr(opened, "_LARGEST_UNPACKED", 500)
    refuse("b.zip", _zip({"a.png": bytes(600)}), "too large")
    made = io.BytesIO()
    np.savez_compressed(made, x=np.zeros(1000))
    refuse("a.npz", made.getvalue(), "too large")
    monkeypatch.setattr(opened, "_MOST_IMAGES", 2)
    refuse("c.zip", _zip(dict.fromkeys(["a.png", "b.png", "c.png"], b"x")), "too large")
    monkeypatch.setattr(opened, "LARGEST", 10)
    refuse("a.csv", b"x" * 11, "larger than")
    monkeypatch.setattr(opened, "_MOST_UPLOADS", 0)
    refuse("a.csv", b"x", "too many uploads")


def test_an_archive_that_lies_about_its_size_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytearray(_zip({"a.png": bytes(5000)}))
    place = content.index(b"PK\x01\x02") + 24  # the size in the list of members
    content[place : place + 4] = (10).to_bytes(4, "little")
    file = tmp_path / "a.zip"
    file.write_bytes(content)
    monkeypatch.setattr(opened, "_LARGEST_IMAGE", 1000)
    with pytest.raises(UserError):
        unpack_images(file, tmp_path / "images")
    assert sum(path.stat().st_size for path in (tmp_path / "images").rglob("*.png")) <= 1000


@pytest.mark.parametrize(
    ("given", "clean"),
    [
        ("../../a.csv", "a.csv"), ("C:\\x\\a.csv", "a.csv"), ("-rf.csv", "rf.csv"), ("a\n;b$(x).csv", "a__b_(x).csv"),
        (".csv", "csv"), ("x" * 300 + ".csv", "x" * 100 + ".csv"), ("маш ины.csv", "маш ины.csv"), ("", "data"),
    ],
)  # fmt: skip
def test_names_of_files_are_cleaned(given: str, clean: str) -> None:
    assert clean_name(given) == clean


def test_only_what_was_opened_is_read(client: TestClient, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text(TABLE)
    known = Shelf(home()).open(str(secret))
    assert client.get(f"/start/{known.id}").status_code == 200
    assert client.get("/start/000000000000").status_code == 404
    assert client.get("/start/..%2F..%2Fsecret").status_code == 404
    for data in (
        "/etc/passwd",
        "/dev/zero",
        "nothing.csv",
        "",
        "\0",
        "hub",
        "http://example.com/a.csv",
        str(home() / "x"),
    ):
        answer = client.post("/open", content=f"data={data}", headers=FROM_HERE)
        assert answer.status_code == 400, data
        assert "role='alert'" in answer.text
    assert client.post("/open", content="data=bikes", headers=FROM_HERE).status_code == 303
    secret.unlink()
    assert "not there any more" in client.get(f"/start/{known.id}").text


def test_a_plan_says_what_will_happen(client: TestClient) -> None:
    page = _drop(client, "houses.csv", TABLE.encode())
    ends = time.monotonic() + 60
    while "is reading the data" in (text := client.get(page).text):
        assert time.monotonic() < ends
        time.sleep(0.05)
    assert "regression of price on houses.csv" in text
    assert re.search(r"It begins with \d+ networks of \S+ to \S+.* parameters, cross-validated with 5 folds", text)
    broken = _drop(client, "few.csv", b"a,b\n1,2\n")
    while "is reading the data" in (text := client.get(broken).text):
        time.sleep(0.05)
    assert "give at least 10" in text


@pytest.mark.slow
def test_a_dropped_table_becomes_a_search(client: TestClient) -> None:
    page = _drop(client, "houses.csv", TABLE.encode())
    form = "target=price&budget=2k&within=20s"
    answer = client.post(page, content=form, headers=FROM_HERE)
    assert answer.status_code == 303
    problem = answer.headers["Location"]
    assert client.post(page, content=form, headers=FROM_HERE).status_code == 409  # it is running already
    ends = time.monotonic() + 270
    while "recommended run" not in (text := client.get(problem).text):
        assert time.monotonic() < ends, text
        time.sleep(0.5)
    assert "validation R²" in text
    assert "regression of price on houses.csv" in client.get("/").text
