"""Where a step runs: one device with plain torch, or several through Lightning Fabric."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from isthmus.errors import UserError
from isthmus.machine import bfloat16_works
from isthmus.training.settings import TrainConfig


def seed_device(device: torch.device, value: int) -> None:
    """``torch.manual_seed`` for one device: asking every backend takes a quarter of a millisecond, in every step."""
    torch.default_generator.manual_seed(value)
    if device.type == "cuda":
        torch.cuda.manual_seed(value)


class OneDevice:
    rank = 0
    world = 1

    def __init__(self, config: TrainConfig) -> None:
        if config.device == "cuda" and not torch.cuda.is_available():
            raise UserError(
                "train.device=cuda, but torch sees no CUDA device; `isthmus doctor` says what this machine has"
            )
        if config.device == "cpu" and config.precision == "bfloat16" and not bfloat16_works():
            raise UserError(
                "train.precision=bfloat16 does not work on this processor; float32 does, and so may bfloat16 with the "
                "environment variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"
            )
        self.device = torch.device(config.device)

    def seed(self, value: int) -> None:
        seed_device(self.device, value)

    def setup(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        return model, optimizer

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def clip(self, model: nn.Module, optimizer: torch.optim.Optimizer, norm: float) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), norm)

    def total(self, value: float) -> float:
        """The sum over all processes; also where they wait for each other."""
        return value


class SeveralDevices:
    """The same contract, for one of several processes: gradients are averaged over them."""

    def __init__(self, fabric: Any) -> None:
        self.fabric = fabric
        self.rank: int = fabric.global_rank
        self.world: int = fabric.world_size
        self.device = fabric.device

    def seed(self, value: int) -> None:
        seed_device(self.device, value + self.rank)  # the parts of a batch drop different units

    def setup(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        model, optimizer = self.fabric.setup(model, optimizer)
        return model, optimizer

    def backward(self, loss: Tensor) -> None:
        self.fabric.backward(loss)

    def clip(self, model: nn.Module, optimizer: torch.optim.Optimizer, norm: float) -> None:
        self.fabric.clip_gradients(model, optimizer, max_norm=norm, error_if_nonfinite=False)

    def total(self, value: float) -> float:
        return float(
            self.fabric.all_reduce(torch.tensor(value, dtype=torch.float64, device=self.device), reduce_op="sum")
        )


Devices = OneDevice | SeveralDevices


def on_every_device(config: TrainConfig, work: Callable[..., Any], *arguments: Any) -> Any:
    """Call ``work(devices, *arguments)`` in one process per device, and return what the first one returns."""
    try:
        from lightning_fabric import Fabric
    except ImportError:
        raise UserError("train.devices above 1 needs Lightning Fabric: pip install 'isthmus[devices]'") from None
    if config.device == "cpu":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    try:
        fabric = Fabric(accelerator=config.device, devices=config.devices, strategy="ddp_spawn")
    except Exception as error:  # fewer devices than asked for, or none; Fabric says it in several kinds of error
        raise UserError(f"train.devices={config.devices} train.device={config.device}: {error}") from None
    # Bound, because the launcher walks through its own arguments and refuses frozen ones.
    return fabric.launch(partial(_in_process, work=work, arguments=arguments))


def _in_process(fabric: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    devices = SeveralDevices(fabric)
    result = work(devices, *arguments)
    devices.total(0.0)  # all of them leave together: one that goes while another still talks may be aborted
    torch.distributed.destroy_process_group()
    return result
