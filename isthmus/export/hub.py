"""Models for the Hugging Face Hub, with ``from_pretrained``, ``save_pretrained`` and ``push_to_hub``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from isthmus.core.errors import UserError
from isthmus.training.checkpoint import write_whole_model
from isthmus.training.exported import FILES, is_exported
from isthmus.training.loading import load_model

try:
    from huggingface_hub import PyTorchModelHubMixin, hf_hub_download
except ImportError:
    raise UserError("models on the Hugging Face Hub need huggingface_hub: pip install isthmus[hub]") from None


_DOWNLOAD = ("revision", "cache_dir", "force_download", "local_files_only", "token")


class HubModel(nn.Module, PyTorchModelHubMixin, library_name="isthmus", tags=["isthmus"]):
    """Any model of Isthmus with the Hub's methods for reading and writing."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        config: Any = model.config
        self._hub_mixin_config = config.model_dump(mode="json")

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.model(x)
        return y

    def _save_pretrained(self, save_directory: Path) -> None:
        config: Any = self.model.config
        write_whole_model(Path(save_directory) / FILES["safetensors"], self.model, config.model_dump(mode="json"))

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **options: Any) -> HubModel:
        folder = Path(model_id)
        if folder.is_dir():
            return cls(load_model(folder if is_exported(folder) else folder / FILES["safetensors"]))
        download = {name: options[name] for name in _DOWNLOAD}
        return cls(load_model(hf_hub_download(model_id, FILES["safetensors"], **download)))
