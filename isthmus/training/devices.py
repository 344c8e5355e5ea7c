"""Where a step runs: one device with plain torch, or several through Lightning Fabric."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from isthmus.core.errors import UserError
from isthmus.core.machine import bfloat16_works
from isthmus.core.train_config import TrainConfig
from isthmus.layers.residual import Stack

# Fabric announces every process that joins. Said here, because a process that it starts comes here before it joins.
for _announcer in ("distributed", "rank_zero"):
    logging.getLogger(f"lightning_fabric.utilities.{_announcer}").setLevel(logging.WARNING)


def seed_device(device: torch.device, value: int) -> None:
    """``torch.manual_seed`` for one device: asking every backend takes a quarter of a millisecond, in every step."""
    torch.default_generator.manual_seed(value)
    if device.type == "cuda":
        torch.cuda.manual_seed(value)


class OneDevice:
    rank = 0
    world = 1
    sharded = False

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

    def gathering(self, model: nn.Module, more: bool) -> AbstractContextManager[Any]:
        """Around a part of a batch: where more of them follow, its gradients need not travel yet."""
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def clip(self, model: nn.Module, optimizer: torch.optim.Optimizer, norm: float) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), norm)

    def each(self, *values: float) -> list[list[float]]:
        """The values of every process, in the order of their ranks; also where they wait for each other."""
        return [[*values]]

    def total(self, value: float) -> float:
        """The sum over all processes."""
        return value

    def whole(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Tensors of which each process holds a part, put together; all must ask at once."""
        return tensors


class SeveralDevices:
    """The same contract, for one of several processes: gradients are averaged over them."""

    def __init__(self, fabric: Any, sharded: bool) -> None:
        self.fabric, self.sharded = fabric, sharded
        self.rank: int = fabric.global_rank
        self.world: int = fabric.world_size
        self.device = fabric.device

    def seed(self, value: int) -> None:
        seed_device(self.device, value + self.rank)  # the parts of a batch drop different units

    def setup(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        if self.sharded:
            shard(model, optimizer, self.device.type, self.world)
        else:
            model, optimizer = self.fabric.setup(model, optimizer)
        return model, optimizer

    def gathering(self, model: nn.Module, more: bool) -> AbstractContextManager[Any]:
        if self.sharded:  # gradients that wait are whole ones, and it is sharded because those find no room
            return nullcontext()
        waiting: AbstractContextManager[Any] = self.fabric.no_backward_sync(model, enabled=more)
        return waiting

    def backward(self, loss: Tensor) -> None:
        loss.backward() if self.sharded else self.fabric.backward(loss)

    def clip(self, model: nn.Module, optimizer: torch.optim.Optimizer, norm: float) -> None:
        if self.sharded:
            nn.utils.clip_grad_norm_(model.parameters(), norm)
        else:
            self.fabric.clip_gradients(model, optimizer, max_norm=norm, error_if_nonfinite=False)

    def each(self, *values: float) -> list[list[float]]:
        mine = torch.tensor(values, dtype=torch.float64, device=self.device)
        all_of_them = [torch.empty_like(mine) for _ in range(self.world)]
        torch.distributed.all_gather(all_of_them, mine)
        return [theirs.tolist() for theirs in all_of_them]

    def total(self, value: float) -> float:
        return sum(theirs for (theirs,) in self.each(value))

    def whole(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        from torch.distributed.tensor import DTensor

        return {name: part.full_tensor() if isinstance(part, DTensor) else part for name, part in tensors.items()}


def shard(model: nn.Module, optimizer: torch.optim.Optimizer, device: str, world: int) -> None:
    """FSDP: a process holds a part of every weight, and whole ones only while their block is at work.

    torch's own, because Fabric's runs on GPUs alone. The optimiser's memory, perhaps restored already, is cut likewise.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import distribute_tensor

    mesh, whole = init_device_mesh(device, (world,)), dict(model.named_parameters())
    for child in model.children():
        for block in child if isinstance(child, nn.ModuleList | Stack) else ():
            fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    parts: dict[Tensor, Any] = {whole[name]: part for name, part in model.named_parameters()}
    for group in optimizer.param_groups:
        group["params"] = [parts[weight] for weight in group["params"]]
        if isinstance(optimizer, torch.optim.SGD):
            group["fused"] = False  # its kernel does not know parts
    for weight, memory in list(optimizer.state.items()):
        part = parts[weight]
        optimizer.state[part] = {
            name: distribute_tensor(value, mesh, part.placements) if value.shape == weight.shape else value
            for name, value in memory.items()
        }
        del optimizer.state[weight]


Devices = OneDevice | SeveralDevices


def started_by_torchrun() -> bool:
    """Whether this process is one of several that are there already, and not the one that starts the others."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_another() -> bool:
    """Whether this process only helps the first of those that torchrun started."""
    return started_by_torchrun() and os.environ["RANK"] != "0"


def processes() -> int:
    """How many of them torchrun started, or the one that this is."""
    return int(os.environ["WORLD_SIZE"]) if started_by_torchrun() else 1


def check_processes(config: TrainConfig) -> None:
    """Refuse, in every process that torchrun started, another number of devices than there are processes."""
    if started_by_torchrun() and processes() != config.devices:
        raise UserError(
            f"train.devices={config.devices}, but the number of torchrun's processes is {processes()}; "
            f"type train.devices={processes()} or leave it out"
        )


def on_every_device(config: TrainConfig, work: Callable[..., Any], *arguments: Any) -> Any:
    """Call ``work(devices, *arguments)`` in one process per device, and return what the first one returns.

    Under torchrun the processes are there already, and each of them calls this.
    """
    try:
        from lightning_fabric import Fabric
    except ImportError:
        raise UserError("train.devices above 1 needs Lightning Fabric: pip install 'isthmus[devices]'") from None
    if config.device == "cpu":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    here, nodes, strategy = config.devices, 1, "ddp_spawn"
    if started_by_torchrun():
        here = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes, strategy = processes() // here, "ddp"
    try:
        fabric = Fabric(accelerator=config.device, devices=here, num_nodes=nodes, strategy=strategy)
    except Exception as error:  # fewer devices than asked for, or none; Fabric says it in several kinds of error
        raise UserError(f"train.devices={config.devices} train.device={config.device}: {error}") from None
    # Bound, because the launcher walks through its own arguments and refuses frozen ones.
    sharded = config.strategy == "fsdp"
    return fabric.launch(partial(_in_process, sharded=sharded, work=work, arguments=arguments))


def _in_process(fabric: Any, sharded: bool, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    devices = SeveralDevices(fabric, sharded)
    result = work(devices, *arguments)
    devices.total(0.0)  # all of them leave together: one that goes while another still talks may be aborted
    torch.distributed.destroy_process_group()
    return result
