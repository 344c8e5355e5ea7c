"""The designer: fields, costs, drawings, fitting, and the training of a design."""

from __future__ import annotations

import re
import time
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

import isthmus
from isthmus.core.protocols import Signature
from isthmus.studio.designs import fit_to_budget, read_design, sketch
from isthmus.studio.problems import first_settings
from isthmus.studio.server import create_app

HERE = "http://127.0.0.1:8642"
DIGITS = Signature((1, 8, 8), (10,))


@pytest.fixture
def client() -> TestClient:
    return TestClient(create_app(), base_url=HERE, follow_redirects=False)


def _number(text: str, name: str = "parameters") -> int:
    found = re.search(f"data-number='{name}'>([0-9,]+)<", text)
    assert found, text
    return int(found[1].replace(",", ""))


def test_fields_give_the_cost_that_isthmus_counts(client: TestClient) -> None:
    fields = {"model": "hourglass_mlp", "d_z": 96, "d_h": 12, "depth": 3}
    text = client.get(f"/design?{urlencode(fields)}").text
    model = isthmus.create_model("hourglass_mlp", d_in=64, d_out=10, d_z=96, d_h=12, depth=3)
    assert _number(text) == isthmus.cost(model).params
    assert _number(text, "multiply-adds") == isthmus.cost(model).macs
    assert "stream d_z 96" in text
    assert "hidden d_h 12 × 3 blocks" in text
    assert "isthmus describe hourglass_mlp d_in=64 d_out=10 d_z=96 d_h=12 depth=3" in text
    parts = client.get(f"/parts/design?{urlencode(fields | {'depth': 4})}").json()
    assert _number(parts["network"]["html"]) > _number(text)
    assert "type='range'" in text


def test_every_field_that_a_person_chooses_has_a_control(client: TestClient) -> None:
    text = client.get("/design?model=hourglass_mlp").text
    for name in ("d_z", "d_h", "depth", "norm", "activation", "w_in", "init", "residual_scale", "pathway"):
        assert re.search(f"<(input|select)[^>]* name='{name}'", text), name
    assert "name='d_in'" not in text  # the task's


def test_what_cannot_be_is_said(client: TestClient) -> None:
    for fields, said in (
        ({"d_z": 8, "d_h": 9}, "must be below d_z=8"),
        ({"d_z": "wide"}, "d_z"),
        ({"depth": 10**9}, "depth"),
        ({"fit": "much"}, "not a number of parameters"),
        ({"fit": "3"}, "fits 3 parameters"),
        ({"pathway": "<script>"}, "&lt;script&gt;"),
    ):
        answer = client.get(f"/design?{urlencode({'model': 'hourglass_mlp'} | fields)}")
        assert answer.status_code == 200, fields
        assert "role='alert'" in answer.text, fields
        assert said in answer.text, fields
    assert client.get("/design?model=nonsense").status_code == 400
    assert client.get("/design?problem=nonsense").status_code == 400


def test_a_design_is_fitted_to_a_budget(client: TestClient) -> None:
    fields = {"model": "hourglass_mlp", "d_z": 40, "d_h": 10, "depth": 5}
    params = _number(client.get(f"/design?{urlencode(fields | {'fit': '20k'})}").text)
    assert 18_000 < params <= 20_000
    design = read_design(DIGITS, "hourglass_mlp", {name: str(value) for name, value in fields.items()})
    fitted = fit_to_budget(DIGITS, design, 20_000)
    assert fitted["depth"] == 5
    assert fitted["d_h"] / fitted["d_z"] == pytest.approx(1 / 4, rel=0.05)  # the shape is kept


def test_two_designs_stand_side_by_side_on_one_scale(client: TestClient) -> None:
    fields = {"model": "hourglass_mlp", "d_z": 96, "d_h": 12, "depth": 3}
    other = urlencode({"model": "conventional_mlp", "d_z": 16, "d_h": 64, "depth": 2})
    text = client.get(f"/design?{urlencode(fields | {'other': other})}").text
    assert "This design" in text
    assert "Kept design" in text
    assert text.count("<svg") == 2
    assert "does not fit" in client.get(f"/design?{urlencode(fields | {'other': 'model=hyper_set&d=7'})}").text


def test_iterations_and_pathways_are_drawn(client: TestClient) -> None:
    settings = first_settings(DIGITS, "recurrent_transformer", 50_000)
    texts = {name: str(value) for name, value in settings.items() if name != "name"} | {"iterations": "3"}
    drawn = sketch(read_design(DIGITS, "recurrent_transformer", texts).model)
    assert drawn["iterations"] == 3
    assert drawn["d_h"] > drawn["d_z"] > 0
    plain = client.get("/design?model=hourglass_mlp").text
    text = client.get("/design?model=hourglass_mlp&init=depth_scaled_w2&pathway=delayed/parallel").text
    assert "pathway delayed" in text.partition("<svg")[2]
    assert "pathway" not in plain.partition("<svg")[2].partition("</svg>")[0]


def test_a_design_is_trained(client: TestClient) -> None:
    form = {"model": "hourglass_mlp", "d_z": 32, "d_h": 8, "depth": 1, "epochs": "1", "batch_size": "600"}
    wrong = client.post("/design/train", content=urlencode(form | {"epochs": "0"}), headers={"Origin": HERE})
    assert wrong.status_code == 409
    answer = client.post("/design/train", content=urlencode(form), headers={"Origin": HERE})
    assert answer.status_code == 303
    page = client.get(answer.headers["Location"]).text
    assert "training: hourglass_mlp d_z=32 d_h=8 depth=1" in page
    assert "isthmus train" in page
    client.post(re.findall('action="(/jobs/[0-9a-f]+/stop)"', page)[0], headers={"Origin": HERE})
    ends = time.monotonic() + 30
    while "Resume</button>" not in client.get(answer.headers["Location"]).text:
        assert time.monotonic() < ends
        time.sleep(0.1)
