"""LPIPS and FID, measured if the weights of their networks are on disk.

The package has no weights. Both files are safetensors in the data folder:

    lpips/alex.safetensors       torchvision's AlexNet (``features.*``) and the heads (``lin0.model.1.weight`` …) of The
                                 Unreasonable Effectiveness of Deep Features (Zhang et al. 2018), version 0.1
    fid/inception.safetensors    the Inception of the original FID (Heusel et al. 2017), converted to torch, with the
                                 names of pt_inception-2015-12-05
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from isthmus.analysis.inception import Inception
from isthmus.layers.published_weights import load_published
from isthmus.training.checkpoint import read_tensors

FILES = {"lpips": "lpips/alex.safetensors", "fid": "fid/inception.safetensors"}
_ROWS_AT_ONCE = 32


def explain_missing(name: str) -> str:
    """The line that is shown instead of a metric whose weights are missing."""
    return f"{name.upper()} needs its weights as {FILES[name]} in the data folder; the file is missing"


def _load(network: nn.Module, name: str, data_dir: Path) -> bool:
    """Load the weights of a network; False if the file is missing."""
    path = data_dir / FILES[name]
    if path.is_file():
        load_published(network.eval(), read_tensors(path)[0], str(path), f"network for {name.upper()}")
    return path.is_file()


class Lpips(nn.Module):
    """Weighted squared differences of AlexNet's features, which are normalised to unit length."""

    shift: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        conv, pool = nn.Conv2d, nn.MaxPool2d(3, stride=2)
        layers: dict[str, nn.Module] = {
            "0": conv(3, 64, 11, stride=4, padding=2), "2": pool, "3": conv(64, 192, 5, padding=2), "5": pool,
            "6": conv(192, 384, 3, padding=1), "8": conv(384, 256, 3, padding=1), "10": conv(256, 256, 3, padding=1),
        }  # fmt: skip
        self.features = nn.ModuleDict(layers)
        for place, width in enumerate((64, 192, 384, 256, 256)):
            head = nn.Sequential(nn.Dropout(), nn.Conv2d(width, 1, 1, bias=False))
            self.add_module(f"lin{place}", nn.ModuleDict({"model": head}))
        self.register_buffer("shift", torch.tensor([-0.030, -0.088, -0.188])[:, None, None], persistent=False)
        self.register_buffer("scale", torch.tensor([0.458, 0.448, 0.450])[:, None, None], persistent=False)

    @classmethod
    def load(cls, data_dir: Path, device: torch.device) -> Self | None:
        model = cls()
        return model.to(device) if _load(model, "lpips", data_dir) else None

    def distances(self, ours: Tensor, theirs: Tensor) -> Tensor:
        """The distance of every pair of images in [0, 1]; grey images become three equal channels."""
        one, other = (((2 * x - 1).expand(-1, 3, -1, -1) - self.shift) / self.scale for x in (ours, theirs))
        total, place = ours.new_zeros(len(ours)), 0
        for layer in self.features.values():
            one, other = layer(one), layer(other)
            if isinstance(layer, nn.Conv2d):
                one, other = one.relu(), other.relu()
                head = self.get_submodule(f"lin{place}.model")
                total = total + head((_unit(one) - _unit(other)).square()).mean(dim=(1, 2, 3))
                place += 1
        return total

    @torch.no_grad()
    def forward(self, ours: Tensor, theirs: Tensor) -> float:
        pairs = zip(ours.split(_ROWS_AT_ONCE), theirs.split(_ROWS_AT_ONCE), strict=True)
        return float(torch.cat([self.distances(*pair) for pair in pairs]).mean())


def _unit(features: Tensor) -> Tensor:
    return features / (features.square().sum(dim=1, keepdim=True).sqrt() + 1e-10)


class Fid:
    """The Fréchet distance between Gaussians fitted to Inception's features of our images and of the originals."""

    def __init__(self, network: Inception) -> None:
        self.network = network
        self.known: Moments | None = None  # of the originals, computed once

    @classmethod
    def load(cls, data_dir: Path, device: torch.device) -> Self | None:
        network = Inception()
        return cls(network.to(device)) if _load(network, "fid", data_dir) else None

    @torch.no_grad()
    def __call__(self, ours: Iterable[Tensor], theirs: Iterable[Tensor]) -> float:
        """The distance between all images of both; each is given in pieces."""
        if self.known is None:
            self.known = moments(self._features(theirs))
        return frechet(moments(self._features(ours)), self.known)

    def _features(self, pieces: Iterable[Tensor]) -> Tensor:
        parts = (part for images in pieces for part in images.split(_ROWS_AT_ONCE))
        return torch.cat([self.network(part.expand(-1, 3, -1, -1)) for part in parts])


class Moments(NamedTuple):
    mean: Tensor
    root: Tensor
    """R with covariance Σ = RᵀR; it has at most as many rows as there are images or features."""


def moments(features: Tensor) -> Moments:
    """In float64."""
    features = features.double()
    centred = (features - features.mean(dim=0)) / (len(features) - 1) ** 0.5
    if len(centred) > centred.shape[1]:
        centred = torch.linalg.qr(centred, mode="r").R
    return Moments(features.mean(dim=0), centred)


def frechet(one: Moments, other: Moments) -> float:
    """‖μ − μ'‖² + tr(Σ + Σ' − 2 (Σ Σ')^½).

    The eigenvalues of Σ Σ' are the squared singular values of R R'ᵀ, which is small if there are few images.
    """
    shared = torch.linalg.svdvals(one.root @ other.root.T).sum()
    spread = one.root.square().sum() + other.root.square().sum() - 2 * shared
    return float((one.mean - other.mean).square().sum() + spread)
