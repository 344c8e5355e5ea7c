"""The public VQGAN: its list of weights against the published architecture, its arithmetic against plain functions."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional

from isthmus.core.errors import UserError
from isthmus.layers.published_weights import load_published
from isthmus.models.vqgan import TITLE, VQGAN
from isthmus.training.tokenizers import open_tokenizer


def convolution(name, before, after, side=3):
    return {f"{name}.weight": (after, before, side, side), f"{name}.bias": (after,)}


def norm(name, width):
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def block(name, before, after):
    found = norm(f"{name}.norm1", before) | convolution(f"{name}.conv1", before, after)
    found |= norm(f"{name}.norm2", after) | convolution(f"{name}.conv2", after, after)
    return found | (convolution(f"{name}.nin_shortcut", before, after, 1) if before != after else {})


def attention(name, width):
    found = norm(f"{name}.norm", width)
    for part in ("q", "k", "v", "proj_out"):
        found |= convolution(f"{name}.{part}", width, width, 1)
    return found


def middle(name):
    return block(f"{name}.block_1", 512, 512) | attention(f"{name}.attn_1", 512) | block(f"{name}.block_2", 512, 512)


def published():
    """vqgan_imagenet_f16_1024: 128 channels, 1 1 2 2 4 times, two blocks each, attention at 16 pixels, codes of 256."""
    found = convolution("encoder.conv_in", 3, 128)
    for level, (before, after) in enumerate([(128, 128), (128, 128), (128, 256), (256, 256), (256, 512)]):
        for number in range(2):
            found |= block(f"encoder.down.{level}.block.{number}", before if number == 0 else after, after)
        if level == 4:
            found |= attention("encoder.down.4.attn.0", 512) | attention("encoder.down.4.attn.1", 512)
        else:
            found |= convolution(f"encoder.down.{level}.downsample.conv", after, after)
    found |= middle("encoder.mid") | norm("encoder.norm_out", 512) | convolution("encoder.conv_out", 512, 256)
    found |= convolution("decoder.conv_in", 256, 512) | middle("decoder.mid")
    for level, (before, after) in enumerate([(128, 128), (256, 128), (256, 256), (512, 256), (512, 512)]):
        for number in range(3):
            found |= block(f"decoder.up.{level}.block.{number}", before if number == 0 else after, after)
        for number in range(3 if level == 4 else 0):
            found |= attention(f"decoder.up.4.attn.{number}", 512)
        if level:
            found |= convolution(f"decoder.up.{level}.upsample.conv", after, after)
    found |= norm("decoder.norm_out", 128) | convolution("decoder.conv_out", 128, 3)
    found |= {"quantize.embedding.weight": (1024, 256)}
    return found | convolution("quant_conv", 256, 256, 1) | convolution("post_quant_conv", 256, 256, 1)


def test_names_and_shapes_are_the_published_ones():
    with torch.device("meta"):
        weights = VQGAN().state_dict()
    assert {name: tuple(tensor.shape) for name, tensor in weights.items()} == published()
    assert round(sum(tensor.numel() for tensor in weights.values()) / 1e6, 3) == 72.142  # as MaskGIT-pytorch prints


@pytest.fixture(scope="module")
def made():
    """Random weights of the published names and shapes, and two of those that are passed over."""
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for name, shape in published().items():
        scale = 1 / math.sqrt(math.prod(shape[1:])) if len(shape) > 1 else 0.1
        tensors[name] = torch.randn(shape, generator=generator) * scale + (len(shape) == 1 and name.endswith("weight"))
    return tensors | {"loss.discriminator.main.0.weight": torch.zeros(2), "quantize.used": torch.zeros(1)}


class Plain:
    """The network again, straight from the names, without modules."""

    def __init__(self, tensors):
        self.tensors = tensors

    def conv(self, name, x, **how):
        weight = self.tensors[f"{name}.weight"]
        how = how or {"padding": weight.shape[-1] // 2}
        return functional.conv2d(x, weight, self.tensors[f"{name}.bias"], **how)

    def swished(self, name, x):
        groups = x.unflatten(1, (32, -1))
        mean = groups.mean(dim=(2, 3, 4), keepdim=True)
        spread = (groups - mean).square().mean(dim=(2, 3, 4), keepdim=True)
        x = ((groups - mean) / (spread + 1e-6).sqrt()).flatten(1, 2)
        return x * self.tensors[f"{name}.weight"][:, None, None] + self.tensors[f"{name}.bias"][:, None, None]

    def block(self, name, x):
        hidden = self.swished(f"{name}.norm1", x)
        hidden = self.conv(f"{name}.conv1", hidden * hidden.sigmoid())
        hidden = self.swished(f"{name}.norm2", hidden)
        hidden = self.conv(f"{name}.conv2", hidden * hidden.sigmoid())
        return hidden + (self.conv(f"{name}.nin_shortcut", x) if f"{name}.nin_shortcut.weight" in self.tensors else x)

    def attention(self, name, x):
        normed = self.swished(f"{name}.norm", x)
        query, key, value = (self.conv(f"{name}.{part}", normed).flatten(2) for part in "qkv")
        scores = torch.einsum("bci,bcj->bij", query, key) / math.sqrt(x.shape[1])
        mixed = torch.einsum("bij,bcj->bci", scores.softmax(dim=2), value)
        return x + self.conv(f"{name}.proj_out", mixed.view_as(x))

    def middle(self, name, x):
        return self.block(f"{name}.block_2", self.attention(f"{name}.attn_1", self.block(f"{name}.block_1", x)))

    def tokens(self, images):
        x = self.conv("encoder.conv_in", 2 * images - 1)
        for level in range(5):
            for number in range(2):
                x = self.block(f"encoder.down.{level}.block.{number}", x)
                x = self.attention(f"encoder.down.4.attn.{number}", x) if level == 4 else x
            if level < 4:
                x = self.conv(f"encoder.down.{level}.downsample.conv", functional.pad(x, (0, 1, 0, 1)), stride=2)
        x = self.swished("encoder.norm_out", self.middle("encoder.mid", x))
        x = self.conv("quant_conv", self.conv("encoder.conv_out", x * x.sigmoid()))
        distances = (x.flatten(2).mT[:, :, None] - self.tensors["quantize.embedding.weight"]).square().sum(dim=-1)
        return distances.argmin(dim=-1), distances

    def pictures(self, tokens):
        codes = self.tensors["quantize.embedding.weight"][tokens].mT.unflatten(2, (2, 2))
        x = self.middle("decoder.mid", self.conv("decoder.conv_in", self.conv("post_quant_conv", codes)))
        for level in (4, 3, 2, 1, 0):
            for number in range(3):
                x = self.block(f"decoder.up.{level}.block.{number}", x)
                x = self.attention(f"decoder.up.4.attn.{number}", x) if level == 4 else x
            if level:
                x = self.conv(
                    f"decoder.up.{level}.upsample.conv", x.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
                )
        x = self.swished("decoder.norm_out", x)
        return (self.conv("decoder.conv_out", x * x.sigmoid()) + 1) / 2


@pytest.mark.slow
@torch.no_grad()
def test_tokens_and_pictures_are_those_of_plain_float64_functions(made):
    model = VQGAN((3, 32, 32)).eval()
    load_published(model, made, "here", TITLE)
    model.double()
    plain = Plain({name: tensor.double() for name, tensor in made.items()})
    images = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(1)).double()
    expected, _ = plain.tokens(images)
    assert torch.equal(model.tokens(images), expected)
    tokens = torch.tensor([[3, 1023, 0, 77]])
    torch.testing.assert_close(model.pictures(tokens), plain.pictures(tokens), rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_the_file_opens_as_a_tokenizer_and_what_does_not_fit_is_named(made, tmp_path):
    write = partial(save_file, filename=tmp_path / "vqgan.safetensors")
    write(made)
    tokenizer = open_tokenizer("vqgan.safetensors", tmp_path, (3, 16, 32))
    assert (tokenizer.codes, tokenizer.grid, len(tokenizer.digest)) == (1024, (1, 2), 64)
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 16, 32), np.uint8)
    tokens = tokenizer.tokens(images)
    assert (tokens.shape, str(tokens.dtype)) == ((2, 2), "int16")
    assert tokenizer.pictures(tokens).shape == images.shape
    assert open_tokenizer("vqgan.safetensors", tmp_path, positions=4).input_shape == (3, 32, 32)
    with pytest.raises(
        UserError, match="3 colours with sides that 16 divides, such as 256 pixels; these have 1 and 8×8"
    ):
        open_tokenizer("vqgan.safetensors", tmp_path, (1, 8, 8))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"encoder.down.4.attn.1.q.weight": None}, "it has no weight encoder.down.4.attn.1.q.weight"),
        (
            {"quantize.embedding.weight": torch.zeros(16384, 256)},
            r"quantize.embedding.weight is \(16384, 256\), not \(1024, 256\)",
        ),
    ],
)
def test_a_weight_that_is_absent_or_of_another_shape_is_named(change, said):
    found = {name: torch.empty(shape, device="meta") for name, shape in published().items()} | change
    found = {name: tensor for name, tensor in found.items() if tensor is not None}
    with torch.device("meta"):
        model = VQGAN()
    with pytest.raises(UserError, match=f"some.safetensors is no VQGAN f16/1024: {said}"):
        load_published(model, found, "some.safetensors", TITLE)
