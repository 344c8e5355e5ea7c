"""A small config of every kind for each registered model: a new architecture adds its entry to SMALL."""

from __future__ import annotations

import pytest
import torch

import isthmus

MLP = {"d_in": 12, "d_out": 5, "depth": 3}
MIXER = {"input_shape": (2, 8, 12), "patch": 4, "C": 10, "depth": 2}
# A head that starts at zero would give every seed the same output and keep the gradient from everything before it.
IMIXER = {"input_shape": (3, 8, 8), "output_shape": (5,), "patch": 4, "C": 10, "depth": 2, "head_init": "xavier"}
SOLVED = {"contraction": 0.5, "gradient": "implicit"}
VIT = {"input_shape": (2, 8, 12), "output_shape": (5,), "patch": 4, "depth": 2, "num_heads": 2}
SPARSE = {"input_shape": (2, 8, 12), "patch": 4, "depth": 2, "mask_seed": 1}
SMALL: dict[str, list[dict]] = {
    "hourglass_mlp": [
        {**MLP, "d_z": 24, "d_h": 8},
        {**MLP, "d_z": 24, "d_h": 8, "w_in": "hadamard", "w_in_seed": 1, "norm": "rms", "init": "pytorch"},
        {**MLP, "d_z": 24, "d_h": 8, "w_in": "orthogonal", "w_in_seed": 1, "norm": "none", "activation": "silu"},
        {**MLP, "d_z": 24, "d_h": 8, "residual_scale": 0.3, "init": "depth_scaled_w2"},
    ],
    "conventional_mlp": [
        {**MLP, "d_z": 8, "d_h": 24},
        {**MLP, "d_z": 8, "d_h": 24, "w_in": "gaussian", "w_in_seed": 1, "activation": "relu", "init": "xavier"},
    ],
    "mlp_mixer": [
        {**MIXER, "output_shape": (5,), "gamma": 2},
        {**MIXER, "output_shape": (5,), "permutation": "random", "permutation_seed": 1, "S": 9, "init": "pytorch"},
        {**MIXER, "output_shape": (3, 16, 24), "S": 9, "token_hidden": 7, "bias": False},
        {**MIXER, "output_shape": (5,), "permutation": "random", "hidden_permutation": "random", "permutation_seed": 1},
    ],
    "s_mixer": [
        {**MIXER, "output_shape": (5,), "S": 6, "drop_path": 0.1},
        {**MIXER, "output_shape": (2, 8, 12), "permutation": "random", "random_blocks": (2,), "permutation_seed": 1},
        {**MIXER, "output_shape": (5,), "norm": "none", "skip": "none", "activation": "none", "bias": False},
        {**MIXER, "output_shape": (5,), "norm": "none", "S": 6, "permutation": "random", "permutation_seed": 1},
    ],
    "imixer": [
        {**IMIXER, "h_r": 1.5},
        {**IMIXER, "output_shape": (3, 16, 16), "hierarchy": 3, "e": "silu", "f": "relu", "drop_path": 0.2},
        {**IMIXER, "norm": "batch", "batch_statistics": "per_iteration", "token_hidden": 7, "channel_hidden": 9},
        {**IMIXER, "norm": "batch"},
        {**IMIXER, "norm": "none", "hierarchy": 1},
        {**IMIXER, **SOLVED, "iterations": 6, "solver": "anderson"},
        {**IMIXER, **SOLVED, "iterations": 4, "tolerance": 0.1, "hierarchy": 3, "depth": 1},
        {**IMIXER, "hierarchy": 3, "hidden_widths": (5, 7), "tied": True, "e": "tanh", "f": "softmax"},
    ],
    "sw_mlp": [
        {**SPARSE, "output_shape": (5,), "m": 60, "p": 0.1},
        {**SPARSE, "output_shape": (5,), "m": 36, "p": 0.4, "block": "mlp", "gamma": 1.5, "pool": True, "bias": False},
        {**SPARSE, "output_shape": (5,), "m": 50, "p": 0.2, "compute": "sparse", "mask_scale": "one"},
        {**SPARSE, "output_shape": (3, 16, 24), "m": 48, "p": 0.1, "S": 12},
        {**SPARSE, "output_shape": (2, 8, 12), "m": 40, "p": 1.0, "per_patch": False, "activation": "relu"},
        {**SPARSE, "input_shape": (1, 1, 9), "output_shape": (3,), "m": 20, "p": 0.3, "patch": 1, "per_patch": False},
    ],
    "vit": [
        {**VIT, "d_z": 12, "d_h": 12, "fused": False, "drop_path": 0.2},
        {**VIT, "d_z": 12, "d_h": 6, "ffn_blocks": 2, "pool": "mean", "activation": "silu"},
        {**VIT, "d_z": 12, "d_h": 6, "ffn_blocks": 3, "tied_ffn": True, "attention_width": 8},
        {**VIT, "d_z": 13, "d_h": 6, "attention_width": 8, "latent_width": 5},
        {**VIT, "d_z": 12, "d_h": 24, "output_shape": (3, 16, 24)},
    ],
    "hourglass_vit": [{**VIT, "d_z": 12, "d_h": 6}],
    "conventional_vit": [{**VIT, "d_z": 8, "d_h": 16}],
    "monarch_mlp": [{"d_in": 12, "d_out": 5}, {"d_in": 12, "d_out": 5, "S": 5, "bias": True}],
    "dense_mlp": [{"d_in": 12, "d_out": 5, "hidden": (9, 7)}],
    "monarch_mixer": [
        {**MIXER, "output_shape": (5,), "S": 6, "drop_path": 0.1},
        {**MIXER, "output_shape": (2, 8, 12), "norm": "none", "skip": "none", "activation": "none", "bias": False},
    ],
    "kronecker_mlp": [{"d_in": 12, "d_out": 5}, {"d_in": 12, "d_out": 5, "size": 18, "S": 6, "bias": True}],
    "narrow_mlp": [
        {**MLP, "d_z": 24, "d_h": 4},
        {**MLP, "d_z": 24, "d_h": 4, "norm": "layer", "start": "isometric", "activation": "silu"},
        {**MLP, "d_z": 24, "d_h": 4, "norm": "none", "activation": "relu"},
        {**MLP, "d_z": 24, "d_h": 4, "pathway": "reversible"},
        {**MLP, "d_z": 24, "d_h": 4, "pathway": "weighted"},
        {**MLP, "d_z": 24, "d_h": 4, "pathway": "injected"},
        {**MLP, "d_z": 24, "d_h": 4, "pathway": "delta"},
        {**MLP, "d_z": 24, "d_h": 4, "norm": "none", "pathway": "delta/erase-and-add"},
    ],
}
IMAGE = {"input_shape": (3, 8, 12), "output_shape": (5,), "patch": 4, "d": 16, "num_heads": 2, "iterations": 3}
TOKENS = {
    "input_shape": (9,), "output_shape": (9, 4), "vocabulary": 6, "d": 16, "num_heads": 4, "iterations": 2,
    "positions": "learned", "head_bias": False,
}  # fmt: skip
SMALL |= {
    "hyper_set": [
        {**IMAGE, "time_frequencies": 10},
        {**IMAGE, "layers": 2, "step_sizes": "time", "activation": "gelu", "positions": "learned"},
        {**TOKENS, "layers": 2, "step_sizes": "X_0", "ff_ratio": 2.5, "embedding_dropout": 0.1},
        {**TOKENS, "step_sizes": "X_0", "time_mlp": False},
        {**TOKENS, "step_sizes": "fixed", "fixed_step": 0.2},
        {**TOKENS, "positions": "grid", "step_sizes": "X_0", "time_mlp": False},
    ],
    "recurrent_transformer": [IMAGE, {**TOKENS, "layers": 2, "qkv": "shared"}],
    "crate": [IMAGE, {**TOKENS, "layers": 2}],
    "crate_t": [IMAGE, {**TOKENS, "back": "same", "step": 0.2}],
    "vq_tokenizer": [
        {"input_shape": (3, 8, 12), "codes": 20, "width": 8},
        {"input_shape": (1, 8, 16), "codes": 5, "width": 4, "stride": 8, "d_code": 3, "blocks": 0, "revive_below": 0},
    ],
}
CASES = [pytest.param(name, fields, id=f"{name}-{n}") for name in SMALL for n, fields in enumerate(SMALL[name])]


def build(name, fields, seed=0):
    torch.manual_seed(seed)
    return isthmus.create_model(name, **fields)


def inputs(model, rows=6, seed=1):
    generator = torch.Generator().manual_seed(seed)
    if vocabulary := getattr(model, "vocabulary", 0):
        return torch.randint(vocabulary, (rows, *model.input_shape), generator=generator)
    return torch.randn(rows, *model.input_shape, generator=generator)


def stepped(name, fields):
    """A model after one optimiser step: a weight that starts at zero holds back the gradient of those before it."""
    model = build(name, fields)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(inputs(model)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model
