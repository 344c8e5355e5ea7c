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


def is_from_timm(weights: Mapping[str, Tensor]) -> bool:
    return "patch_embed.proj.weight" in weights or "stem.proj.weight" in weights


def translate(name: str, table: Mapping[str, str], title: str) -> str:
    """Our name for a tensor; empty if we do not need it."""
    for theirs, ours in table.items():
        if re.fullmatch(theirs, name):
            return re.sub(theirs, ours, name)
    raise UserError(f"{name} has no place in {title}; the file holds another network")


def convert_timm(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict of timm's ``vit_*`` with a class token, or of its ``mixer_*``, for ``vit`` or ``mlp_mixer``."""
    table, title = (VIT, "our ViT") if "patch_embed.proj.weight" in weights else (MIXER, "our Mixer")
    found = {}
    for name, weight in weights.items():
        ours = translate(name, table, title)
        if ours == "stem.linear.weight":
            weight = weight.flatten(1)
        found[ours] = weight.squeeze(0) if ours == "positions" else weight
    return found
