"""Masked image modelling: the model predicts the hidden tokens of an image.

Paper: Hyperspherical Energy Transformer with Recurrent Depth, section 5.3 and appendix A.4: the masking rate is drawn
from 0 to 0.4 for each image, masked tokens are replaced by a learned one, and only they count in the loss. Images are
filled in again in 24 steps. ``commonest_accuracy`` is the baseline for ``masked_accuracy``: it always predicts the most
common training token.

Differs from the paper: the loss of an image is the mean over its masked tokens, so that a batch's loss is a mean over
images; at least one token is masked. Validation and test mask the same number of tokens in each image.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor
from torchmetrics import MetricCollection

from isthmus.core.draws import torch_generator
from isthmus.core.errors import UserError
from isthmus.core.protocols import Batch, Component, Data, SampleRows, Signature, Split, SplitName, Task
from isthmus.tasks.augment.crops import flip, square_crop
from isthmus.tasks.masked_prediction import MaskedPredictor
from isthmus.tasks.masks import Mask, Tokens, exact_mask, fill, random_mask
from isthmus.tasks.token_scores import IGNORED, ShareOfRight, mean_cross_entropy

NAMES = {"masked_tokens": "MaskedTokens"}

Share = Annotated[float, Field(gt=0, le=1)]


class MaskedTokens(Task):
    class Config(Component):
        most_masked: Share = 0.4
        """The largest masking rate of a training image."""
        schedule: Literal["uniform", "arccos"] = "uniform"
        """How an image's masking rate is drawn: uniformly, or as in MaskGIT, where high rates are more frequent."""
        evaluation_masked: Share = 0.4
        """The masking rate of validation and test."""
        label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.1
        """The share of a target that is spread evenly over all tokens."""
        decoding_steps: Annotated[int, Field(ge=1, le=10_000)] = 24
        """Passes of the model that fill in masked tokens, for samples and predictions."""
        decoding_plan: Literal["masked", "all"] = "masked"
        """What these passes are planned for: the masked tokens of an image, or all of its tokens, as the authors do;
        then decoding ends as soon as no token is masked, after 14 of 24 passes if 40 % are."""
        temperature: Annotated[float, Field(ge=0, le=100)] = 1.0
        """Sampling temperature of these tokens; 0 takes the most likely."""
        picture_scaling: Literal["none", "min_max"] = "none"
        """Before pictures are compared: nothing, or each colour from its least to its largest value, as the authors."""
        random_crop: bool = False
        """Show training images through a square at a random place of the photograph, and make tokens of it in each
        step; with ``source.images.extent=whole``, because square images have one place only."""
        flip: bool = False
        """Mirror half of the training images left to right, likewise."""
        evaluation_seed: Annotated[int, Field(ge=0)] = 0
        """Seed of the validation and test masks; it is not the run's seed, so that all models see the same masks."""

    objective = "masked_accuracy"
    maximise = True
    predictor = MaskedPredictor

    def __init__(self, config: Any) -> None:
        self.config = config
        self.positions, self.codes, self.commonest = 0, 0, 0
        self.tokenizer = ""
        self.pictures: Split | None = None
        self.tokenize: Callable[[Tensor], Tensor] | None = None

    @property
    def crops_photographs(self) -> bool:
        return bool(self.config.random_crop)

    def learn(self, data: Data) -> None:
        if not data.vocabulary:
            raise UserError("task masked_tokens needs tokens of images: use source tokens")
        if (self.config.random_crop or self.config.flip) and not (data.pictures and data.tokenize):
            raise UserError("task.random_crop and task.flip need the images of the tokens: use source tokens")
        self.positions, self.codes = data.train.inputs.shape[1], data.vocabulary
        self.commonest = int(np.bincount(data.train.inputs.reshape(-1)).argmax())
        self.tokenizer = data.tokenizer
        self.pictures, self.tokenize = data.pictures, data.tokenize

    def memory(self) -> dict[str, Tensor]:
        numbers = {name: torch.tensor(getattr(self, name)) for name in ("positions", "codes", "commonest")}
        if not self.tokenizer:
            return numbers
        return numbers | {"tokenizer": torch.tensor(list(bytes.fromhex(self.tokenizer)), dtype=torch.uint8)}

    def recall(self, memory: Mapping[str, Tensor]) -> None:
        self.positions, self.codes, self.commonest = (int(memory[name]) for name in ("positions", "codes", "commonest"))
        if "tokenizer" in memory:  # runs of earlier versions did not keep it
            self.tokenizer = bytes(memory["tokenizer"].tolist()).hex()

    @property
    def mask_token(self) -> int:
        """The number of the mask token, after those of the codes."""
        return self.codes

    @property
    def signature(self) -> Signature:
        return Signature((self.positions,), (self.positions, self.codes), self.codes + 1)

    def training_batch(
        self, rows: Tensor, targets: Tensor | None, index: Tensor, view: Tensor, seed: int, step: int
    ) -> Batch:
        if self.config.random_crop or self.config.flip:
            rows = self._tokens_of_views(index, rows.device, seed, step)
        generator = torch_generator(seed, "mask", step)
        shares = torch.rand(len(rows), generator=generator)
        if self.config.schedule == "arccos":
            shares = shares.acos() * (2 / math.pi)
        return self._batch(rows, random_mask(shares * self.config.most_masked, self.positions, generator))

    def _tokens_of_views(self, index: Tensor, device: torch.device, seed: int, step: int) -> Tensor:
        """The images of these rows, cut and mirrored anew, as tokens."""
        assert self.pictures is not None
        assert self.tokenize is not None
        chosen, extents = index.cpu().numpy(), self.pictures.extents
        images = torch.from_numpy(self.pictures.inputs[chosen]).to(device)
        if self.config.random_crop:
            sizes = None if extents is None else torch.from_numpy(extents[chosen])
            images = square_crop(images, torch_generator(seed, "augment/crop", step), sizes)
        if self.config.flip:
            images = flip(images, torch_generator(seed, "augment/flip", step))
        return self.tokenize(images)

    def evaluation_batch(self, rows: Tensor, targets: Tensor | None, split: SplitName, block: int) -> Batch:
        generator = torch_generator(self.config.evaluation_seed, f"mask/{split}", block)
        return self._batch(rows, exact_mask(len(rows), self.positions, self.config.evaluation_masked, generator))

    def _batch(self, rows: Tensor, mask: Mask) -> Batch:
        tokens, mask = rows.long(), mask.to(rows.device)
        return Batch(tokens.masked_fill(mask, self.mask_token), tokens.masked_fill(~mask, IGNORED))

    def loss(self, output: Tensor, target: Tokens) -> Tensor:
        return mean_cross_entropy(output, target, self.codes, self.config.label_smoothing)

    def metrics(self, split: SplitName) -> MetricCollection:
        names = ("masked_accuracy", "commonest_accuracy")
        return MetricCollection({name: ShareOfRight() for name in names}, compute_groups=False)

    def measure(self, metrics: MetricCollection, output: Tensor, target: Tokens) -> None:
        hidden = target != IGNORED
        named = output.reshape(*target.shape, self.codes).argmax(dim=-1)
        metrics["masked_accuracy"].update((named == target)[hidden].float())
        metrics["commonest_accuracy"].update((target == self.commonest)[hidden].float())

    def sample_rows(self, model: Any, batch: Batch) -> list[SampleRows]:
        generator = torch_generator(self.config.evaluation_seed, "decoding")
        filled = self.fill_in(model, batch.input, generator)
        shown = batch.target == IGNORED
        whole = torch.where(shown, batch.input, batch.target).to(torch.int16).cpu().numpy()
        return [
            SampleRows(whole, hidden=(~shown).cpu().numpy()),
            SampleRows(filled.to(torch.int16).cpu().numpy()),
            SampleRows(whole),
        ]

    def refuse_other_data(self, data: Data, source: Mapping[str, Any]) -> None:
        self.need_tokenizer(source["tokenizer"], data.tokenizer, data.vocabulary, data.train.inputs.shape[1])

    def need_tokenizer(self, reference: str, digest: str, codes: int, positions: int) -> None:
        """Refuse a tokenizer other than the one whose tokens the task learned from."""
        same = self.tokenizer in ("", digest)  # earlier versions kept no digest
        if same and (codes, positions) == (self.codes, self.positions):
            return
        raise UserError(
            f"tokenizer {reference} has {_describe_tokenizer(codes, positions, digest)}, and the run was trained with "
            f"one of {_describe_tokenizer(self.codes, self.positions, self.tokenizer)}; put that one back, or train "
            "the run again"
        )

    def fill_in(self, model: Any, tokens: Tokens, generator: torch.Generator) -> Tokens:
        """Fill in all mask tokens, step by step."""
        config = self.config
        return fill(
            model, tokens, self.mask_token, config.decoding_steps, config.temperature, generator,
            config.decoding_plan == "all",
        )  # fmt: skip

    def encode(self, rows: np.ndarray) -> Int[Tensor, "rows positions"]:
        tokens = torch.from_numpy(np.array(rows, dtype=np.int64))
        if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) <= self.mask_token:
            raise UserError(
                f"tokens are numbers from 0 to {self.codes - 1}, and {self.mask_token} for one to fill in; "
                f"these range from {int(tokens.min())} to {int(tokens.max())}"
            )
        return tokens

    def decode(self, output: Tensor) -> np.ndarray:
        """The most likely token of every position; of a target its tokens, with −100 where nothing was masked."""
        if not output.is_floating_point():
            return output.to(torch.int16).cpu().numpy()
        scores = output.reshape(len(output), self.positions, self.codes)
        return scores.argmax(dim=-1).to(torch.int16).cpu().numpy()


def _describe_tokenizer(codes: int, positions: int, digest: str) -> str:
    return f"{codes} codes and {positions} positions" + (f" (SHA-256 {digest[:12]}…)" if digest else "")
