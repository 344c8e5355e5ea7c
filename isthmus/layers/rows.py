"""Settings of models on rows of numbers; an image is flattened to a row."""

from __future__ import annotations

import math
from typing import Annotated, Self

from pydantic import Field

from isthmus.core.errors import UserError
from isthmus.core.protocols import ModelConfig, Signature

Width = Annotated[int, Field(ge=1, le=2**24)]


class RowModelConfig(ModelConfig):
    d_in: Width | None = None
    """Input width; a run takes it from its task."""
    d_out: Width | None = None
    """Output width; a run takes it from its task."""

    @property
    def ends(self) -> tuple[int, int]:
        if self.d_in is None or self.d_out is None:
            raise UserError(f"{self.name} needs d_in and d_out where no task gives them")
        return self.d_in, self.d_out

    def complete(self, signature: Signature, seed: int) -> Self:
        return self.require(d_in=math.prod(signature.input_shape), d_out=math.prod(signature.output_shape))
