"""Two processes with half a batch each are one process with the whole batch."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from isthmus.core.config import run_config
from isthmus.core.files import home
from isthmus.core.record import read_metrics
from isthmus.core.registry import create_model
from isthmus.core.train_config import TrainConfig
from isthmus.training.checkpoint import optimizer_tensors
from isthmus.training.devices import SeveralDevices, shard
from isthmus.training.listener import Listener, reach_by_pipe
from isthmus.training.loop import NoJournal, Rows, Stopped, Training
from isthmus.training.prepare import Options, prepare, starting_model
from isthmus.training.run import run
from isthmus.training.schedules import optimizer

pytestmark = pytest.mark.slow
pytest.importorskip("lightning_fabric")


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.filterwarnings("ignore")
def test_two_processes_give_the_losses_of_one(accumulate: int) -> None:
    losses = {}
    for devices in (1, 2):
        train: dict[str, Any] = {"epochs": 3, "batch_size": 100, "accumulate": accumulate, "devices": devices}
        config = run_config(
            {
                "source": {"name": "digits"},
                "task": {"name": "denoise"},
                "model": {"name": "hourglass_mlp", "d_z": 96, "d_h": 24, "depth": 2},
                "train": train,
                "threads": 1,
            }
        )
        record = run(config)
        assert record.status == "finished"
        losses[devices] = [line["loss"] for line in read_metrics(prepare(config).folder)]
    assert len(losses[1]) == len(losses[2]) >= 6
    assert losses[2] == pytest.approx(losses[1], abs=1e-6)


class Heard(Listener):
    """Keeps what it hears, and stops a run after its first validation."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def step(self, step: int, steps: int) -> None:
        self.calls.append((step, steps))

    def line(self, line: Mapping[str, Any]) -> None:
        self.calls.append(line)

    def should_stop(self) -> bool:
        return any(call.get("split") == "validation" for call in self.calls if isinstance(call, Mapping))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_listeners_hear_in_order_and_one_that_fails_holds_nobody_up() -> None:
    heard = Heard()
    with reach_by_pipe(heard) as remote:
        remote.line({"step": 1})
        remote.step(1, 2)
        assert not remote.should_stop()
    assert heard.calls == [{"step": 1}, (1, 2)]

    class Failing(Listener):
        def step(self, step: int, steps: int) -> None:
            raise ValueError

    with reach_by_pipe(Failing()) as remote:
        for step in range(10_000):  # more than a pipe holds
            remote.step(step, 10_000)
        assert not remote.should_stop(), "a listener that failed has not asked to stop"


@pytest.mark.filterwarnings("ignore")
def test_a_study_can_stop_two_devices_after_a_rung_and_go_on_later() -> None:
    model = {"name": "hourglass_mlp", "d_z": 96, "d_h": 24, "depth": 2}
    train = {"epochs": 30, "batch_size": 100, "devices": 2}
    settings = {"source": {"name": "digits"}, "task": {"name": "denoise"}, "model": model, "train": train, "seed": 5}
    config = run_config(settings | {"threads": 1})
    with pytest.raises(Stopped):
        run(config, listener=Heard())
    seen = read_metrics(prepare(config).folder)
    assert 1 <= seen[-1]["epoch"] < 30
    whole = run(config)
    assert whole.status == "finished"
    lines = read_metrics(prepare(config).folder)
    shutil.rmtree(prepare(config).folder)
    assert run(config).metrics == whole.metrics, "as without the stop"
    assert [line["loss"] for line in lines] == [line["loss"] for line in read_metrics(prepare(config).folder)]


VIT: dict[str, Any] = {"name": "vit", "patch": 4, "d_z": 12, "d_h": 6, "depth": 2, "num_heads": 2}


def classified(**train: Any) -> list[float]:
    """The losses of a ViT, drop path and augmentation off."""
    settings: dict[str, Any] = {"source": {"name": "digits"}, "task": {"name": "classification"}, "model": VIT}
    fixed = {"epochs": 2, "batch_size": 96, "optimizer": "sgd", "learning_rate": 0.05, "clip_norm": 1.0}
    config = run_config(settings | {"train": fixed | train, "threads": 1})
    record = run(config, Options(save_every=1.0))
    assert record.status == "finished"
    assert record.metrics["test"]["loss"] > 0
    return [line["loss"] for line in read_metrics(prepare(config).folder)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("train", [{}, {"accumulate": 3}, {"strategy": "fsdp"}, {"strategy": "fsdp", "accumulate": 2}])
def test_a_vit_on_two_devices_has_the_losses_of_one(train: dict[str, Any]) -> None:
    one, two = classified(), classified(devices=2, **train)
    assert len(one) == len(two) >= 4
    assert two == pytest.approx(one, abs=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("pathway", ["layerscale", "attended", "mhc"])
def test_pathways_on_two_devices_have_the_losses_of_one(pathway: str, strategy: str) -> None:
    losses = {}
    for devices in (1, 2):
        model = {
            "name": "hourglass_mlp",
            "d_z": 72,
            "d_h": 8,
            "depth": 5,
            "init": "depth_scaled_w2",
            "pathway": pathway,
        }
        train = {"epochs": 2, "batch_size": 100, "optimizer": "sgd", "learning_rate": 0.05, "devices": devices}
        train |= {"strategy": strategy} if devices > 1 else {}
        settings = {"source": {"name": "digits"}, "task": {"name": "denoise"}, "model": model, "train": train}
        config = run_config(settings | {"threads": 1})
        assert run(config).status == "finished"
        losses[devices] = [line["loss"] for line in read_metrics(prepare(config).folder)]
    assert len(losses[1]) == len(losses[2]) >= 4
    assert losses[2] == pytest.approx(losses[1], abs=1e-6)


def test_gradients_travel_once_per_batch_however_many_parts_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one process, whose gradients travel to itself: counted are the times that DDP sends them."""
    from lightning_fabric import Fabric
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    sent: list[int] = []

    def count(group, bucket):  # torch reads annotations, and does not understand text
        sent.append(bucket.index())
        return allreduce_hook(group, bucket)

    def setup(self: SeveralDevices, *parts: Any) -> Any:
        model, optimizer = self.fabric.setup(*parts)
        model._forward_module.register_comm_hook(None, count)
        return model, optimizer

    monkeypatch.setattr(SeveralDevices, "setup", setup)
    settings: dict[str, Any] = {"source": {"name": "digits"}, "task": {"name": "classification"}, "model": VIT}
    train = {"epochs": 1, "batch_size": 300, "accumulate": 3}
    prepared = prepare(run_config(settings | {"train": train, "threads": 1}))
    config, cpu = prepared.config, torch.device("cpu")
    rows, held_out = (Rows.of(split, cpu) for split in (prepared.data.train, prepared.data.validation))
    with mock.patch.dict(os.environ, GLOO_SOCKET_IFNAME="lo"):  # where Fabric writes, too
        fabric = Fabric(accelerator="cpu", devices=1, strategy="ddp")
        fabric.launch()
        try:
            model, devices = starting_model(config, Options()).model, SeveralDevices(fabric, sharded=False)
            training = Training(model, prepared.task, rows, held_out, config.train, config.seed, devices)
            training.run(NoJournal(), Listener())
        finally:
            torch.distributed.destroy_process_group()
    assert sent == [0] * training.steps


def test_sharding_keeps_weights_and_the_optimisers_memory(tmp_path: Path) -> None:
    """As after a resume, when the memory is restored before the model is cut. One process: its part is the whole."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        torch.manual_seed(0)
        models = [create_model(input_shape=(1, 8, 8), output_shape=(10,), **VIT) for _ in "ab"]
        models[1].load_state_dict(models[0].state_dict())
        images = torch.randn(6, 1, 8, 8)
        for settings in ({"optimizer": "sgd"}, {"optimizer": "adamw", "decayed": "matrices", "weight_decay": 0.1}):
            config = TrainConfig.model_validate({"learning_rate": 0.1, **settings})
            pairs = [(model, optimizer(model.named_parameters(), config)) for model in copy.deepcopy(models)]
            for number in range(4):
                if number == 2:
                    shard(*pairs[1], "cpu", 1)
                for model, opt in pairs:
                    model(images).square().mean().backward()
                    opt.step()
                    opt.zero_grad()
            plain, parts = pairs
            found = SeveralDevices.whole(None, parts[0].state_dict())  # type: ignore[arg-type]
            for name, tensor in plain[0].state_dict().items():
                torch.testing.assert_close(found[name], tensor, msg=name)
            memory = SeveralDevices.whole(None, optimizer_tensors(parts[1]))  # type: ignore[arg-type]
            for name, tensor in optimizer_tensors(plain[1]).items():
                torch.testing.assert_close(memory[name], tensor, msg=name)
    finally:
        torch.distributed.destroy_process_group()


def written(folder: Path, **train: Any) -> Path:
    """A file of a short training."""
    settings = {"source": {"name": "digits"}, "task": {"name": "classification"}, "model": VIT, "threads": 1}
    file = folder / "vit.json"
    file.write_text(json.dumps(settings | {"train": {"epochs": 2, "batch_size": 300, **train}}))
    return file


def command(*arguments: object, processes: int = 0) -> subprocess.CompletedProcess[str]:
    """``isthmus ARGUMENTS`` in a process of its own, or in several that torchrun starts."""
    launcher = ["torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", processes]
    line = [sys.executable, "-m", *([*launcher, "-m"] if processes else []), "isthmus", *arguments]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    return subprocess.run([*map(str, line)], capture_output=True, text=True, check=False, env=environment, timeout=600)


@pytest.mark.parametrize("processes", [0, 2])
def test_two_devices_from_the_command_line(tmp_path: Path, processes: int) -> None:
    """Without torchrun they are asked for; with it, its processes are the devices."""
    file = written(tmp_path)
    done = command("train", file, "--json", *([] if processes else ["--devices", 2]), processes=processes)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)  # of the first process alone
    said = [line.split()[:2] for line in done.stderr.splitlines() if line]
    assert said == [["run", record["id"]], ["epoch", "1"], ["epoch", "2"]]  # likewise, and no word of Fabric's
    settings = json.loads(file.read_text())
    configs = [run_config(settings | {"train": settings["train"] | {"devices": devices}}) for devices in (1, 2)]
    run(configs[0])
    one, two = ([line["loss"] for line in read_metrics(prepare(config).folder)] for config in configs)
    assert (record["id"], record["status"]) == (prepare(configs[1]).id, "finished")
    assert two == pytest.approx(one, abs=1e-6)


@pytest.mark.parametrize("asked", [["--devices", 3], []])
def test_torchrun_with_another_number_of_processes_starts_nothing(tmp_path: Path, asked: list[object]) -> None:
    refused = command("train", written(tmp_path, devices=1), *asked, processes=2)
    assert refused.returncode != 0
    said = [line for line in refused.stderr.splitlines() if line.startswith("isthmus:")]
    said = [line for line in said if "stopped" not in line]  # torchrun ends the one that was slower, by SIGTERM
    asks = f"train.devices={3 if asked else 1}"
    assert set(said) == {f"isthmus: {asks}, but torchrun started 2 processes; leave train.devices out"}
    assert not list(home().glob("runs/*"))


COMPARE_COMPILED = """
from isthmus.core.config import run_config
from isthmus.core.record import read_metrics
from isthmus.training.prepare import prepare
from isthmus.training.run import run
losses = []
for compiled in (False, True):
    settings = {"source": {"name": "digits"}, "task": {"name": "denoise"}, "threads": 1}
    settings["model"] = {"name": "hourglass_mlp", "d_z": 96, "d_h": 24, "depth": 2}
    config = run_config(settings | {"train": {"epochs": 1, "batch_size": 100, "compile": compiled}})
    run(config)
    losses.append([line["loss"] for line in read_metrics(prepare(config).folder)])
print(max(abs(a - b) for a, b in zip(*losses, strict=True)))
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_model_trains_to_the_same_losses() -> None:
    """In a process of its own, because compiled code and the tests' shape checks do not mix."""
    finished = subprocess.run([sys.executable, "-c", COMPARE_COMPILED], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert float(finished.stdout) < 1e-5


@pytest.mark.filterwarnings("ignore")
def test_a_divergence_ends_both_processes_with_the_reason() -> None:
    train = {"epochs": 1, "batch_size": 5000, "optimizer": "sgd", "learning_rate": 1000, "devices": 2}
    config = run_config(
        {
            "source": {"name": "digits"},
            "task": {"name": "denoise", "noise_std": 100},
            "model": {"name": "hourglass_mlp", "d_z": 96, "d_h": 24, "depth": 8, "init": "xavier", "norm": "none"},
            "train": train | {"epochs": 4},
            "threads": 1,
        }
    )
    record = run(config)
    assert record.status == "failed"
    assert "not finite" in record.reason
