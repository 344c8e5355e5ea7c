"""The panels of images: a class, a value or a prototype of one, and images before and after they are restored."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping
from html import escape

import numpy as np

from isthmus.core.draws import numpy_generator
from isthmus.core.errors import UserError
from isthmus.studio.controls import slider
from isthmus.studio.layout import Part
from isthmus.studio.panel import TURN, Panel, picture, show_probabilities

_NEAREST = 5


class ImagePanel(Panel):
    """Samples, a drawing or an upload; what the network makes of it, before and after."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of a whole image."""
        task = self.trained.task
        channels, height, width = getattr(task, "image_shape", task.row_shape)
        return channels, height, width

    def form(self, given: Mapping[str, str]) -> str:
        channels, height, width = self.shape
        if channels not in (1, 3):
            raise UserError(f"images of {channels} channels cannot be shown")
        chosen = given.get("sample", "0")
        samples = ""
        if self.samples is not None:
            samples = "".join(
                f"<label class='sample'><input type='radio' name='sample' value='{number}'"
                f"{' checked' * (str(number) == chosen)}> {picture(image, f'sample {number + 1}')}</label>"
                for number, image in enumerate(self.samples.inputs)
            )
            samples = f"<fieldset><legend>Take a test image</legend><div class='thumbnails'>{samples}</div></fieldset>"
        own = (
            "<fieldset><legend>Or draw or upload one</legend>"
            f"<div class='paint' data-paint data-channels='{channels}'><canvas width='{width}' height='{height}' "
            "aria-label='Drawing; choose a file or a test image with the keyboard'></canvas>"
            "<div><label>Upload <input type='file' accept='image/*'></label> "
            "<p><button type='button' class='act' data-clear>Clear the drawing</button></p></div>"
            f"<input type='hidden' name='pixels' value='{escape(given.get('pixels', ''))}'></div></fieldset>"
        )
        return samples + own + self.controls(given)

    def controls(self, given: Mapping[str, str]) -> str:
        """Further fields."""
        return ""

    def image(self, given: Mapping[str, str]) -> np.ndarray:
        """The image of the form: uint8 (channels, height, width)."""
        shape = self.shape
        if text := given.get("pixels", ""):
            try:
                content = base64.b64decode(text, validate=True)
            except ValueError:
                raise UserError("the drawing cannot be read") from None
            if len(content) != math.prod(shape):
                raise UserError(f"the drawing has {len(content)} values, and the network takes {math.prod(shape)}")
            return np.frombuffer(content, np.uint8).reshape(shape[1], shape[2], shape[0]).transpose(2, 0, 1).copy()
        if self.samples is None:
            raise UserError("the data are not here; draw or upload an image")
        number = given.get("sample", "0")
        place = int(number) if re.fullmatch("[0-9]{1,2}", number) else 0
        image: np.ndarray = self.samples.inputs[place % len(self.samples.inputs)]
        return image


class ClassPanel(ImagePanel):
    """The class of an image, with probabilities."""

    def answer(self, given: Mapping[str, str]) -> dict[str, Part]:
        import torch

        image, task = self.image(given), self.trained.task
        with TURN, torch.no_grad():
            found = task.probabilities(self.trained.model(task.encode(image[None])))[0]
        classes = self.trained.classes or list(range(len(found)))
        return {"answer": _beside(image, show_probabilities(classes, found))}


class ValuePanel(ImagePanel):
    """The numbers that are predicted from an image."""

    def answer(self, given: Mapping[str, str]) -> dict[str, Part]:
        import torch

        image, task = self.image(given), self.trained.task
        with TURN, torch.no_grad():
            found = np.atleast_1d(task.decode(self.trained.model(task.encode(image[None])))[0])
        values = "".join(f"<div><dt>Value</dt><dd><b>{float(value):.6g}</b></dd></div>" for value in found)
        return {"answer": _beside(image, f"<dl class='figures' aria-live='polite'>{values}</dl>")}


class PrototypePanel(ImagePanel):
    """The prototype that the network draws for an image, and the classes whose prototypes are nearest to it."""

    def answer(self, given: Mapping[str, str]) -> dict[str, Part]:
        import torch

        image, task = self.image(given), self.trained.task
        with TURN, torch.no_grad():
            output = self.trained.model(task.encode(image[None]))
        errors = (task.prototypes.flatten(1) - output.flatten(1)).square().mean(dim=1).numpy()
        classes = self.trained.classes or list(range(len(errors)))
        order, prototypes = np.argsort(errors, kind="stable")[:_NEAREST], task.decode(task.prototypes)
        drawn = f"{_figure(image, 'The image')}{_figure(task.decode(output)[0], 'What the network draws')}"
        nearest = "".join(
            _figure(prototypes[place], f"{classes[place]}: PSNR {_decibels(errors[place]):.2f} dB") for place in order
        )
        best = f"<p class='answer' aria-live='polite'>{escape(str(classes[order[0]]))}</p>"
        return {
            "answer": f"<h2>Prediction</h2>{best}<div class='restored'>{drawn}</div>"
            f"<h2>Nearest prototypes</h2><div class='restored near'>{nearest}</div>"
        }


class TokenizerPanel(ImagePanel):
    """The tokens of an image, and the image that they give back."""

    def answer(self, given: Mapping[str, str]) -> dict[str, Part]:
        import torch

        image, task, model = self.image(given), self.trained.task, self.trained.model
        with TURN, torch.no_grad():
            seen = task.encode(image[None])
            after = task.decode(model(seen))[0]
            rows = model.tokens(seen).unflatten(1, model.grid)[0].tolist() if hasattr(model, "tokens") else []
        drawn = _figure(image, "The image") + _figure(after, "From its tokens" + _compare(after, image))
        cells = "".join(f"<tr>{''.join(f'<td>{token}</td>' for token in row)}</tr>" for row in rows)
        grid = (
            "<h2>Tokens</h2><div class='scroll' tabindex='0' role='region' aria-label='Tokens'><table class='tokens'>"
            f"<caption class='unseen'>Tokens of the image, row by row</caption><tbody>{cells}</tbody></table></div>"
        )
        shown = f"<h2>Before and after</h2><div class='restored' aria-live='polite'>{drawn}</div>"
        return {"answer": shown + (grid if rows else "")}


class RestorePanel(ImagePanel):
    """An image before and after: with noise that a slider sets, or reduced in size."""

    @property
    def has_noise(self) -> bool:
        return hasattr(self.trained.task.config, "noise_std")

    def controls(self, given: Mapping[str, str]) -> str:
        if not self.has_noise:
            return ""
        return slider("noise", self._noise(given), (0, 1), whole=False, label="Noise")

    def _noise(self, given: Mapping[str, str]) -> float:
        text = given.get("noise", "")
        usual: float = self.trained.task.config.noise_std
        return min(1.0, float(text)) if re.fullmatch(r"\d(\.\d{1,6})?|\.\d{1,6}", text) else usual

    def answer(self, given: Mapping[str, str]) -> dict[str, Part]:
        import torch

        image, task = self.image(given), self.trained.task
        clean = image.astype(np.float32)
        with TURN, torch.no_grad():
            if self.has_noise:
                draws = numpy_generator(0, "playground", 0).standard_normal(clean.shape).astype(np.float32)
                seen = task.encode((clean + 255 * self._noise(given) * draws)[None])
                before = np.clip(clean + 255 * self._noise(given) * draws, 0, 255).round().astype(np.uint8)
            else:
                seen = task.degrade(task.encode(clean[None]))
                before = seen[0].clamp(0, 1).mul(255).round().to(torch.uint8).numpy()
            after = task.decode(self.trained.model(seen))[0]
        figures = _figure(image, "The image")
        for name, each in {"With noise" if self.has_noise else "Reduced": before, "Restored": after}.items():
            figures += _figure(each, name + _compare(each, image))
        return {"answer": f"<h2>Before and after</h2><div class='restored' aria-live='polite'>{figures}</div>"}


def _beside(image: np.ndarray, found: str) -> str:
    """A prediction beside the image as the network sees it."""
    shown = f"<figure class='seen'>{picture(image, 'what the network sees')}</figure>"
    return f"<h2>Prediction</h2><div class='pair'>{shown}<div>{found}</div></div>"


def _figure(image: np.ndarray, name: str) -> str:
    shown = picture(image, name.partition(":")[0])  # the caption says the rest
    return f"<figure class='seen'>{shown}<figcaption>{escape(name)}</figcaption></figure>"


def _compare(ours: np.ndarray, theirs: np.ndarray) -> str:
    if ours.shape != theirs.shape:
        return ""
    return f": PSNR {_decibels(float(np.square(ours.astype(float) - theirs).mean()) / 255**2):.2f} dB"


def _decibels(error: float) -> float:
    """The PSNR of a mean squared error."""
    return -10 * math.log10(max(error, 1e-10))
