"""How close images with masked and filled-in tokens are to the originals.

Paper: Hyperspherical Energy Transformer with Recurrent Depth, Tables 2 and 10 to 12 and Figures 7 and 13. For runs of
task masked_tokens: 10 to 40 % of the tokens of test images are masked, filled in by the task's method (24 arccos
steps), and decoded by the tokenizer. With nothing masked, the same numbers show the error of the tokenizer alone.

    psnr, ssim, ms_ssim  higher is better; by torchmetrics on values in [0, 1]; its SSIM counts the mirrored border, and
                         MS-SSIM has five scales and needs 161 pixels
    lpips, fid           lower is better; measured if their weights are on disk (``perceptual.py``)
    token_accuracy       of the masked tokens

With ``task.picture_scaling=min_max`` all metrics compare pictures of which each colour is scaled from its least to its
largest value, as in the authors' code.
"""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchmetrics.functional.image import (
    multiscale_structural_similarity_index_measure,
    peak_signal_noise_ratio,
    structural_similarity_index_measure,
)

from isthmus.analysis.perceptual import Fid, Lpips, explain_missing
from isthmus.analysis.pictures import finish, page, save, style
from isthmus.analysis.trained_run import TrainedRun, measure_once
from isthmus.core.draws import torch_generator
from isthmus.core.files import data_dir as default_data_dir
from isthmus.core.files import write_with
from isthmus.core.registry import component
from isthmus.tasks.masks import exact_mask
from isthmus.training.prepare import load_data
from isthmus.training.samples import write_sheet
from isthmus.training.tokenizers import open_tokenizer

SCHEMA = "isthmus.analysis.reconstruction/1"
SHARES = (0.1, 0.2, 0.3, 0.4)
ROWS = 256
_PIECE = 256
_SHOWN = 8
_MS_SSIM_FROM = 161
_BETTER = {"psnr": "dB", "ssim": "SSIM", "ms_ssim": "MS-SSIM"}


def applies(model: Any, task: str) -> str | None:
    return None if task == "masked_tokens" else "it fills in no hidden tokens"


def of_run(run: str | Path, data_dir: Path | None = None, rows: int = ROWS) -> dict[str, Any]:
    """Metrics and a sheet of pictures; the name of the stored file includes ``rows`` if it is not the default."""
    name = "reconstruction" if rows == ROWS else f"reconstruction-{rows}"
    place = data_dir or default_data_dir()
    return measure_once(run, name, SCHEMA, lambda trained: measure(trained, place, rows), applies, data_dir)


@torch.no_grad()
def measure(trained: TrainedRun, data_dir: Path, rows: int = ROWS) -> dict[str, Any]:
    """Measure at most ``rows`` test images, the same for every run."""
    config = trained.record.config["source"]
    images = load_data(component("sources", config["images"]), data_dir).test.inputs
    tokenizer = open_tokenizer(config["tokenizer"], data_dir, images.shape[1:])
    index = torch.randperm(len(images), generator=torch_generator(0, "analysed rows"))[:rows].sort().values.numpy()
    originals, tokens = images[index], torch.from_numpy(trained.data.test.inputs[index].astype(np.int64))
    whole = tokenizer.pictures(tokens.numpy())
    task: Any = trained.task
    quality = Quality(originals, data_dir, trained.device, task.config.picture_scaling)
    table = [{"masked": 0.0, **quality(whole)}]
    lines = [originals[:_SHOWN], whole[:_SHOWN]]
    for share in SHARES:
        mask = exact_mask(len(tokens), tokens.shape[1], share, torch_generator(0, f"hidden {share:g}"))
        hidden = tokens.masked_fill(mask, task.mask_token)
        filled = task.fill_in(trained.model, hidden.to(trained.device), torch_generator(0, f"filled {share:g}")).cpu()
        drawn = tokenizer.pictures(filled.numpy())
        right = float((filled == tokens)[mask].double().mean())
        table.append({"masked": share, **quality(drawn), "token_accuracy": right})
    lines += [tokenizer.pictures(tokens[:_SHOWN].numpy(), mask[:_SHOWN].numpy()), drawn[:_SHOWN]]
    return {
        "rows": len(index),
        "steps": task.config.decoding_steps,
        "temperature": task.config.temperature,
        "table": table,
        "missing": quality.missing,
        "sheet": _sheet(lines),
    }


class Quality:
    """The distance of pictures from the originals, by all available metrics."""

    def __init__(self, originals: np.ndarray, data_dir: Path, device: torch.device, scaling: str = "none") -> None:
        self.originals, self.device = originals, device
        self.scale = _stretch if scaling == "min_max" else _keep
        self.lpips, self.fid = Lpips.load(data_dir, device), Fid.load(data_dir, device)
        found = {"lpips": self.lpips, "fid": self.fid}
        self.missing = [explain_missing(name) for name, measure in found.items() if measure is None]
        if min(originals.shape[2:]) < _MS_SSIM_FROM:
            height, width = originals.shape[2:]
            self.missing.append(f"MS-SSIM needs images of {_MS_SSIM_FROM} pixels; these have {height}×{width}")

    def __call__(self, pictures: np.ndarray) -> dict[str, float]:
        means: dict[str, float] = {}
        for ours, theirs in zip(self._pieces(pictures), self._pieces(self.originals), strict=True):
            for name, value in self._distances(self.scale(ours), self.scale(theirs)).items():
                means[name] = means.get(name, 0.0) + float(value) * (len(ours) / len(pictures))
        if self.fid is not None:
            means["fid"] = self.fid(*(map(self.scale, self._pieces(images)) for images in (pictures, self.originals)))
        return means

    def _pieces(self, images: np.ndarray) -> Iterator[Tensor]:
        """Images with values in [0, 1], some at a time to save memory."""
        for start in range(0, len(images), _PIECE):
            yield torch.from_numpy(np.array(images[start : start + _PIECE])).to(self.device).float().div_(255)

    def _distances(self, ours: Tensor, theirs: Tensor) -> dict[str, Any]:
        """The metrics that are means over images."""
        found: dict[str, Any] = {
            "psnr": peak_signal_noise_ratio(ours, theirs, data_range=1.0, dim=(1, 2, 3), reduction="elementwise_mean"),
            "ssim": structural_similarity_index_measure(ours, theirs, data_range=1.0),
        }
        if min(ours.shape[2:]) >= _MS_SSIM_FROM:
            found["ms_ssim"] = multiscale_structural_similarity_index_measure(ours, theirs, data_range=1.0)
        return found | ({"lpips": self.lpips(ours, theirs)} if self.lpips is not None else {})


def _keep(images: Tensor) -> Tensor:
    return images


def _stretch(images: Tensor) -> Tensor:
    """Each colour of each image from 0, its least value, to 1, its largest; a colour of one value becomes 0."""
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    return (images - low) / (high - low).clamp_min(1 / 255)


def _sheet(lines: list[np.ndarray]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sheet.png"
        write_sheet(path, lines)
        return base64.b64encode(path.read_bytes()).decode()


def summary(found: Mapping[str, Any]) -> dict[str, float | str]:
    ceiling, *_, last = found["table"]
    numbers: dict[str, float | str] = {
        f"{name}, {last['masked']:.0%} hidden": last[name] for name in last if name != "masked"
    }
    numbers |= {f"{name}, tokenizer alone": ceiling[name] for name in ceiling if name != "masked"}
    return numbers | {f"not measured ({n})": line for n, line in enumerate(found["missing"], start=1)}


def draw(found: Mapping[str, Any], folder: Path) -> list[Path]:
    """The metrics over the masked share, and the sheet: original, tokenizer alone, masked, filled in."""
    table = found["table"]
    names = [name for name in _BETTER if name in table[0]]
    figure, (axes,) = page(1, len(names), width=3.6, height=3.0)
    for place, (axis, name) in enumerate(zip(axes, names, strict=True)):
        axis.plot([row["masked"] for row in table], [row[name] for row in table], **style(place))
        finish(axis, name.upper().replace("_", "-"), "masked part of the tokens", _BETTER[name])
    sheet = folder / "reconstruction-images.png"

    def write(temporary: Path) -> None:
        temporary.write_bytes(base64.b64decode(found["sheet"]))

    write_with(sheet, write)
    return [save(figure, folder / "reconstruction.png"), sheet]
