"""Where a step runs: one device with plain torch, or several through Lightning Fabric; and with which arithmetic."""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from isthmus.core.errors import UserError
from isthmus.core.machine import bfloat16_works, keep_freed_memory
from isthmus.core.train_config import TrainConfig
from isthmus.layers.residual import Stack

# Silences Fabric's message for every process; here, because the processes that it starts import this module first.
for _announcer in ("distributed", "rank_zero"):
    logging.getLogger(f"lightning_fabric.utilities.{_announcer}").setLevel(logging.WARNING)


def seed_device(device: torch.device, value: int) -> None:
    """``torch.manual_seed`` for one device; seeding every backend takes a quarter of a millisecond per step."""
    torch.default_generator.manual_seed(value)
    if device.type == "cuda":
        torch.cuda.manual_seed(value)


def best_device() -> torch.device:
    """A GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class OneDevice:
    rank = 0
    world = 1
    sharded = False

    def __init__(self, config: TrainConfig) -> None:
        if config.device == "cuda" and not torch.cuda.is_available():
            raise UserError("train.device=cuda, but torch sees no CUDA device; `isthmus doctor` says what is here")
        if config.device == "cpu" and config.precision == "bfloat16" and not bfloat16_works():
            variable = "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"
            raise UserError(f"train.precision=bfloat16 fails on this processor; use float32, or set {variable}")
        self.device = torch.device(config.device)

    def seed(self, value: int) -> None:
        seed_device(self.device, value)

    def setup(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        return model, optimizer

    def gather_gradients(self, model: nn.Module, more: bool) -> AbstractContextManager[Any]:
        """Around a part of a batch: with ``more`` parts to follow, gradients are not synchronised yet."""
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def clip(self, model: nn.Module, optimizer: torch.optim.Optimizer, norm: float) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), norm)

    def each(self, *values: float) -> list[list[float]]:
        """The values of every process, by rank. All processes must call it."""
        return [[*values]]

    def total(self, value: float) -> float:
        """The sum over all processes."""
        return value

    def whole(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Sharded tensors, gathered. All processes must call it."""
        return tensors


class SeveralDevices:
    """The same interface for one of several processes, which average their gradients."""

    def __init__(self, fabric: Any, sharded: bool) -> None:
        self.fabric, self.sharded = fabric, sharded
        self.rank: int = fabric.global_rank
        self.world: int = fabric.world_size
        self.device = fabric.device

    def seed(self, value: int) -> None:
        seed_device(self.device, value + self.rank)  # so that the parts of a batch drop different units

    def setup(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        if self.sharded:
            shard(model, optimizer, self.device.type, self.world)
        else:
            model, optimizer = self.fabric.setup(model, optimizer)
        return model, optimizer

    def gather_gradients(self, model: nn.Module, more: bool) -> AbstractContextManager[Any]:
        if self.sharded:  # unsynchronised gradients are whole, which sharding avoids
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
    """FSDP: a process holds a part of every weight, and gathers whole ones only while their block computes.

    torch's own, because Fabric's needs GPUs. The optimiser's state, perhaps restored already, is sharded likewise.
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
            group["fused"] = False  # its fused kernel does not support shards
    for weight, memory in list(optimizer.state.items()):
        part = parts[weight]
        optimizer.state[part] = {
            name: distribute_tensor(value, mesh, part.placements) if value.shape == weight.shape else value
            for name, value in memory.items()
        }
        del optimizer.state[weight]


Devices = OneDevice | SeveralDevices


def started_by_torchrun() -> bool:
    """Whether torchrun started this process, so that it must not start others."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_later_process() -> bool:
    """Whether torchrun started this process after the first one, which writes and prints."""
    return started_by_torchrun() and os.environ["RANK"] != "0"


def count_processes() -> int:
    """The processes that torchrun started, or 1."""
    return int(os.environ["WORLD_SIZE"]) if started_by_torchrun() else 1


def check_processes(config: TrainConfig) -> None:
    """Refuse a number of devices that differs from torchrun's number of processes."""
    if started_by_torchrun() and count_processes() != config.devices:
        started = f"torchrun started {count_processes()} processes"
        raise UserError(f"train.devices={config.devices}, but {started}; leave train.devices out")


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
        nodes, strategy = count_processes() // here, "ddp"
    try:
        fabric = Fabric(accelerator=config.device, devices=here, num_nodes=nodes, strategy=strategy)
    except Exception as error:  # too few devices, which Fabric reports in several kinds of error
        raise UserError(f"train.devices={config.devices} train.device={config.device}: {error}") from None
    # Bound by partial, because the launcher refuses frozen objects among its own arguments.
    sharded = config.strategy == "fsdp"
    return fabric.launch(partial(_in_process, sharded=sharded, work=work, arguments=arguments))


def _in_process(fabric: Any, sharded: bool, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    devices = SeveralDevices(fabric, sharded)
    result = work(devices, *arguments)
    devices.total(0.0)  # all leave together: a process that exits while another communicates may be aborted
    torch.distributed.destroy_process_group()
    if multiprocessing.parent_process() is not None:  # started for this alone
        atexit.register(_leave_at_once)
    return result


def _leave_at_once() -> None:
    """End a process that has done its work, without taking Python down.

    Gloo's threads may still release tensors meanwhile, which aborts the process.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


_TURN = threading.RLock()


@contextmanager
def arithmetic(threads: int) -> Iterator[None]:
    """Use this number of threads. It is a setting of the whole process, so that runs of one process take turns."""
    keep_freed_memory()
    with _TURN:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)
