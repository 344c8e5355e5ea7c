"""Checkpoints with the authors' names and shapes give, in our models, what their formulas give in float64."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear, normalize, rms_norm
from typer.testing import CliRunner

from isthmus.cli.main import app
from isthmus.core.errors import UserError
from isthmus.core.registry import create_model
from isthmus.layers.published_weights import load_published
from isthmus.layers.sequences import grid_positions
from isthmus.training.official_weights import OFFICIAL, find_official
from tests.command_line import call

Weights = dict[str, Tensor]
EPS = torch.finfo(torch.float32).eps


def draw(shapes: dict[str, tuple[int, ...]]) -> Weights:
    generator = torch.Generator().manual_seed(0)
    return {name: 0.3 * torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}


def load(name: str, weights: Weights, **shapes: object) -> torch.nn.Module:
    """Our model with the converted weights, in float64."""
    official = find_official(name)
    converted, fields = official.convert(weights)
    model = create_model(name.partition("/")[0], **{**official.model, **fields, **shapes})
    load_published(model, converted, "the test", name)
    exact = model.double().eval()
    for target, tensor in exact.state_dict().items():
        tensor.copy_(converted[target])  # without the rounding to float32
    return exact


def norm(x: Tensor, weight: Tensor) -> Tensor:
    return rms_norm(x, weight.shape, weight, EPS)


def times(t: int, width: int) -> Tensor:
    """The authors' frequencies, divided by one less than half of the width."""
    angles = [t * math.exp(-math.log(1e4) * k / (width // 2 - 1)) for k in range(width // 2)]
    return torch.tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles], dtype=torch.float64)


def heads(x: Tensor, number: int) -> Tensor:
    return x.unflatten(-1, (number, -1)).transpose(1, 2)


def descend(w: Weights, x: Tensor, steps: Tensor, number: int, prefix: str = "") -> Tensor:
    """One iteration of Hyper-SET, with the step sizes of both halves."""
    alpha, beta = steps.chunk(2, dim=-1)
    attn = f"{prefix}attn." if prefix else "transformer."
    z = norm(heads(linear(x, w[f"{attn}qkv.weight"]), number), w[f"{attn}ln1.weight"])
    scores = z @ z.mT / math.sqrt(z.shape[-1])
    mixed = (scores.softmax(-1) + scores.softmax(-2)) @ z
    x = x - alpha * (mixed.transpose(1, 2).flatten(2) @ w[f"{attn}qkv.weight"])
    home = prefix or "transformer."
    hidden = norm(linear(x, w[f"{home}mlp.weight"]), w[f"{home}ln2.weight"]).relu()
    return x + beta * (hidden @ w[f"{home}mlp.weight"])


def sudoku(d: int, number: int, layers: int = 2) -> Weights:
    shapes: dict[str, tuple[int, ...]] = {
        "tok_emb.weight": (10, d), "pos_emb": (1, 81, d), "ln_f.weight": (d,), "head.weight": (9, d),
        "time_mlp.0.1.weight": (d, 6), "time_mlp.0.1.bias": (d,), "time_mlp.0.3.weight": (d, d),
        "time_mlp.0.3.bias": (d,), "time_mlp.1.1.weight": (2 * d, d), "time_mlp.1.1.bias": (2 * d,),
    }  # fmt: skip
    for block in range(layers):
        shapes |= {
            f"blocks.{block}.attn.mask": (1, 1, 81, 81), f"blocks.{block}.attn.qkv.weight": (d, d),
            f"blocks.{block}.attn.ln1.weight": (d // number,), f"blocks.{block}.mlp.weight": (4 * d, d),
            f"blocks.{block}.ln2.weight": (4 * d,),
        }  # fmt: skip
    return draw(shapes)


def test_hyper_set_on_sudoku():
    w, boards = sudoku(8, 2), torch.randint(10, (3, 81))
    x = start = w["tok_emb.weight"][boards] + w["pos_emb"]
    for block in range(2):
        for t in (1, 2, 3):
            time = linear(times(t, 6), w["time_mlp.0.1.weight"], w["time_mlp.0.1.bias"])
            time = linear(gelu(time), w["time_mlp.0.3.weight"], w["time_mlp.0.3.bias"])
            steps = linear(gelu(time + start), w["time_mlp.1.1.weight"], w["time_mlp.1.1.bias"])
            x = descend(w, x, steps, 2, f"blocks.{block}.")
    expected = linear(norm(x, w["ln_f.weight"]), w["head.weight"])
    model = load("hyper_set/sudoku", w, input_shape=(81,), output_shape=(81, 9), vocabulary=10, iterations=3)
    torch.testing.assert_close(model(boards), expected, rtol=1e-9, atol=1e-9)
    parallel = {f"module.{name}": weight for name, weight in w.items()}
    assert find_official("hyper_set/sudoku").convert(parallel)[1] == find_official("hyper_set/sudoku").convert(w)[1]


def attend(w: Weights, x: Tensor, names: str, number: int) -> Tensor:
    q, k, v = (heads(linear(x, w[f"{names}{part}.weight"]), number) for part in ("query", "key", "value"))
    mixed = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v
    return linear(mixed.transpose(1, 2).flatten(2), w[f"{names}proj.weight"])


def test_the_transformer_on_sudoku_has_relu():
    d = 8
    shapes: dict[str, tuple[int, ...]] = {
        "tok_emb.weight": (10, d), "pos_emb": (1, 81, d), "ln_f.weight": (d,), "head.weight": (9, d),
        "blocks.0.ln1.weight": (d,), "blocks.0.ln2.weight": (d,), "blocks.0.attn.mask": (1, 1, 81, 81),
        "blocks.0.mlp.0.weight": (4 * d, d), "blocks.0.mlp.2.weight": (d, 4 * d),
    }  # fmt: skip
    shapes |= {f"blocks.0.attn.{part}.weight": (d, d) for part in ("key", "query", "value", "proj")}
    w, boards = draw(shapes), torch.randint(10, (2, 81))
    x = w["tok_emb.weight"][boards] + w["pos_emb"]
    for _ in range(2):
        x = x + attend(w, norm(x, w["blocks.0.ln1.weight"]), "blocks.0.attn.", 4)
        hidden = linear(norm(x, w["blocks.0.ln2.weight"]), w["blocks.0.mlp.0.weight"]).relu()
        x = x + linear(hidden, w["blocks.0.mlp.2.weight"])
    expected = linear(norm(x, w["ln_f.weight"]), w["head.weight"])
    model = load(
        "recurrent_transformer/sudoku", w, input_shape=(81,), output_shape=(81, 9), vocabulary=10, iterations=2,
        num_heads=4,
    )  # fmt: skip
    torch.testing.assert_close(model(boards), expected, rtol=1e-9, atol=1e-9)


def masked(d: int, extra: dict[str, tuple[int, ...]]) -> Weights:
    shared = {"tok_emb.weight": (21, d), "lm_head.0.weight": (d,), "lm_head.1.weight": (20, d), "lm_head.1.bias": (20,)}
    return draw(shared | extra)


def test_hyper_set_on_masked_images_gets_its_positions():
    d = 8
    w = masked(d, {
        "transformer.qkv.weight": (d, d), "transformer.ln1.weight": (4,), "transformer.mlp.weight": (2 * d, d),
        "transformer.ln2.weight": (2 * d,), "transformer.time_mlp.1.0.weight": (d,),
        "transformer.time_mlp.1.2.weight": (2 * d, d), "transformer.time_mlp.1.2.bias": (2 * d,),
    })  # fmt: skip
    tokens = torch.randint(21, (2, 256))
    x = start = w["tok_emb.weight"][tokens] + grid_positions(16, d).double()
    for t in (1, 2):
        hidden = gelu(norm(times(t, d) + start, w["transformer.time_mlp.1.0.weight"]))
        steps = linear(hidden, w["transformer.time_mlp.1.2.weight"], w["transformer.time_mlp.1.2.bias"])
        x = descend(w, x, steps, 2)
    expected = linear(norm(x, w["lm_head.0.weight"]), w["lm_head.1.weight"], w["lm_head.1.bias"])
    shapes = {"input_shape": (256,), "output_shape": (256, 20), "vocabulary": 21, "iterations": 2}
    model = load("hyper_set/masked-images", w, **shapes)
    torch.testing.assert_close(model(tokens), expected, rtol=1e-9, atol=1e-9)


def test_the_transformer_on_masked_images():
    d, names = 8, "transformer.layers.0"
    extra: dict[str, tuple[int, ...]] = {
        f"{names}.0.fn.{part}.weight": (d, d) for part in ("key", "query", "value", "proj")
    }
    extra |= {f"{names}.0.norm.weight": (d,), f"{names}.1.norm.weight": (d,)}
    w = masked(d, extra | {f"{names}.1.fn.net.0.weight": (4 * d, d), f"{names}.1.fn.net.2.weight": (d, 4 * d)})
    tokens = torch.randint(21, (2, 256))
    x = w["tok_emb.weight"][tokens] + grid_positions(16, d).double()
    x = x + attend(w, norm(x, w[f"{names}.0.norm.weight"]), f"{names}.0.fn.", 2)
    hidden = linear(norm(x, w[f"{names}.1.norm.weight"]), w[f"{names}.1.fn.net.0.weight"]).relu()
    x = x + linear(hidden, w[f"{names}.1.fn.net.2.weight"])
    expected = linear(norm(x, w["lm_head.0.weight"]), w["lm_head.1.weight"], w["lm_head.1.bias"])
    shapes = {"input_shape": (256,), "output_shape": (256, 20), "vocabulary": 21, "iterations": 1, "num_heads": 2}
    model = load("recurrent_transformer/masked-images", w, **shapes)
    torch.testing.assert_close(model(tokens), expected, rtol=1e-9, atol=1e-9)


def test_positions_on_a_grid_name_the_column_first():
    places = grid_positions(4, 8)
    assert places[0].tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert torch.equal(places[1, 4:], places[0, 4:]), "the next place is in the same row"
    assert torch.equal(places[4, :4], places[0, :4]), "four places on it is in the same column"
    assert places[1, 0] == pytest.approx(math.sin(1.0))


def test_crate_reads_pixels_in_its_own_order():
    d, patch, number = 8, 2, 2
    values = 3 * patch**2
    shapes: dict[str, tuple[int, ...]] = {
        "cls_token": (1, 1, d), "pos_embedding": (1, 5, d), "to_patch_embedding.1.weight": (values,),
        "to_patch_embedding.1.bias": (values,), "to_patch_embedding.2.weight": (d, values),
        "to_patch_embedding.2.bias": (d,), "to_patch_embedding.3.weight": (d,), "to_patch_embedding.3.bias": (d,),
        "mlp_head.0.weight": (d,), "mlp_head.0.bias": (d,), "mlp_head.1.weight": (7, d), "mlp_head.1.bias": (7,),
    }  # fmt: skip
    for layer in range(2):
        home = f"transformer.layers.{layer}"
        shapes |= {f"{home}.{part}.norm.{kind}": (d,) for part in (0, 1) for kind in ("weight", "bias")}
        shapes |= {f"{home}.0.fn.qkv.weight": (d, d), f"{home}.0.fn.to_out.0.weight": (d, d)}
        shapes |= {f"{home}.0.fn.to_out.0.bias": (d,), f"{home}.1.fn.weight": (d, d)}
    w, images = draw(shapes), torch.randn(2, 3, 4, 4, dtype=torch.float64)

    def normed(x: Tensor, name: str) -> Tensor:
        return layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"])

    rows = [
        [
            image[:, top : top + patch, left : left + patch].permute(1, 2, 0).flatten()
            for top in (0, 2)
            for left in (0, 2)
        ]
        for image in images
    ]  # every patch pixel by pixel, each with its channels
    x = normed(torch.stack([torch.stack(row) for row in rows]), "to_patch_embedding.1")
    x = normed(linear(x, w["to_patch_embedding.2.weight"], w["to_patch_embedding.2.bias"]), "to_patch_embedding.3")
    x = torch.cat([w["cls_token"].expand(2, -1, -1), x], dim=1) + w["pos_embedding"]
    for layer in range(2):
        home = f"transformer.layers.{layer}"
        z = heads(linear(normed(x, f"{home}.0.norm"), w[f"{home}.0.fn.qkv.weight"]), number)
        mixed = ((z @ z.mT / math.sqrt(d // number)).softmax(-1) @ z).transpose(1, 2).flatten(2)
        x = x + linear(mixed, w[f"{home}.0.fn.to_out.0.weight"], w[f"{home}.0.fn.to_out.0.bias"])
        y, D = normed(x, f"{home}.1.norm"), w[f"{home}.1.fn.weight"]
        x = (y + 0.1 * (linear(y, D.T) - linear(linear(y, D), D.T)) - 0.1 * 0.1).relu()
    expected = linear(normed(x[:, 0], "mlp_head.0"), w["mlp_head.1.weight"], w["mlp_head.1.bias"])
    model = load("crate/tiny", w, input_shape=(3, 4, 4), output_shape=(7,), num_heads=number)
    torch.testing.assert_close(model(images), expected, rtol=1e-9, atol=1e-9)


def test_hyper_set_on_images_has_its_own_norms_and_positions():
    d, number, pixels = 8, 2, 16
    values = 3 * 16  # 8 × 8 patches of 4 pixels
    shapes: dict[str, tuple[int, ...]] = {
        "cls_token": (1, 1, d), "emb.0.weight": (values,), "emb.0.bias": (values,), "emb.1.weight": (d, values),
        "emb.1.bias": (d,), "emb.2.weight": (d,), "emb.2.bias": (d,), "fc.0.weight": (d,), "fc.0.bias": (d,),
        "fc.1.weight": (7, d), "fc.1.bias": (7,), "time_mlp.0.1.weight": (d, 6), "time_mlp.0.1.bias": (d,),
        "time_mlp.0.5.weight": (d, d), "time_mlp.0.5.bias": (d,), "time_mlp.1.1.weight": (2 * d, d),
        "time_mlp.1.1.bias": (2 * d,), "ln_inp.weight": (d,), "enc.0.attn.qkv.weight": (d, d),
        "enc.0.mlp.weight": (16, d), "enc.0.ln2.weight": (16,),
    }  # fmt: skip
    shapes |= {f"time_mlp.0.{place}.weight": (d,) for place in (2, 4, 6)}
    shapes |= {f"enc.0.attn.ln1_{place}.weight": (d // number,) for place in (1, 2, 3)}
    w, images = draw(shapes), torch.randn(2, 3, 2 * pixels, 2 * pixels, dtype=torch.float64)
    patches = [
        torch.stack([image[:, top : top + 4, left : left + 4].permute(1, 2, 0).flatten()
                     for top in range(0, 32, 4) for left in range(0, 32, 4)])
        for image in images
    ]  # fmt: skip
    x = layer_norm(torch.stack(patches), (values,), w["emb.0.weight"], w["emb.0.bias"])
    x = layer_norm(linear(x, w["emb.1.weight"], w["emb.1.bias"]), (d,), w["emb.2.weight"], w["emb.2.bias"])
    angles = torch.arange(65, dtype=torch.float64)[:, None] * 1e4 ** (-torch.arange(0, d, 2).double() / d)
    positions = torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)
    x = torch.cat([w["cls_token"].expand(2, -1, -1), x], dim=1) + positions
    for t in (1, 2):
        time = norm(linear(times(t, 6), w["time_mlp.0.1.weight"], w["time_mlp.0.1.bias"]), w["time_mlp.0.2.weight"])
        time = linear(norm(gelu(time), w["time_mlp.0.4.weight"]), w["time_mlp.0.5.weight"], w["time_mlp.0.5.bias"])
        mixed = norm(time, w["time_mlp.0.6.weight"]) + norm(x, w["ln_inp.weight"])
        alpha, beta = linear(gelu(mixed), w["time_mlp.1.1.weight"], w["time_mlp.1.1.bias"]).chunk(2, dim=-1)
        z = heads(linear(x, w["enc.0.attn.qkv.weight"]), number)
        q, k, v = (norm(z, w[f"enc.0.attn.ln1_{place}.weight"]) for place in (1, 2, 3))
        scores = q @ k.mT / math.sqrt(d // number)
        mixed = ((scores.softmax(-1) + scores.softmax(-2)) @ v).transpose(1, 2).flatten(2)
        x = x - alpha * (mixed @ w["enc.0.attn.qkv.weight"])
        hidden = gelu(norm(linear(x, w["enc.0.mlp.weight"]), w["enc.0.ln2.weight"]))
        x = x + beta * (hidden @ w["enc.0.mlp.weight"])
    expected = linear(layer_norm(x[:, 0], (d,), w["fc.0.weight"], w["fc.0.bias"]), w["fc.1.weight"], w["fc.1.bias"])
    model = load("hyper_set/images", w, input_shape=(3, 32, 32), output_shape=(7,), iterations=2)
    torch.testing.assert_close(model(images), expected, rtol=1e-6, atol=1e-6)  # positions are rounded to float32


def mixer(C: int, tokens: int, hidden: int, extra: Callable[[str], dict[str, tuple[int, ...]]]) -> Weights:
    shapes: dict[str, tuple[int, ...]] = {
        "stem.proj.weight": (C, 3, 2, 2), "stem.proj.bias": (C,), "norm.weight": (C,), "norm.bias": (C,),
        "head.weight": (5, C), "head.bias": (5,),
    }  # fmt: skip
    for block in range(2):
        home = f"blocks.{block}"
        shapes |= {f"{home}.{name}.{kind}": (C,) for name in ("norm1", "norm2") for kind in ("weight", "bias")}
        shapes |= {f"{home}.mlp_tokens.fc1.weight": (hidden, tokens), f"{home}.mlp_tokens.fc1.bias": (hidden,)}
        shapes |= {f"{home}.mlp_tokens.fc2.weight": (tokens, hidden), f"{home}.mlp_tokens.fc2.bias": (tokens,)}
        shapes |= {f"{home}.mlp_channels.fc1.weight": (4 * C, C), f"{home}.mlp_channels.fc1.bias": (4 * C,)}
        shapes |= {f"{home}.mlp_channels.fc2.weight": (C, 4 * C), f"{home}.mlp_channels.fc2.bias": (C,)}
        shapes |= extra(home)
    return draw(shapes)


def run_mixer(w: Weights, images: Tensor, mix: Callable[[Tensor, str], Tensor]) -> Tensor:
    def normed(x: Tensor, name: str) -> Tensor:
        return layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], 1e-6)

    x = torch.nn.functional.conv2d(images, w["stem.proj.weight"], w["stem.proj.bias"], 2).flatten(2).mT
    for block in range(2):
        home = f"blocks.{block}"
        x = x + mix(normed(x, f"{home}.norm1").mT, f"{home}.mlp_tokens").mT
        y = gelu(
            linear(normed(x, f"{home}.norm2"), w[f"{home}.mlp_channels.fc1.weight"], w[f"{home}.mlp_channels.fc1.bias"])
        )
        x = x + linear(y, w[f"{home}.mlp_channels.fc2.weight"], w[f"{home}.mlp_channels.fc2.bias"])
    return linear(normed(x, "norm").mean(1), w["head.weight"], w["head.bias"])


def test_timms_mixer():
    w, images = mixer(6, 4, 3, lambda home: {}), torch.randn(2, 3, 4, 4, dtype=torch.float64)

    def mix(x: Tensor, home: str) -> Tensor:
        hidden = gelu(linear(x, w[f"{home}.fc1.weight"], w[f"{home}.fc1.bias"]))
        return linear(hidden, w[f"{home}.fc2.weight"], w[f"{home}.fc2.bias"])

    model = load("mlp_mixer/s", w, input_shape=(3, 4, 4), output_shape=(5,), norm_eps=1e-6)
    torch.testing.assert_close(model(images), run_mixer(w, images, mix), rtol=1e-9, atol=1e-9)


def test_imixer_keeps_the_vectors_of_its_spectral_norm():
    hidden, inner = 3, 6

    def extra(home: str) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for name, (rows, columns) in (("fc_sn1", (inner, hidden)), ("fc_sn2", (hidden, inner))):
            kinds = {"bias": (rows,), "weight_orig": (rows, columns), "weight_u": (rows,), "weight_v": (columns,)}
            found |= {f"{home}.mlp_tokens.{name}.{kind}": shape for kind, shape in kinds.items()}
            found[f"{home}.mlp_tokens.{name}.weight_sigma"] = (1,)
        return found

    w, images = mixer(6, 4, hidden, extra), torch.randn(2, 3, 4, 4, dtype=torch.float64)
    for name in w:
        if name.endswith("weight_orig"):
            w[name] *= 9  # so that the norm matters
        if name.endswith(("weight_u", "weight_v")):
            w[name] = normalize(w[name], dim=0)

    def bounded(home: str) -> Tensor:
        weight = w[f"{home}.weight_orig"]
        sigma = w[f"{home}.weight_u"] @ weight @ w[f"{home}.weight_v"]
        return weight / max(1.0, float(sigma) / 0.9)

    def mix(x: Tensor, home: str) -> Tensor:
        first = state = linear(x, w[f"{home}.fc1.weight"], w[f"{home}.fc1.bias"])
        for _ in range(2):
            inside = gelu(linear(gelu(state), bounded(f"{home}.fc_sn1"), w[f"{home}.fc_sn1.bias"]))
            state = linear(inside, bounded(f"{home}.fc_sn2"), w[f"{home}.fc_sn2.bias"]) + first
        return linear(gelu(state), w[f"{home}.fc2.weight"], w[f"{home}.fc2.bias"])

    model = load("imixer/s", w, input_shape=(3, 4, 4), output_shape=(5,))
    torch.testing.assert_close(model(images), run_mixer(w, images, mix), rtol=1e-9, atol=1e-9)


def test_what_is_not_the_named_network_is_refused():
    w = sudoku(8, 2)
    with pytest.raises(UserError, match=r"enc.0.attn.ln1_1.weight has no place in Hyper-SET on Sudoku"):
        find_official("hyper_set/sudoku").convert(w | {"enc.0.attn.ln1_1.weight": torch.ones(4)})
    with pytest.raises(UserError, match=r"the file holds no CRATE: it has no embedding.linear.weight"):
        find_official("crate/tiny").convert({})
    with pytest.raises(UserError, match="did you mean 'hyper_set/sudoku'"):
        find_official("hyper_set/sudoko")
    incomplete = {"blocks.0.attn.query.weight": torch.ones(8, 8), "tok_emb.weight": torch.ones(10, 8)}
    with pytest.raises(UserError, match="needs queries, keys and values"):
        find_official("recurrent_transformer/sudoku").convert(incomplete)


def test_every_official_network_has_a_recipe():
    from isthmus.core.registry import catalogue

    assert {official.recipe for official in OFFICIAL.values()} <= set(catalogue("recipes"))


BOARDS = [
    "source.name=sudoku", "source.train=8", "source.validation=2", "source.test=6", "source.givens=[70]",
    "model.iterations=2", "threads=1",
]  # fmt: skip


def test_a_checkpoint_is_evaluated_on_test_rows(tmp_path: Path):
    path = tmp_path / "official.safetensors"
    save_file({name: weight.float() for name, weight in sudoku(8, 2).items()}, path)
    told = CliRunner().invoke(app, ["evaluate", str(path), "--as", "hyper_set/sudoku", *BOARDS, "--json"])
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    assert (found["rows"], found["source"], found["model"]["d"]) == (6, "sudoku", 8)
    assert found["metrics"]["board_accuracy"] == 0.0
    assert 0 <= found["metrics"]["cell_accuracy"] <= 1
    assert (
        "board_accuracy" in CliRunner().invoke(app, ["evaluate", str(path), "--as", "hyper_set/sudoku", *BOARDS]).stdout
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"tok_emb.weight": torch.zeros(0, 200_000), "blocks.0.attn.ln1.weight": torch.zeros(64)},
            "is no hyper_set of this size",
        ),
        ({"tok_emb.weight": torch.zeros(())}, "holds another network"),
        ({"tok_emb.weight": torch.zeros(10, 0)}, "holds another network"),
        ({"blocks.0.attn.ln1.weight": torch.zeros(0)}, "holds another network"),
        ({"blocks.999999999.mlp.weight": torch.zeros(1)}, "holds another network"),
        ({"head.weight": torch.full((9, 8), math.nan)}, "holds numbers that are not finite"),
        ({"head.weight": torch.full((9, 8), 3e38)}, "no finite"),
    ],
)
def test_a_hostile_checkpoint_is_one_line(changes: Weights, said: str, tmp_path: Path):
    path = tmp_path / "official.safetensors"
    save_file({name: weight.float() for name, weight in (sudoku(8, 2) | changes).items()}, path)
    told = call("evaluate", path, "--as", "hyper_set/sudoku", *BOARDS)
    assert (told.code, told.err.count("\n")) == (2, 1), told
    assert said in told.err


def test_a_pickled_checkpoint_is_not_read(tmp_path: Path):
    from isthmus.api.checkpoints import evaluate_checkpoint

    (tmp_path / "official.pth").write_bytes(b"")
    with pytest.raises(UserError, match=r"is no safetensors file; .* can execute code"):
        evaluate_checkpoint(tmp_path / "official.pth", "hyper_set/sudoku")
