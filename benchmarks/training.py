"""Our training loop against the barest PyTorch loop of the same model, data and optimiser.

The rounds are interleaved, because a shared machine changes its speed by the minute; what counts is the median of the
rounds' ratios. The GEMM rate is that of a 2048×2048 product in the same rounds. Memory is the peak of a whole process.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.processes import ask_new_process, read_memory


class Case(NamedTuple):
    data: str
    image: tuple[int, int, int]
    model: dict[str, Any]
    batch_size: int
    steps: int

    @property
    def name(self) -> str:
        return " ".join([self.data, *(str(value) for value in self.model.values())])


CASES = (
    Case("mnist", (1, 28, 28), {"name": "hourglass_mlp", "d_z": 785, "d_h": 128, "depth": 5}, 128, 60),
    Case("mnist", (1, 28, 28), {"name": "hourglass_mlp", "d_z": 785, "d_h": 256, "depth": 4}, 128, 60),
    Case("mnist", (1, 28, 28), {"name": "conventional_mlp", "d_z": 784, "d_h": 785, "depth": 1}, 128, 60),
    Case("imagenet-32", (3, 32, 32), {"name": "hourglass_mlp", "d_z": 3075, "d_h": 765, "depth": 4}, 512, 4),
)


def _images(case: Case) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (case.steps * case.batch_size, *case.image), generator=generator, dtype=torch.uint8)


def _model(case: Case) -> nn.Module:
    from isthmus.core.registry import create_model

    width = case.image[0] * case.image[1] * case.image[2]
    torch.manual_seed(0)
    return create_model(**case.model, d_in=width, d_out=width)


def bare_loop(model: nn.Module, images: Tensor, batch_size: int) -> float:
    """Seconds for one pass: what a person would write first, with the fast optimiser."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0, fused=True)
    began = time.perf_counter()
    for index in torch.randperm(len(images)).split(batch_size):
        clean = images[index].float() / 255
        noisy = clean + 0.25 * torch.randn_like(clean)
        loss = nn.functional.mse_loss(model(noisy), clean.flatten(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return time.perf_counter() - began


def our_loop(model: nn.Module, images: Tensor, batch_size: int) -> float:
    """Seconds for the same pass, validation not counted."""
    import isthmus.training.run  # noqa: F401 (all that a real run loads counts as our memory)
    from isthmus.core.protocols import Data, Split
    from isthmus.core.registry import component, find
    from isthmus.core.train_config import TrainConfig
    from isthmus.training.devices import OneDevice
    from isthmus.training.listener import Listener
    from isthmus.training.loop import NoJournal, Rows, Training

    task = find("tasks", "denoise")(component("tasks", {"name": "denoise"}))
    split = Split(images.numpy())
    task.learn(Data(split, split, split, "bench"))
    rows, few = Rows.of(split, torch.device("cpu")), Rows(images[:2], None)
    config = TrainConfig(epochs=1, batch_size=batch_size)
    training = Training(model, task, rows, few, config, 0, OneDevice(config))
    training.run(NoJournal(), Listener())
    return training.position.seconds


def gemm_rate() -> float:
    """Floating-point operations per second of a large product."""
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    began = time.perf_counter()
    for _ in range(3):
        a @ b
    return 3 * 2 * 2048**3 / (time.perf_counter() - began)


def peak_memory(case: Case, loop: str) -> int:
    """Peak bytes of a fresh process that runs either loop; what only we import, only our process imports."""
    return ask_new_process("benchmarks.training", case=case.name, loop=loop, threads=torch.get_num_threads())


def measure(repeats: int, threads: int) -> list[dict[str, Any]]:
    from isthmus.training.devices import arithmetic

    with arithmetic(threads):
        return [_measure(case, repeats) for case in CASES]


def _measure(case: Case, repeats: int) -> dict[str, Any]:
    from isthmus.training.counting import cost

    images = _images(case)
    model = _model(case)
    flops = cost(model).training_flops * len(images)
    bare_loop(model, images, case.batch_size)  # warm up
    rounds = []
    for number in range(repeats):
        loops = [("bare", bare_loop), ("ours", our_loop)]
        seconds = {name: loop(model, images, case.batch_size) for name, loop in (loops if number % 2 else loops[::-1])}
        rounds.append(seconds | {"gemm": gemm_rate()})
    return {
        "case": case.name,
        "samples/s": round(statistics.median(len(images) / r["ours"] for r in rounds), 1),
        "ours/bare": round(statistics.median(r["bare"] / r["ours"] for r in rounds), 3),
        "of GEMM rate": round(statistics.median(flops / r["ours"] / r["gemm"] for r in rounds), 3),
        "memory/bare": round(peak_memory(case, "ours") / peak_memory(case, "bare"), 3),
        "load": round(os.getloadavg()[0], 2),
    }


def _answer(request: str) -> None:
    """The process of :func:`peak_memory`."""
    wish = json.loads(request)
    torch.set_num_threads(wish["threads"])
    case = next(case for case in CASES if case.name == wish["case"])
    loop = our_loop if wish["loop"] == "ours" else bare_loop
    loop(_model(case), _images(case), case.batch_size)
    print(read_memory("VmHWM"))


if __name__ == "__main__":
    _answer(sys.argv[1])
