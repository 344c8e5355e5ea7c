"""The arithmetic of a learned table encoder as a torch module, so that it can be exported with a model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from isthmus.sources.encoding import TableEncoder, expand_codes


class EncoderModule(nn.Module):
    """``TableEncoder.expand`` in torch: float64 codes (rows, codes) to float32 features (rows, features)."""

    def __init__(self, encoder: TableEncoder) -> None:
        super().__init__()
        self._names = {name: name.replace(".", "_") for name in encoder.plan}
        for name, constants in encoder.plan.items():
            self.register_buffer(self._names[name], torch.from_numpy(constants.copy()))

    def forward(self, codes: Tensor) -> Tensor:
        plan = {name: self.get_buffer(buffer) for name, buffer in self._names.items()}
        expanded: Tensor = expand_codes(torch, codes, plan, Tensor.float, Tensor.long)
        return expanded
