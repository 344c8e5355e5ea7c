"""``import isthmus.timm`` registers our ViTs and mixers with ``timm.create_model``.

    isthmus_vit_tiny_patch16_224, isthmus_hourglass_vit_tiny_patch16_224                       also small and large
    isthmus_mixer_s16_224, isthmus_rp_mixer_s16_224 (random-permuted), isthmus_imixer_s16_224  also b and l

A model accepts timm's arguments (num_classes, in_chans, img_size, drop_rate, drop_path_rate, global_pool) and every
field of its config, such as ``ffn_blocks=2``. It loads our weights and those of timm's ViT and Mixer:
``pretrained=True, pretrained_cfg_overlay={"file": …}``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models._features import feature_take_indices
from timm.models._manipulate import adapt_input_conv
from torch import Tensor, nn

from isthmus.core.errors import UserError
from isthmus.core.registry import create_model
from isthmus.layers.residual import Stack
from isthmus.layers.spectral_norm import SpectralLinear
from isthmus.models import imixer, mlp_mixer, vit
from isthmus.training.timm_weights import convert_timm, is_from_timm

VARIANTS: dict[str, dict[str, Any]] = {}
for _size in ("tiny", "small", "large"):
    VARIANTS[f"isthmus_vit_{_size}_patch16_224"] = vit.VARIANTS[f"{_size}-conventional"]
    VARIANTS[f"isthmus_hourglass_vit_{_size}_patch16_224"] = vit.VARIANTS[f"{_size}-hourglass"]
for _size in ("s", "b", "l"):
    _random = {"permutation": "random", "permutation_seed": 0}
    VARIANTS[f"isthmus_mixer_{_size}16_224"] = mlp_mixer.VARIANTS[_size] | {"init": "xavier"}
    VARIANTS[f"isthmus_rp_mixer_{_size}16_224"] = mlp_mixer.VARIANTS[_size] | _random
    VARIANTS[f"isthmus_imixer_{_size}16_224"] = imixer.VARIANTS[_size]


class Backbone(nn.Module):
    """One of our models with the methods that timm's scripts and wrappers call."""

    def __init__(
        self, settings: Mapping[str, Any], num_classes: int = 1000, in_chans: int = 3,
        img_size: int | tuple[int, int] = 224, drop_rate: float = 0.0, drop_path_rate: float = 0.0,
        global_pool: str | None = None, **fields: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        height, width = (img_size, img_size) if isinstance(img_size, int) else img_size
        self.input_shape = (in_chans, height, width)
        given: dict[str, Any] = {"input_shape": self.input_shape, "output_shape": (max(1, num_classes),)}
        if global_pool == "avg" and settings["name"] == "vit":
            given["pool"] = "mean"
        model: Any = create_model(**{**settings, **given, "drop_path": drop_path_rate, **fields})
        self.model = model
        self.prefix = int(getattr(self.model, "class_token", None) is not None)
        self.global_pool = global_pool if global_pool is not None else "token" if self.prefix else "avg"
        self.num_classes, self.in_chans, self.drop_rate = num_classes, in_chans, drop_rate
        self.num_features = self.head_hidden_size = self.embed_dim = model.head.linear.in_features
        self.grid = model.config.grid
        common = {"num_chs": self.num_features, "reduction": model.config.patch}
        self.feature_info = [{"module": f"model.blocks.{i}", **common} for i in range(len(model.blocks))]
        self.grad_checkpointing = False
        self._check_pool(self.global_pool)
        if num_classes == 0:
            self.reset_classifier(0)

    def _check_pool(self, pool: str) -> None:
        accepted = ("token", "avg", "") if self.prefix else ("avg", "")
        if pool not in accepted:
            raise UserError(f"global_pool={pool!r}: {self.model.config.name} takes {', '.join(map(repr, accepted))}")

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """The groups of parameters for layer-wise learning rates."""
        blocks = [(r"^model\.blocks\.(\d+)", None), (r"^model\.norm", (99999,))]
        return {"stem": r"^model\.(?:stem|class_token|positions)", "blocks": blocks}

    def no_weight_decay(self) -> set[str]:
        return {f"model.{name}" for name in ("class_token", "positions") if getattr(self.model, name, None) is not None}

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute blocks in the backward pass instead of storing them."""
        if enable and any(isinstance(part, SpectralLinear) for part in self.modules()):
            raise UserError(
                "a spectral norm changes with every pass, so gradient checkpointing would change the results"
            )
        self.grad_checkpointing = enable

    def get_classifier(self) -> nn.Module:
        return self.model.head.linear

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        if global_pool is not None:
            self._check_pool(global_pool)
            self.global_pool = global_pool
        like = self.model.stem.linear.weight
        self.num_classes = num_classes
        head = nn.Linear(self.num_features, num_classes, device=like.device, dtype=like.dtype) if num_classes else None
        self.model.head.linear = nn.Identity() if head is None else head

    def _states(self, x: Tensor, blocks: Stack) -> list[Tensor]:
        """The tokens after each block."""
        if tuple(x.shape[1:]) != self.input_shape:  # an image of another size may have as many patches
            raise UserError(
                f"images of shape {tuple(x.shape[1:])} for a model of {self.input_shape}; create the model with their "
                "in_chans and img_size (timm's train.py: --model-kwargs img_size=32)"
            )
        return list(blocks.streams(self.model.embed(x), recompute=self.grad_checkpointing))

    def forward_features(self, x: Tensor) -> Tensor:
        return self.model.norm(self._states(x, self.model.blocks)[-1])

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        if self.global_pool:
            x = x[:, 0] if self.global_pool == "token" else x[:, self.prefix :].mean(1)
        x = nn.functional.dropout(x, self.drop_rate, self.training)
        return x if pre_logits else self.get_classifier()(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))

    def forward_intermediates(
        self, x: Tensor, indices: int | list[int] | None = None, return_prefix_tokens: bool = False,
        norm: bool = False, stop_early: bool = False, output_fmt: Literal["NCHW", "NLC"] = "NCHW",
        intermediates_only: bool = False,
    ) -> Any:  # fmt: skip
        """The tokens after the chosen blocks, as maps or as rows, and the features unless ``intermediates_only``."""
        chosen, last = feature_take_indices(len(self.model.blocks), indices)
        states = self._states(x, self.model.blocks[: last + 1] if stop_early else self.model.blocks)
        found: list[Any] = [self.model.norm(states[i]) if norm else states[i] for i in chosen]
        prefixes = [tokens[:, : self.prefix] for tokens in found]
        found = [tokens[:, self.prefix :] for tokens in found]
        if output_fmt == "NCHW":
            found = [tokens.mT.reshape(len(x), -1, *self.grid).contiguous() for tokens in found]
        if return_prefix_tokens and self.prefix:
            found = list(zip(found, prefixes, strict=True))
        return found if intermediates_only else (self.model.norm(states[-1]), found)

    def prune_intermediate_layers(
        self, indices: int | list[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Remove all blocks after the last chosen one."""
        chosen, last = feature_take_indices(len(self.model.blocks), indices)
        self.model.blocks = self.model.blocks[: last + 1]
        if prune_norm:
            self.model.norm = nn.Identity()
        if prune_head:
            self.reset_classifier(0, "")
        return list(chosen)


def _adapt_weights(weights: Mapping[str, Tensor], model: Backbone) -> dict[str, Tensor]:
    """Weights in this module's names, from its own checkpoints, those of Isthmus, and those of timm's ViT and Mixer."""
    if is_from_timm(weights):
        weights = {
            name: adapt_input_conv(model.in_chans, weight) if weight.ndim == 4 and model.in_chans != 3 else weight
            for name, weight in weights.items()
        }
        weights = convert_timm(weights)
    return {name if name.startswith("model.") else f"model.{name}": weight for name, weight in weights.items()}


_CONFIG = {
    "url": "", "num_classes": 1000, "input_size": (3, 224, 224), "fixed_input_size": True, "pool_size": None,
    "crop_pct": 0.875, "interpolation": "bilinear", "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5),
    "first_conv": None,  # it is a matrix; ``_adapt_weights`` adapts it to other numbers of channels
    "classifier": "model.head.linear", "license": "apache-2.0",
}  # fmt: skip
default_cfgs = generate_default_cfgs({f"{name}.untrained": _CONFIG for name in VARIANTS})


def _entrypoint(name: str) -> Callable[..., nn.Module]:
    def create(pretrained: bool = False, **kwargs: Any) -> nn.Module:
        features = {"out_indices": kwargs.pop("out_indices", 3), "feature_cls": "getter"}
        given = {"pretrained_filter_fn": _adapt_weights, "feature_cfg": features, "settings": VARIANTS[name], **kwargs}
        return build_model_with_cfg(Backbone, name, pretrained, **given)

    create.__name__ = create.__qualname__ = name
    create.__doc__ = f"{name}, one of our models (see the module)."
    return create


__all__: list[str] = ["Backbone"]
for _name in VARIANTS:
    globals()[_name] = register_model(_entrypoint(_name))
