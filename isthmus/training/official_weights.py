"""Converts checkpoints of the papers' authors to our names and shapes: Hyper-SET, its rival, CRATE, iMixer and Mixer.

Names and shapes are those of the public repositories huyunzhe/hyper-set, Ma-Lab-Berkeley/CRATE, Toshihiro-Ota/imixer
and of timm. A file holds tensors alone (safetensors). The authors' image classifier of Hyper-SET has three norms in its
attention and three in its time network, which the paper's has not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from isthmus.core.errors import UserError, nearest
from isthmus.layers.sequences import grid_positions, sinusoids
from isthmus.training.timm_weights import MIXER, translate

Weights = Mapping[str, Tensor]
Fields = dict[str, Any]
Converted = tuple[dict[str, Tensor], Fields]

_TOKENS = {
    r"tok_emb\.weight": "embedding.tokens.weight",
    r"pos_emb": "embedding.positions",
    r"ln_f\.weight": "readout.norm.weight",
    r"head\.weight": "readout.linear.weight",
    r"blocks\.\d+\.attn\.mask": "",
}
HYPER_SET = _TOKENS | {
    r"blocks\.(\d+)\.attn\.qkv\.weight": r"layers.\1.attention.W.weight",
    r"blocks\.(\d+)\.attn\.ln1\.weight": r"layers.\1.attention.norm.weight",
    r"blocks\.(\d+)\.mlp\.weight": r"layers.\1.feed_forward.D.weight",
    r"blocks\.(\d+)\.ln2\.weight": r"layers.\1.feed_forward.norm.weight",
    r"time_mlp\.0\.1\.(\w+)": r"layers.*.steps.time.0.\1",  # one network for all layers
    r"time_mlp\.0\.3\.(\w+)": r"layers.*.steps.time.2.\1",
    r"time_mlp\.1\.1\.(\w+)": r"layers.*.steps.last.\1",
}
TRANSFORMER = _TOKENS | {
    r"blocks\.(\d+)\.ln1\.weight": r"layers.\1.attention_norm.weight",
    r"blocks\.(\d+)\.ln2\.weight": r"layers.\1.mlp_norm.weight",
    r"blocks\.(\d+)\.attn\.(query|key|value)\.weight": r"layers.\1.attention.qkv.weight.\2",
    r"blocks\.(\d+)\.attn\.proj\.weight": r"layers.\1.attention.out.weight",
    r"blocks\.(\d+)\.mlp\.([02])\.weight": r"layers.\1.mlp.\2.weight",
}
_MASKED = {
    r"tok_emb\.weight": "embedding.tokens.weight",
    r"lm_head\.0\.weight": "readout.norm.weight",
    r"lm_head\.1\.(\w+)": r"readout.linear.\1",
}
MASKED_HYPER_SET = _MASKED | {
    r"transformer\.qkv\.weight": "layers.0.attention.W.weight",
    r"transformer\.ln1\.weight": "layers.0.attention.norm.weight",
    r"transformer\.mlp\.weight": "layers.0.feed_forward.D.weight",
    r"transformer\.ln2\.weight": "layers.0.feed_forward.norm.weight",
    r"transformer\.time_mlp\.1\.0\.weight": "layers.0.steps.norm.weight",
    r"transformer\.time_mlp\.1\.2\.(\w+)": r"layers.0.steps.last.\1",
}
MASKED_TRANSFORMER = _MASKED | {
    r"transformer\.layers\.(\d+)\.0\.norm\.weight": r"layers.\1.attention_norm.weight",
    r"transformer\.layers\.(\d+)\.1\.norm\.weight": r"layers.\1.mlp_norm.weight",
    r"transformer\.layers\.(\d+)\.0\.fn\.(query|key|value)\.weight": r"layers.\1.attention.qkv.weight.\2",
    r"transformer\.layers\.(\d+)\.0\.fn\.proj\.weight": r"layers.\1.attention.out.weight",
    r"transformer\.layers\.(\d+)\.1\.fn\.net\.([02])\.weight": r"layers.\1.mlp.\2.weight",
}
IMAGE_HYPER_SET = {
    r"cls_token": "embedding.class_token",
    r"emb\.0\.(\w+)": r"embedding.before.\1",
    r"emb\.1\.(\w+)": r"embedding.linear.\1",
    r"emb\.2\.(\w+)": r"embedding.after.\1",
    r"enc\.(\d+)\.attn\.qkv\.weight": r"layers.\1.attention.W.weight",
    r"enc\.(\d+)\.attn\.ln1_1\.weight": r"layers.\1.attention.norm.weight",
    r"enc\.(\d+)\.attn\.ln1_2\.weight": r"layers.\1.attention.others.0.weight",
    r"enc\.(\d+)\.attn\.ln1_3\.weight": r"layers.\1.attention.others.1.weight",
    r"enc\.(\d+)\.mlp\.weight": r"layers.\1.feed_forward.D.weight",
    r"enc\.(\d+)\.ln2\.weight": r"layers.\1.feed_forward.norm.weight",
    r"time_mlp\.0\.1\.(\w+)": r"layers.*.steps.time.0.\1",
    r"time_mlp\.0\.2\.(\w+)": r"layers.*.steps.time.1.\1",
    r"time_mlp\.0\.4\.(\w+)": r"layers.*.steps.time.3.\1",
    r"time_mlp\.0\.5\.(\w+)": r"layers.*.steps.time.4.\1",
    r"time_mlp\.0\.6\.(\w+)": r"layers.*.steps.time.5.\1",
    r"time_mlp\.1\.1\.(\w+)": r"layers.*.steps.last.\1",
    r"ln_inp\.weight": "layers.*.steps.norm.weight",
    r"fc\.0\.(\w+)": r"readout.norm.\1",
    r"fc\.1\.(\w+)": r"readout.linear.\1",
}
CRATE = {
    r"cls_token": "embedding.class_token",
    r"pos_embedding": "embedding.positions",
    r"to_patch_embedding\.1\.(\w+)": r"embedding.before.\1",
    r"to_patch_embedding\.2\.(\w+)": r"embedding.linear.\1",
    r"to_patch_embedding\.3\.(\w+)": r"embedding.after.\1",
    r"transformer\.layers\.(\d+)\.0\.norm\.(\w+)": r"layers.\1.attention_norm.\2",
    r"transformer\.layers\.(\d+)\.0\.fn\.qkv\.weight": r"layers.\1.attention.U.weight",
    r"transformer\.layers\.(\d+)\.0\.fn\.to_out\.0\.(\w+)": r"layers.\1.attention.out.\2",
    r"transformer\.layers\.(\d+)\.1\.norm\.(\w+)": r"layers.\1.sparsity_norm.\2",
    r"transformer\.layers\.(\d+)\.1\.fn\.weight": r"layers.\1.sparsity.D",
    r"mlp_head\.0\.(\w+)": r"readout.norm.\1",
    r"mlp_head\.1\.(\w+)": r"readout.linear.\1",
}
IMIXER = {
    r"stem\.proj\.(\w+)": r"stem.linear.\1",
    r"(blocks\.\d+)\.norm1\.(\w+)": r"\1.token_norm.\2",
    r"(blocks\.\d+)\.norm2\.(\w+)": r"\1.channel_norm.\2",
    r"(blocks\.\d+)\.mlp_tokens\.fc1\.(\w+)": r"\1.token.down.0.\2",
    r"(blocks\.\d+)\.mlp_tokens\.fc2\.(\w+)": r"\1.token.up.0.\2",
    r"(blocks\.\d+)\.mlp_tokens\.fc_sn1\.(?:weight_)?(u|v|bias)": r"\1.token.down.1.\2",
    r"(blocks\.\d+)\.mlp_tokens\.fc_sn1\.weight_orig": r"\1.token.down.1.weight",
    r"(blocks\.\d+)\.mlp_tokens\.fc_sn2\.(?:weight_)?(u|v|bias)": r"\1.token.up.1.\2",
    r"(blocks\.\d+)\.mlp_tokens\.fc_sn2\.weight_orig": r"\1.token.up.1.weight",
    r"(blocks\.\d+)\.mlp_tokens\.fc_sn[12]\.weight_sigma": "",  # logged only
    r"(blocks\.\d+)\.mlp_channels\.fc1\.(\w+)": r"\1.channel.0.\2",
    r"(blocks\.\d+)\.mlp_channels\.fc2\.(\w+)": r"\1.channel.2.\2",
    r"norm\.(\w+)": r"norm.\1",
    r"head\.(\w+)": r"head.linear.\1",
}


def rename(weights: Weights, table: Mapping[str, str], title: str) -> dict[str, Tensor]:
    """The tensors under our names. The parts of a joined matrix are stacked, and what all layers share is copied."""
    named: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if ours := translate(name.removeprefix("module."), table, title):  # a prefix of networks on several devices
            named[ours] = weight
    found: dict[str, Tensor] = {}
    layers = {int(number) for name in named for number in re.findall(r"^layers\.(\d+)\.", name)}
    for name, weight in named.items():
        if name.endswith((".query", ".key", ".value")):
            joined = name.rpartition(".")[0]
            parts = [named.get(f"{joined}.{part}") for part in ("query", "key", "value")]
            if any(part is None for part in parts):
                raise UserError(f"{title} needs queries, keys and values; {joined} lacks one of them")
            found[joined] = torch.cat([part for part in parts if part is not None])
        elif "*" in name:
            found |= {name.replace("*", str(layer)): weight for layer in layers}
        else:
            found[name] = weight.squeeze(0) if name == "embedding.positions" else weight
    return found


def _count(weights: Weights, pattern: str) -> int:
    numbers = {int(number) for name in weights for number in re.findall(pattern, name)}
    if numbers != {*range(len(numbers))}:
        raise ValueError("a layer is missing")  # a single name may claim a billion of them
    return max(1, len(numbers))


def _take(weights: Weights, name: str, title: str) -> Tensor:
    if name not in weights:
        raise UserError(f"the file holds no {title}: it has no {name}")
    return weights[name]


def convert_tokens(table: Mapping[str, str], title: str) -> Callable[[Weights], Converted]:
    """Convert a network for Sudoku."""

    def convert(weights: Weights) -> Converted:
        ours = rename(weights, table, title)
        d = _take(ours, "embedding.tokens.weight", title).shape[1]
        fields: Fields = {"d": d, "layers": _count(ours, r"^layers\.(\d+)\.")}
        if table is HYPER_SET:
            fields["num_heads"] = d // len(_take(ours, "layers.0.attention.norm.weight", title))
            fields["ff_ratio"] = len(_take(ours, "layers.0.feed_forward.D.weight", title)) / d
            fields["time_frequencies"] = _take(ours, "layers.0.steps.time.0.weight", title).shape[1]
        else:
            fields["ff_ratio"] = len(_take(ours, "layers.0.mlp.0.weight", title)) / d
        return ours, fields

    return convert


def convert_masked(table: Mapping[str, str], title: str) -> Callable[[Weights], Converted]:
    """Convert a network for masked images. Its fixed positions, which are not in the file, become weights."""

    def convert(weights: Weights) -> Converted:
        ours = rename(weights, table, title)
        d = _take(ours, "embedding.tokens.weight", title).shape[1]
        hyper_set = table is MASKED_HYPER_SET
        hidden = _take(ours, "layers.0.feed_forward.D.weight" if hyper_set else "layers.0.mlp.0.weight", title)
        fields: Fields = {"d": d, "ff_ratio": len(hidden) / d, "layers": _count(ours, r"^layers\.(\d+)\.")}
        if hyper_set:
            fields["num_heads"] = d // len(_take(ours, "layers.0.attention.norm.weight", title))
        ours["embedding.positions"] = grid_positions(16, d)
        return ours, fields

    return convert


def convert_crate(weights: Weights) -> Converted:
    ours, fields = _convert_patches(weights, CRATE, "CRATE")
    return ours, {**fields, "iterations": 1}


def _convert_patches(weights: Weights, table: Mapping[str, str], title: str) -> Converted:
    """The pixels of a patch come channel by channel here, and pixel by pixel there."""
    ours = rename(weights, table, title)
    linear = _take(ours, "embedding.linear.weight", title)
    d, values = linear.shape
    side = round((values / 3) ** 0.5)
    order = torch.arange(values).reshape(side, side, 3).permute(2, 0, 1).flatten()
    for name in ("embedding.linear.weight", "embedding.before.weight", "embedding.before.bias"):
        ours[name] = _take(ours, name, title)[..., order]
    return ours, {"d": d, "patch": side, "layers": _count(ours, r"^layers\.(\d+)\.")}


def convert_classifier(weights: Weights) -> Converted:
    """Of Hyper-SET. The fixed positions are not in the file and become weights: here all sines come before all cosines,
    there they alternate. An image has 16 × 16 patches, or 8 × 8 of 4 pixels."""
    title = "Hyper-SET on images"
    ours, fields = _convert_patches(weights, IMAGE_HYPER_SET, title)
    d, side = fields["d"], 8 if fields["patch"] == 4 else 16
    places = torch.arange(1 + side**2, dtype=torch.float64)
    ours["embedding.positions"] = sinusoids(places, d).unflatten(1, (2, d // 2)).mT.flatten(1)
    fields["num_heads"] = d // len(_take(ours, "layers.0.attention.norm.weight", title))
    fields["ff_ratio"] = len(_take(ours, "layers.0.feed_forward.D.weight", title)) / d
    fields["time_frequencies"] = _take(ours, "layers.0.steps.time.0.weight", title).shape[1]
    return ours, fields


def convert_mixer(table: Mapping[str, str], title: str) -> Callable[[Weights], Converted]:
    def convert(weights: Weights) -> Converted:
        ours = rename(weights, table, title)
        stem = _take(ours, "stem.linear.weight", title)
        ours["stem.linear.weight"] = stem.flatten(1)
        inner = "token.down.0" if table is IMIXER else "token_mixing.fc1"
        hidden = len(_take(ours, f"blocks.0.{inner}.weight", title))
        outer = "channel.0" if table is IMIXER else "channel_mixing.fc1"
        fields: Fields = {
            "C": len(stem), "patch": stem.shape[-1], "depth": _count(ours, r"^blocks\.(\d+)\."),
            "token_hidden": hidden, "channel_hidden": len(_take(ours, f"blocks.0.{outer}.weight", title)),
        }  # fmt: skip
        if table is IMIXER:
            fields["h_r"] = len(_take(ours, "blocks.0.token.down.1.weight", title)) / hidden
        return ours, fields

    return convert


@dataclass(frozen=True)
class Official:
    """A network of the authors: how its weights are converted, and what they do not show."""

    title: str
    recipe: str
    """The data and the task."""
    convert: Callable[[Weights], Converted]
    model: Fields = field(default_factory=dict)
    settings: Fields = field(default_factory=dict)
    """How the authors' code prepares the data."""

    def read(self, weights: Weights, path: Path) -> Converted:
        """The converted weights of a file, and the fields that they show."""
        try:
            return self.convert(weights)
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
            raise UserError(f"{path} holds another network: its tensors have not the shapes of {self.title}") from None


_SUDOKU: Fields = {"positions": "learned", "head_bias": False, "iterations": 24}
_STEPS: Fields = {"step_sizes": "X_0", "time_spacing": "inclusive", "activation": "relu"}
_RIVAL: Fields = {"num_heads": 12, "activation": "relu"}
_TIMM: Fields = {"task.scaling": "half", "task.interpolation": "bicubic"}
_IMAGENET: Fields = {"source.name": "imagenet1k"}
_ours, _theirs = "Hyper-SET on Sudoku", "the Transformer on Sudoku"
_masked_ours, _masked_theirs = "Hyper-SET on masked images", "the Transformer on masked images"
OFFICIAL: dict[str, Official] = {
    "hyper_set/sudoku": Official(_ours, "hyperset-sudoku", convert_tokens(HYPER_SET, _ours), _SUDOKU | _STEPS),
    "recurrent_transformer/sudoku": Official(
        _theirs, "hyperset-sudoku-transformer", convert_tokens(TRANSFORMER, _theirs), _SUDOKU | _RIVAL
    ),
    "hyper_set/images": Official(
        "Hyper-SET on images", "hyperset-cifar10", convert_classifier,
        {
            **_STEPS, "step_sizes": "X_t", "activation": "gelu", "positions": "learned", "attention_norms": "three",
            "time_norms": True,
        },
        {"task.resize": None},
    ),
    "hyper_set/masked-images": Official(
        _masked_ours, "hyperset-masked", convert_masked(MASKED_HYPER_SET, _masked_ours),
        {"positions": "learned", "time_mlp": False, **_STEPS},
    ),
    "hyper_set/masked-images-8d": Official(
        _masked_ours, "hyperset-masked-8d", convert_masked(MASKED_HYPER_SET, _masked_ours),
        {"positions": "learned", "time_mlp": False, "iterations": 24, **_STEPS},
    ),
    "recurrent_transformer/masked-images": Official(
        _masked_theirs, "hyperset-masked-transformer", convert_masked(MASKED_TRANSFORMER, _masked_theirs),
        {"positions": "learned", **_RIVAL},
    ),
    **{
        f"crate/{size}": Official(
            "CRATE", "hyperset-cifar10-crate", convert_crate, {"num_heads": heads, "positions": "learned"}, _IMAGENET
        )
        for size, heads in (("tiny", 6), ("small", 12), ("base", 12), ("large", 16))
    },
    **{
        f"imixer/{size}": Official(
            "iMixer", f"imixer-{size}", convert_mixer(IMIXER, "iMixer"), {"iterations": 2}, _TIMM
        )
        for size in ("s", "b", "l")
    },
    **{
        f"mlp_mixer/{size}": Official(
            "timm's Mixer", f"imixer-mixer-{size}", convert_mixer(MIXER, "timm's Mixer"), {}, _TIMM | _IMAGENET
        )
        for size in ("s", "b", "l")
    },
}  # fmt: skip
"""By model and size."""


def find_official(name: str) -> Official:
    if name not in OFFICIAL:
        raise UserError(f"there is no official network {name!r}; {nearest(name, OFFICIAL)}")
    return OFFICIAL[name]
