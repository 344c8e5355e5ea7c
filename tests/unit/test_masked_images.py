"""A tiny tokenizer and a tiny masked model on digits, from training to sheets, analyses and predictions."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from isthmus.analysis import reconstruction
from isthmus.cli.main import app
from isthmus.core.config import run_config
from isthmus.core.draws import torch_generator
from isthmus.core.errors import UserError
from isthmus.core.files import home, sha256
from isthmus.core.protocols import Signature
from isthmus.core.record import find_run
from isthmus.core.registry import component, find
from isthmus.training.loading import load_model
from isthmus.training.loop import Stopped
from isthmus.training.prepare import Options, learn_task, load_data
from isthmus.training.run import run
from isthmus.training.tokenizers import GREY, open_tokenizer
from tests.listeners import stop_after
from tests.unit.token_runs import DIGITS, TOKENIZER, masked


@pytest.fixture
def tokenizer():
    return run(run_config(TOKENIZER)).id


def tokens_of(reference, **fields):
    settings = {"name": "tokens", "tokenizer": reference, "images": DIGITS, **fields}
    return load_data(component("sources", settings))


def test_tokens_are_those_of_the_tokenizer_and_are_made_once(tokenizer, monkeypatch):
    data, images = tokens_of(tokenizer), load_data(component("sources", DIGITS))
    model: Any = load_model(tokenizer)
    with torch.no_grad():
        expected = model.tokens(torch.from_numpy(images.test.inputs).float() / 255)
    assert data.test.inputs.dtype == np.int16
    assert np.array_equal(data.test.inputs, expected.numpy())
    assert (data.vocabulary, len(data.train), data.test.targets) == (16, len(images.train), None)
    assert len(list((home() / "cache" / "tokens").glob("*.npy"))) == 3
    monkeypatch.setattr("isthmus.training.tokenizers.Tokenizer.tokens", None)  # would fail if it were asked again
    again = tokens_of(tokenizer)
    assert again.fingerprint == data.fingerprint != images.fingerprint
    assert np.array_equal(again.train.inputs, data.train.inputs)


def batch_of(reference, seed=0, step=4, **fields):
    data = tokens_of(reference)
    task = learn_task(component("tasks", {"name": "masked_tokens", **fields}), data)
    index = torch.tensor([5, 0, 9, 31, 7])
    rows = torch.from_numpy(data.train.inputs[index])
    whole = task.training_batch(rows, None, index, torch.zeros(5), seed, step)
    return torch.where(whole.target == -100, whole.input, whole.target), whole.input == 16


def test_tokens_of_cropped_and_mirrored_images_are_made_in_each_step(tokenizer):
    stored, mask = batch_of(tokenizer)
    square, _ = batch_of(tokenizer, random_crop=True)
    assert torch.equal(square, stored), "a square image has one crop, which is the image"
    mirrored, same_mask = batch_of(tokenizer, flip=True)
    assert torch.equal(mask, same_mask)
    kept = (mirrored == stored).all(dim=1)
    assert 0 < kept.sum() < 5, "some are mirrored"
    images = torch.from_numpy(load_data(component("sources", DIGITS)).train.inputs[[5, 0, 9, 31, 7]])
    model: Any = load_model(tokenizer)
    with torch.no_grad():
        expected = model.tokens(images.flip(-1).float() / 255)
    assert torch.equal(mirrored[~kept], expected[~kept])
    assert torch.equal(batch_of(tokenizer, flip=True)[0], mirrored), "a new task, as after a resume"
    assert any(not torch.equal(batch_of(tokenizer, flip=True, step=step)[0], mirrored) for step in (5, 6, 7))


def test_a_run_on_tokens_of_mirrored_images_resumes_exactly(tokenizer, tmp_path, monkeypatch):
    config = masked(str(find_run(tokenizer) / "model.safetensors"))
    config["task"] = config["task"] | {"flip": True}
    config["train"] = config["train"] | {"epochs": 2}
    whole = run(run_config(config))
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "parts"))
    for steps in (3, 6):
        with pytest.raises(Stopped):
            run(run_config(config), Options(save_every=1e9), stop_after(steps))
    parts = run(run_config(config))
    assert parts.files["model.safetensors"] == whole.files["model.safetensors"]
    assert parts.metrics == whole.metrics


def test_another_tokenizer_gives_other_data(tokenizer):
    other = run(run_config(TOKENIZER | {"seed": 1})).id
    assert tokens_of(other).fingerprint != tokens_of(tokenizer).fingerprint
    by_file = tokens_of(str(find_run(tokenizer) / "model.safetensors"))
    assert by_file.fingerprint == tokens_of(tokenizer).fingerprint, "the weights count, not what they are called"


def test_pictures_are_grey_where_a_token_is_hidden(tokenizer, tmp_path):
    opened = open_tokenizer(tokenizer, tmp_path)
    tokens = np.arange(16)[None].astype(np.int16)
    whole = opened.pictures(tokens)
    hidden = opened.pictures(tokens, tokens == 6)
    assert (hidden[0, 0, 2:4, 4:6] == GREY).all()
    assert (np.delete(hidden.reshape(-1), [20, 21, 28, 29]) == np.delete(whole.reshape(-1), [20, 21, 28, 29])).all()


def test_a_masked_run_leaves_a_sheet_analyses_and_predictions(tokenizer, tmp_path):
    record = run(run_config(masked(tokenizer)))
    found = record.metrics["test"]
    data = tokens_of(tokenizer)
    assert set(found) == {"loss", "masked_accuracy", "commonest_accuracy"}
    task = find("tasks", "masked_tokens")(component("tasks", {"name": "masked_tokens", "decoding_steps": 4}))
    task.learn(data)
    commonest = np.bincount(data.train.inputs.reshape(-1)).argmax()
    target = task.evaluation_batch(torch.from_numpy(data.test.inputs), None, "test", 0).target.numpy()
    assert found["commonest_accuracy"] == pytest.approx((target[target >= 0] == commonest).mean())
    assert (target >= 0).sum(axis=1).tolist() == [6] * 60  # 40 % of 16
    with Image.open(find_run(record.id) / "samples.png") as sheet:
        assert sheet.height == 3 * 90 + 6

    answer = reconstruction.of_run(record.id)
    assert [row["masked"] for row in answer["table"]] == [0, 0.1, 0.2, 0.3, 0.4]
    assert answer["table"][0]["psnr"] > answer["table"][4]["psnr"]
    assert answer == reconstruction.of_run(record.id)
    assert (answer["rows"], reconstruction.of_run(record.id, rows=20)["rows"]) == (60, 20)
    assert all(path.is_file() for path in reconstruction.draw(answer, tmp_path))
    assert any("LPIPS needs its weights" in str(line) for line in reconstruction.summary(answer).values())

    image = tmp_path / "photo.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)).save(image)
    gaps = np.where(np.arange(16) < 5, 16, data.test.inputs[:2])
    np.save(tmp_path / "tokens.npy", gaps)
    called = ["predict", record.id, str(image), str(tmp_path / "tokens.npy"), "--out", str(tmp_path / "out"), "--json"]
    result = CliRunner().invoke(app, [*called, "--masked", "0.25"])
    assert result.exit_code == 0, result.output
    of_image, of_tokens = json.loads(result.output)
    assert (of_image["hidden"], of_image["tokens"], of_tokens["hidden"]) == (4, 16, 10)
    with Image.open(tmp_path / "out" / "photo.png") as drawn:
        assert drawn.size == (24, 8)
    filled = np.load(tmp_path / "out" / "tokens.predicted.npy")
    assert filled.max() < 16
    assert np.array_equal(filled[:, 5:], data.test.inputs[:2, 5:])
    model: Any = load_model(record.id)
    often = task.fill_in(partial(model, iterations=9), torch.from_numpy(gaps).long(), torch_generator(0, "predicted"))
    assert CliRunner().invoke(app, [*called, "--iterations", "9"]).exit_code == 0
    assert np.array_equal(np.load(tmp_path / "out" / "tokens.predicted.npy"), often)
    assert not np.array_equal(filled, often)
    said = CliRunner().invoke(app, [*called[:3], "--out", str(tmp_path / "out")])
    assert "6 of 16 tokens filled in" in said.output


def test_the_loss_of_every_iteration_is_the_mean_of_theirs():
    task = find("tasks", "masked_tokens")(component("tasks", {"name": "masked_tokens"}))
    task.positions, task.codes = 5, 4
    target = torch.tensor([[1, -100, -100, 3, 0], [-100, 2, -100, -100, -100]])
    outputs = torch.randn(2, 3, 5, 4)
    each = [task.loss(outputs[:, iteration], target) for iteration in range(3)]
    assert float(task.loss(outputs, target)) == pytest.approx(float(sum(each)) / 3)


def test_a_masked_model_can_be_trained_on_every_iteration(tokenizer):
    settings = masked(tokenizer)
    record = run(run_config(settings | {"model": settings["model"] | {"trained_on": "every"}}))
    assert 0 < record.metrics["test"]["masked_accuracy"] < 1


def test_a_tokenizer_that_does_not_match_is_one_line(tokenizer):
    with pytest.raises(UserError, match=r"takes images of \(1, 8, 8\); the source has rows of \(3, 32, 32\)"):
        tokens_of(tokenizer, images={"name": "photos"})
    with pytest.raises(UserError, match=r"there is no run 'f00d'.*`isthmus train cifar10-tokenizer` trains one"):
        tokens_of("f00d")
    with pytest.raises(UserError, match=r"there is no file .*gan\.safetensors; give the weights of a tokenizer"):
        tokens_of("gan.safetensors")
    settings = TOKENIZER | {"model": {"name": "hourglass_mlp", "d_z": 70, "d_h": 4, "depth": 1}}
    with pytest.raises(UserError, match="is a hourglass_mlp, which makes no tokens; a vq_tokenizer does"):
        tokens_of(run(run_config(settings)).id)
    with pytest.raises(UserError, match="has no images to make tokens of"):
        tokens_of(tokenizer, images={"name": "sudoku", "train": 2, "validation": 1, "test": 1})
    with pytest.raises(UserError, match="unknown source 'digit'; did you mean 'digits'"):
        run_config(masked(tokenizer, images={"name": "digit"}))


@pytest.mark.parametrize(
    ("changed", "there"),
    [
        ({"stride": 4}, "16 codes and 4 positions"),
        ({"codes": 8}, "8 codes and 16 positions"),
        ({"width": 4}, "16 codes and 16 positions"),
    ],
)
def test_a_tokenizer_that_was_replaced_is_named_and_so_is_the_one_of_the_training(tokenizer, tmp_path, changed, there):
    file = tmp_path / "tokenizer.safetensors"
    file.write_bytes((find_run(tokenizer) / "model.safetensors").read_bytes())
    record = run(run_config(masked(str(file))))
    trained = sha256(file)[:12]
    exported = tmp_path / "exported"
    assert CliRunner().invoke(app, ["export", record.id, "--to", "safetensors", "--out", str(exported)]).exit_code == 0
    other = run(run_config(TOKENIZER | {"model": TOKENIZER["model"] | changed})).id
    file.write_bytes((find_run(other) / "model.safetensors").read_bytes())
    image = tmp_path / "photo.png"
    Image.new("L", (8, 8)).save(image)
    said = f"has {there} (SHA-256 {sha256(file)[:12]}…), and the run was trained with one of 16 codes and 16 positions"
    for command in (["predict", record.id, str(image)], ["predict", str(exported), str(image)], ["analyze", record.id]):
        result = CliRunner().invoke(app, command)
        assert isinstance(result.exception, UserError), result.output
        assert f"{said} (SHA-256 {trained}…)" in str(result.exception)
        assert "\n" not in str(result.exception)


def test_a_run_that_kept_no_digest_of_its_tokenizer_is_known_by_codes_and_positions(tokenizer, tmp_path):
    task = find("tasks", "masked_tokens")(component("tasks", {"name": "masked_tokens"}))
    task.learn(tokens_of(tokenizer))
    earlier = {name: value for name, value in task.memory().items() if name != "tokenizer"}
    task = find("tasks", "masked_tokens")(component("tasks", {"name": "masked_tokens"}))
    task.recall(earlier)
    task.need_tokenizer(tokenizer, "1234", 16, 16)
    with pytest.raises(
        UserError, match=r"8 codes and 16 positions \(SHA-256 1234…\), and .* 16 codes and 16 positions;"
    ):
        task.need_tokenizer(tokenizer, "1234", 8, 16)


def test_what_is_asked_of_the_wrong_run_is_one_line(tokenizer, tmp_path):
    image = tmp_path / "photo.png"
    Image.new("L", (8, 8)).save(image)
    result = CliRunner().invoke(app, ["predict", tokenizer, str(image), "--masked", "0.5"])
    assert isinstance(result.exception, UserError)
    assert "--masked does not apply to task tokenization" in str(result.exception)
    task = find("tasks", "masked_tokens")(component("tasks", {"name": "masked_tokens"}))
    with pytest.raises(UserError, match="needs tokens of images: use source tokens"):
        task.learn(load_data(component("sources", DIGITS)))
    task.learn(tokens_of(tokenizer))
    with pytest.raises(UserError, match="numbers from 0 to 15, and 16 for one to fill in; these range from 3 to 17"):
        task.encode(np.array([[3, 17]]))


@pytest.mark.parametrize(
    ("recipe", "params"),
    [("hyperset-masked", 3_937_856), ("hyperset-masked-8d", 8_072_000), ("hyperset-masked-transformer", 8_851_456)],
)
def test_the_protocol_of_table_8(recipe, params):
    from isthmus import cost

    config = find("recipes", recipe)()
    assert cost(config.model.complete(Signature((256,), (256, 1024), 1025), 0)).params == params
    train = config.train
    assert (train.epochs, train.batch_size, train.schedule, train.clip_norm) == (300, 256, "constant", 3.0)
    assert (train.learning_rate, train.weight_decay) == (1e-4, 0.1)
    assert (config.task.decoding_steps, config.task.temperature, config.task.most_masked) == (24, 1.0, 0.4)


@pytest.mark.slow  # the digest of all of CIFAR-10 takes seconds
def test_the_recipe_of_the_masked_model_names_the_run_of_the_tokenizers_recipe(shared_data):
    """An id is a hash of config and data: a change of either must be made in both recipes."""
    from isthmus.training.prepare import Options, prepare

    tokenizer = prepare(find("recipes", "cifar10-tokenizer")(), Options(data_dir=shared_data))
    for recipe in ("cifar10-masked", "cifar10-masked-transformer"):
        assert find("recipes", recipe)().source.tokenizer == tokenizer.id
