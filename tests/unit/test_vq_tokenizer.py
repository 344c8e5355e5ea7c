"""The tokenizer: its codebook against plain loops, its tokens and pictures, and what its task says of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import isthmus
from isthmus.core.config import run_config
from isthmus.core.errors import UserError
from isthmus.core.protocols import Signature
from isthmus.core.record import read_metrics
from isthmus.core.registry import component, find
from isthmus.models.vq_tokenizer import Codebook, VQTokenizerConfig
from isthmus.training.loop import Stopped
from isthmus.training.prepare import prepare
from isthmus.training.run import run
from tests.listeners import stop_after


def unit(*shape):
    return torch.nn.functional.normalize(torch.randn(*shape, dtype=torch.float64), dim=1)


def codebook(**fields):
    torch.manual_seed(0)
    return Codebook(VQTokenizerConfig(name="vq_tokenizer", codes=6, d_code=3, **fields)).double()


def test_codes_are_moving_averages_of_what_is_nearest_to_them():
    book = codebook(decay=0.9, revive_below=0)
    counts, sums = np.zeros(6), np.zeros((6, 3))
    codes = book.codes.numpy().copy()
    for _ in range(4):
        encoded = unit(2, 3, 4, 5)
        tokens = book.nearest(encoded)
        chosen, summed = np.zeros(6), np.zeros((6, 3))
        for image in range(2):
            for row in range(4):
                for column in range(5):
                    vector = encoded[image, :, row, column].numpy()
                    nearest = int(np.argmin(((codes - vector) ** 2).sum(axis=1)))
                    assert tokens[image, row, column] == nearest
                    chosen[nearest] += 1
                    summed[nearest] += vector
        book.learn(encoded, tokens)
        counts, sums = 0.9 * counts + 0.1 * chosen, 0.9 * sums + 0.1 * summed
        codes = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)
        np.testing.assert_allclose(book.counts, counts, rtol=1e-12)
        np.testing.assert_allclose(book.codes, codes, rtol=1e-9, atol=1e-12)
    assert torch.equal(book.look_up(tokens)[1, :, 2, 3], book.codes[tokens[1, 2, 3]])


def test_a_code_that_nothing_chooses_is_put_where_something_is():
    book = codebook(revive_below=0.5)
    book.counts.fill_(100.0)
    book.counts[2] = 1e-3
    book.sums.copy_(book.codes * 100)
    before = book.codes.clone()
    encoded = torch.nn.functional.normalize(before[[0, 1, 3, 4, 5]].T[None, :, None, :] + 0.01, dim=1)
    book.learn(encoded, torch.tensor([[[0, 1, 3, 4, 5]]]))
    vectors = encoded[0, :, 0].T
    assert (book.codes[2] - vectors).abs().amax(dim=1).min() < 1e-12
    assert not torch.allclose(book.codes[2], before[2])
    kept = [0, 1, 3, 4, 5]
    torch.testing.assert_close(book.codes[kept], before[kept], rtol=0, atol=1e-3)


def test_a_picture_of_its_tokens_is_what_the_model_gives_back():
    torch.manual_seed(0)
    model: Any = isthmus.create_model("vq_tokenizer", input_shape=(3, 8, 16), codes=11, width=8)
    images = torch.rand(5, 3, 8, 16)
    for _ in range(3):
        model(images)
    model.eval()
    with torch.no_grad():
        tokens = model.tokens(images)
        assert tokens.shape == (5, 8)
        assert 0 <= tokens.min() <= tokens.max() < 11
        torch.testing.assert_close(model.pictures(tokens), model(images), rtol=1e-4, atol=1e-5)


def test_a_straight_through_gradient_is_that_of_the_codes():
    torch.manual_seed(0)
    model: Any = isthmus.create_model("vq_tokenizer", input_shape=(1, 8, 8), codes=7, width=4).double().eval()
    images = torch.rand(2, 1, 8, 8, dtype=torch.float64)
    encoded = model.encode(images).detach()
    codes = model.codebook.look_up(model.codebook.nearest(encoded)).requires_grad_()
    (wanted,) = torch.autograd.grad(model.decode(codes).square().mean(), codes)
    found: dict[str, torch.Tensor] = {}

    def keep(module, inputs):
        inputs[0].register_hook(lambda gradient: found.update(codes=gradient / codes.shape[1] ** -0.5))

    model.decoder.register_forward_pre_hook(keep)
    model(images).square().mean().backward()
    torch.testing.assert_close(found["codes"], wanted)
    assert all(parameter.grad.abs().max() > 0 for parameter in model.encoder.parameters())


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"stride": 6}, "stride=6 is not a power of two"),
        ({"stride": 16, "width": 4}, "width=4 cannot be halved until stride=16 is 2"),
        ({"input_shape": [3, 30, 32]}, "stride=4 does not divide an image of 30×32 pixels"),
        ({"input_shape": [3, 4, 4]}, "stride=4 leaves one token for an image of 4×4 pixels"),
    ],
)
def test_what_cannot_be_built_is_one_line(fields, said):
    with pytest.raises(UserError, match=said):
        isthmus.create_model("vq_tokenizer", **fields)


def test_it_refuses_a_task_that_does_not_give_images_back():
    config: Any = component("models", {"name": "vq_tokenizer"})
    with pytest.raises(UserError, match=r"task\.name=tokenization"):
        config.complete(Signature((3, 32, 32), (10,)), 0)


SETTINGS = {
    "source": {"name": "digits", "validation": 20, "test": 60},
    "task": {"name": "tokenization"},
    "model": {"name": "vq_tokenizer", "codes": 16, "stride": 2, "width": 8},
    "train": {"epochs": 1, "batch_size": 128, "learning_rate": 5e-3},
    "threads": 1,
}


def test_a_run_reports_the_use_of_its_codebook():
    record = run(run_config(SETTINGS))
    folder = prepare(run_config(SETTINGS)).folder
    model: Any = isthmus.load(folder).model
    rows = prepare(run_config(SETTINGS)).data.test.inputs
    with torch.no_grad():
        tokens = model.tokens(torch.from_numpy(rows).float() / 255)
    counts = np.bincount(tokens.flatten().numpy(), minlength=16)
    shares = counts[counts > 0] / counts.sum()
    found = record.metrics["test"]
    assert found["codebook_use"] == (counts > 0).mean()
    assert found["codebook_perplexity"] == pytest.approx(np.exp(-(shares * np.log(shares)).sum()))
    assert found["commonest_token"] == pytest.approx(shares.max())
    assert "samples.png" in record.files
    assert any("codebook_use" in line for line in read_metrics(folder))


def test_a_run_that_was_stopped_ends_with_the_same_bits(monkeypatch, tmp_path):
    whole = run(run_config(SETTINGS))
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "other"))
    with pytest.raises(Stopped):
        run(run_config(SETTINGS), listener=stop_after(4))
    again = run(run_config(SETTINGS))
    assert again.id == whole.id
    assert again.files["model.safetensors"] == whole.files["model.safetensors"]


def test_any_model_of_images_can_be_asked_to_give_them_back():
    task = find("tasks", "tokenization")(component("tasks", {"name": "tokenization"}))
    assert task.inspect(torch.nn.Identity(), torch.zeros(1, 1, 8, 8), "test") == {}
