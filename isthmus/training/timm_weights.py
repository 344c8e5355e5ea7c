"""Converts weights of timm's ViT and Mixer to our names and shapes; timm itself is not needed."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from isthmus.core.errors import UserError

VIT = {
    r"cls_token": "class_token",
    r"pos_embed": "positions",
    r"patch_embed\.proj\.(\w+)": r"stem.linear.\1",
    r"(blocks\.\d+)\.norm1\.(\w+)": r"\1.norm.\2",
    r"(blocks\.\d+)\.attn\.qkv\.(\w+)": r"\1.attention.qkv.\2",
    r"(blocks\.\d+)\.attn\.proj\.(\w+)": r"\1.attention.out.\2",
    r"(blocks\.\d+)\.norm2\.(\w+)": r"\1.ffn.0.norm.\2",
    r"(blocks\.\d+)\.mlp\.fc([12])\.(\w+)": r"\1.ffn.0.W\2.\3",
    r"norm\.(\w+)": r"norm.\1",
    r"head\.(\w+)": r"head.linear.\1",
}
MIXER = {
    r"stem\.proj\.(\w+)": r"stem.linear.\1",
    r"(blocks\.\d+\.norm[12]\.\w+)": r"\1",
    r"(blocks\.\d+)\.mlp_tokens\.(\w+\.\w+)": r"\1.token_mixing.\2",
    r"(blocks\.\d+)\.mlp_channels\.(\w+\.\w+)": r"\1.channel_mixing.\2",
    r"norm\.(\w+)": r"norm.\1",
    r"head\.(\w+)": r"head.linear.\1",
}


def is_timms(weights: Mapping[str, Tensor]) -> bool:
    return "patch_embed.proj.weight" in weights or "stem.proj.weight" in weights


def in_our_names(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict of timm's ``vit_*`` with a class token, or of its ``mixer_*``, for ``vit`` or ``mlp_mixer``."""
    table = VIT if "patch_embed.proj.weight" in weights else MIXER
    found = {}
    for name, weight in weights.items():
        ours = next((re.sub(old, new, name) for old, new in table.items() if re.fullmatch(old, name)), None)
        if ours is None:
            raise UserError(f"{name} has no place in our {'ViT' if table is VIT else 'Mixer'}")
        if ours == "stem.linear.weight":
            weight = weight.flatten(1)
        found[ours] = weight.squeeze(0) if ours == "positions" else weight
    return found
