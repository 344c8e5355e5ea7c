"""The ViT against a slow and obvious one in float64, the two kernels of attention, and what configs refuse."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from isthmus.core.errors import UserError
from isthmus.core.protocols import Signature
from isthmus.core.registry import component, create_model
from isthmus.layers.drop_path import DropPath

SMALL: dict[str, Any] = {
    "input_shape": (3, 8, 12), "output_shape": (5,), "patch": 4, "d_z": 12, "d_h": 6, "depth": 3, "num_heads": 3,
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "hourglass": {},
    "plain attention": {"fused": False},
    "conventional": {"d_h": 30},
    "no class token": {"pool": "mean"},
    "three feed-forward blocks": {"ffn_blocks": 3},
    "one of them, three times": {"ffn_blocks": 3, "tied_ffn": True},
    "wide heads": {"attention_width": 21},
    "latent": {"attention_width": 9, "latent_width": 5},
    "an image": {"output_shape": (3, 16, 24)},
}


def drawn(**fields: Any) -> torch.nn.Module:
    """Every weight random, also those that start at zero or one: nothing may be left out unseen."""
    model = create_model("vit", **SMALL | fields).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


def images(rows: int = 2) -> Tensor:
    return torch.randn(rows, 3, 8, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


class Slow:
    """One image at a time, token by token, from the state dict alone."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.weights = model.state_dict()
        self.config: Any = model.config

    def linear(self, name: str, x: Tensor) -> Tensor:
        return self.weights[f"{name}.weight"] @ x + self.weights[f"{name}.bias"]

    def norm(self, name: str, x: Tensor) -> Tensor:
        centred = x - x.mean()
        scaled = centred / torch.sqrt((centred**2).mean() + self.config.norm_eps)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def parts(self, name: str, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.config.latent_width is None:
            query, key, value = self.linear(f"{name}.qkv", x).chunk(3)
            return query, key, value
        first, second = self.linear(f"{name}.down", x).chunk(2)
        query = self.linear(f"{name}.query", self.norm(f"{name}.query_norm", first))
        key, value = self.linear(f"{name}.key_value", self.norm(f"{name}.key_value_norm", second)).chunk(2)
        return query, key, value

    def attention(self, name: str, tokens: list[Tensor]) -> list[Tensor]:
        found = [self.parts(name, token) for token in tokens]
        heads, width = self.config.num_heads, self.config.head_values // self.config.num_heads
        mixed = []
        for query, _, _ in found:
            output = []
            for head in range(heads):
                part = slice(head * width, (head + 1) * width)
                scores = torch.stack([query[part] @ key[part] / math.sqrt(width) for _, key, _ in found])
                shares = torch.exp(scores) / torch.exp(scores).sum()
                values = [share * value[part] for share, (_, _, value) in zip(shares, found, strict=True)]
                output.append(torch.stack(values).sum(0))
            mixed.append(self.linear(f"{name}.out", torch.cat(output)))
        return mixed

    def tokens(self, image: Tensor) -> list[Tensor]:
        p = self.config.patch
        tokens = [
            self.linear("stem.linear", image[:, row : row + p, column : column + p].reshape(-1))
            for row in range(0, image.shape[1], p)
            for column in range(0, image.shape[2], p)
        ]
        first = [self.weights["class_token"].view(-1)] if "class_token" in self.weights else []
        return [token + place for token, place in zip([*first, *tokens], self.weights["positions"], strict=True)]

    def __call__(self, image: Tensor) -> Tensor:
        tokens, config = self.tokens(image), self.config
        for layer in range(config.depth):
            block = f"blocks.{layer}"
            updates = self.attention(f"{block}.attention", [self.norm(f"{block}.norm", token) for token in tokens])
            tokens = [token + update for token, update in zip(tokens, updates, strict=True)]
            for number in range(config.ffn_blocks):
                ffn = f"{block}.ffn.{0 if config.tied_ffn else number}"
                hidden = [self.linear(f"{ffn}.W1", self.norm(f"{ffn}.norm", token)) for token in tokens]
                active = [0.5 * h * (1 + torch.erf(h / math.sqrt(2))) for h in hidden]
                tokens = [token + self.linear(f"{ffn}.W2", h) for token, h in zip(tokens, active, strict=True)]
        normed = [self.norm("norm", token) for token in tokens]
        if len(config.output_shape) == 3:
            return self.picture([self.linear("head.linear", token) for token in normed])
        pooled = normed[0] if "class_token" in self.weights else torch.stack(normed).mean(0)
        return self.linear("head.linear", pooled)

    def picture(self, patches: list[Tensor]) -> Tensor:
        channels, height, width = self.config.output_shape
        side, columns = 2 * self.config.patch, width // (2 * self.config.patch)
        image = torch.empty(channels, height, width, dtype=torch.float64)
        for number, patch in enumerate(patches):
            row, column = side * (number // columns), side * (number % columns)
            image[:, row : row + side, column : column + side] = patch.view(channels, side, side)
        return image


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_slow_one(name):
    model = drawn(**CASES[name])
    slow = Slow(model)
    with torch.no_grad():
        torch.testing.assert_close(model(images()), torch.stack([slow(image) for image in images()]))


@pytest.mark.parametrize("fields", [{}, {"attention_width": 9, "latent_width": 5}])
def test_fused_and_plain_attention_are_the_same_numbers_and_gradients(fields):
    found = []
    for fused in (True, False):
        model = drawn(fused=fused, **fields).float()
        output = model(images(4).float())
        output.square().mean().backward()
        found.append((output.detach(), {name: p.grad for name, p in model.named_parameters()}))
    (one, gradients), (other, others) = found
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    largest = max(float(gradient.abs().max()) for gradient in others.values() if gradient is not None)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, others[name], rtol=1e-4, atol=1e-6 * largest, msg=name)


def test_drop_path_rises_evenly_over_the_layers():
    model = create_model("vit", **SMALL | {"depth": 5, "drop_path": 0.2})
    rates = [module.rate for module in model.modules() if isinstance(module, DropPath)]
    assert rates == pytest.approx([0.0, 0.05, 0.1, 0.15, 0.2])


def test_weights_start_as_timms():
    torch.manual_seed(0)
    model = create_model("vit", **SMALL | {"d_z": 192, "d_h": 96})
    weights = {name: tensor.detach() for name, tensor in model.named_parameters()}
    for name, tensor in weights.items():
        if name.startswith("stem"):
            assert tensor.abs().max() <= 48**-0.5
        elif name.endswith("bias"):
            assert (tensor == 0).all(), name
        elif "norm" in name:
            assert (tensor == 1).all(), name
        elif name == "class_token":
            assert 0 < tensor.abs().max() < 1e-5
        else:
            assert tensor.std() == pytest.approx(0.02, rel=0.1), name
            assert tensor.mean().abs() < 0.002, name


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"num_heads": 5}, "num_heads=5 does not divide d_z=12"),
        ({"attention_width": 8}, "num_heads=3 does not divide attention_width=8"),
        ({"patch": 5}, "patch=5 does not divide an image of 8×12 pixels"),
        ({"name": "hourglass_vit", "d_h": 12}, "an Hourglass has d_h=12 below d_z=12"),
        ({"name": "conventional_vit"}, "a conventional ViT has d_h=6 above d_z=12"),
        ({"heads": 3}, "unknown field 'heads'; "),
        ({"d_z": 0}, "d_z=0"),
    ],
)
def test_what_does_not_fit_is_one_line(fields, said):
    with pytest.raises(UserError) as caught:
        component("models", {"name": "vit"} | SMALL | fields)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_image_that_the_patch_does_not_divide_is_one_line():
    fields = {name: value for name, value in SMALL.items() if not name.endswith("shape")}
    config: Any = component("models", {"name": "vit", **fields})
    with pytest.raises(UserError, match="vit: patch=4 does not divide an image of 30×30 pixels"):
        config.complete(Signature((3, 30, 30), (10,)), seed=0)
