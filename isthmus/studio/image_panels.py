"""The panels of images: classes, and images before and after they are restored."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping
from html import escape

import numpy as np

from isthmus.core.draws import numpy_generator
from isthmus.core.errors import UserError
from isthmus.studio.design import slider
from isthmus.studio.layout import Part
from isthmus.studio.panel import TURN, Panel, picture, show_probabilities


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
        shown = f"<figure class='seen'>{picture(image, 'what the network sees')}</figure>"
        likely = show_probabilities(classes, found)
        return {"answer": f"<h2>Prediction</h2><div class='pair'>{shown}<div>{likely}</div></div>"}


class RestorePanel(ImagePanel):
    """An image before and after: with noise that a slider sets, or reduced in size."""

    @property
    def has_noise(self) -> bool:
        return hasattr(self.trained.task.config, "noise_std")

    def controls(self, given: Mapping[str, str]) -> str:
        if not self.has_noise:
            return ""
        return slider("noise", self._noise(given), (0, 1), whole=False)

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
        shown = {"The image": image, "Before": before, "After": after}
        figures = "".join(
            f"<figure class='seen'>{picture(each, name)}"
            f"<figcaption>{name}{self._error(name, each, image)}</figcaption></figure>"
            for name, each in shown.items()
        )
        return {"answer": f"<h2>Before and after</h2><div class='restored' aria-live='polite'>{figures}</div>"}

    def _error(self, name: str, ours: np.ndarray, theirs: np.ndarray) -> str:
        if name == "The image" or ours.shape != theirs.shape:
            return ""
        error = float(np.square(ours.astype(float) - theirs).mean()) / 255**2
        return f": {-10 * math.log10(max(error, 1e-10)):.2f} dB"
