"""Run folders as training leaves them, with qualities that follow a law instead of a training."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

from isthmus.core.files import sha256, write_json, write_text
from isthmus.core.record import CONFIG, METRICS, SAMPLES, RunRecord, write_record

HOURGLASS = (
    (785, 8, 3),
    (785, 32, 4),
    (785, 64, 6),
    (1000, 96, 6),
    (1200, 128, 8),
    (1600, 200, 8),
    (785, 300, 2),
    (1600, 16, 12),
)
CONVENTIONAL = (
    (64, 128, 2),
    (128, 512, 2),
    (256, 1024, 2),
    (392, 1568, 2),
    (784, 1568, 2),
    (784, 1568, 3),
    (128, 256, 6),
    (784, 1024, 4),
)
OFF_FRONT = (*HOURGLASS[-2:], *CONVENTIONAL[-2:])


def model_config(name: str, shape: tuple[int, int, int], seed: int) -> dict[str, Any]:
    d_z, d_h, depth = shape
    sizes = {"d_in": 784, "d_out": 784, "d_z": d_z, "d_h": d_h, "depth": depth}
    return {"name": name, **sizes, "norm": "layer", "activation": "gelu", "w_in": "trainable", "w_in_seed": seed}


def quality(model: dict[str, Any], params: int, rate: float, seed: int, objective: str) -> float:
    """A plausible law: better with size, levelling off, the Hourglass a little ahead where it is large."""
    name = model["name"]
    noise = random.Random(f"{name} {params} {rate} {seed}").gauss(0, 0.04)
    edge = 0.35 * math.log10(params / 1.9e6) if name == "hourglass_mlp" else 0.0
    edge -= 0.25 if (model["d_z"], model["d_h"], model["depth"]) in OFF_FRONT else 0.0
    psnr = 22.5 - 2.2 * (2e5 / params) ** 0.5 + edge - 0.4 * abs(math.log10(rate / 1e-3)) + noise
    return psnr if objective == "psnr" else 1 - 10 ** (-psnr / 14)


def metric_values(objective: str, value: float) -> dict[str, float]:
    if objective != "psnr":
        return {objective: value, "loss": 2 * (1 - value)}
    mse = 10 ** (-value / 10)
    return {"psnr": value, "psnr_pooled": value - 0.3, "ssim": 1 - 6 * mse, "mse": mse, "loss": mse}


def metric_lines(objective: str, value: float, epochs: int) -> str:
    lines = []
    for epoch in range(1, epochs + 1):
        now = value * (1 - 0.25 * math.exp(-epoch / 3)) - 0.01 * value * max(0, epoch - 0.8 * epochs) / epochs
        values = metric_values(objective, now)
        step = 32 * epoch
        lines.append(
            {
                "step": step,
                "epoch": float(epoch),
                "split": "train",
                "loss": 0.9 * values["loss"],
                "seconds": 2.0 * epoch,
            }
        )
        lines.append({"step": step, "epoch": epoch, "split": "validation", **values, "seconds": 2.1 * epoch})
    return "".join(json.dumps(line) + "\n" for line in lines)


def write_run(root: Path, model: dict[str, Any], rate: float, seed: int, **options: Any) -> RunRecord:
    """One run folder as `run.py` leaves it. Options: source, task, objective, epochs, status, samples, command,
    the qualities on validation and test data, facts about the data, all settings of the source, further ones of the
    training, and whether it is a refit, which has no validation rows.
    """
    objective, epochs = options.get("objective", "psnr"), options.get("epochs", 12)
    task = options.get("task", {"name": "denoise", "noise_std": 0.25})
    finished = options.get("status", "finished") == "finished"
    params = 784 * model["d_z"] * 2 + 2 * model["depth"] * model["d_z"] * model["d_h"]
    train = {
        "epochs": epochs,
        "batch_size": 128,
        "optimizer": "adamw",
        "learning_rate": rate,
        **options.get("train", {}),
    }
    config = {
        "schema_version": 1,
        "source": options.get("settings", {"name": options.get("source", "mnist5k"), "validation": 500}),
        "task": task,
        "model": model,
        "train": train,
        "seed": seed,
        "threads": 2,
    }
    identity = f"{random.Random(json.dumps(config)).getrandbits(64):016x}"
    folder = root / identity
    value = options.get("test", quality(model, params, rate, seed, objective))
    validation = options.get("validation", value + 0.002)
    write_json(folder / CONFIG, config)
    write_text(folder / METRICS, metric_lines(objective, value, epochs))
    if finished and options.get("samples"):
        write_samples(folder / SAMPLES, seed)
    record = RunRecord(
        id=identity,
        status="finished" if finished else "failed",
        reason="" if finished else "the training loss is not finite at step 96 (learning rate 0.005)",
        config=config,
        seed=seed,
        fingerprint="5f0c7a1be3",
        objective=objective,
        maximise=True,
        code={"version": "0.1.0", "digest": "a1b2c3d4e5f60718"},
        machine={"system": "Linux", "processor": "Example CPU", "cores": 2, "python": "3.11.2"},
        versions={"isthmus": "0.1.0", "torch": "2.13.0", "numpy": "2.4.6"},
        cost={"params": params, "trainable_params": params, "macs": params},
        metrics={
            "validation": {} if options.get("refit") else metric_values(objective, validation),
            "test": metric_values(objective, value),
        }
        if finished
        else {},
        selected={"step": 32 * round(0.8 * epochs), "epoch": round(0.8 * epochs), "by": "lowest validation loss"},
        steps=32 * epochs,
        wall_seconds=4.0 + params / 1e5,
        finished="2026-01-02T03:04:05+00:00",
        command=options.get("command", "isthmus study shapes.yaml"),
        files={path.name: sha256(path) for path in folder.iterdir() if path.name in (CONFIG, SAMPLES)},
        data=options.get("data", {}),
    )
    write_record(folder, record)
    return record


def write_samples(path: Path, seed: int) -> None:
    import numpy as np
    from PIL import Image

    y, x = np.mgrid[:84, :84] // 3
    sheet = np.full((3 * 90 + 6, 10 * 90 + 6), 255, np.uint8)
    draws = np.random.default_rng(seed)
    for column in range(10):
        clean = 255 * np.exp(-((((x - 14 + column % 3) / 4) ** 2 + ((y - 14) / (4 + column)) ** 2) ** 2))
        noisy = clean + np.kron(draws.normal(0, 64, (28, 28)), np.ones((3, 3)))
        for row, image in enumerate((noisy, 0.9 * clean + 0.1 * noisy, clean)):
            top, left = 6 + row * 90, 6 + column * 90
            sheet[top : top + 84, left : left + 84] = image.clip(0, 255)
    Image.fromarray(sheet).save(path)


def write_study(root: Path, seeds: int = 3, **options: Any) -> Path:
    """Both shapes at three learning rates, as a study leaves them; one conventional network diverged at the highest."""
    for seed in range(seeds):
        for name, shapes in (("hourglass_mlp", HOURGLASS), ("conventional_mlp", CONVENTIONAL)):
            for shape in shapes:
                for rate in (3e-4, 1e-3, 5e-3):
                    diverged = shape == CONVENTIONAL[5] and rate == 5e-3 and seed == 1
                    status = "failed" if diverged else "finished"
                    write_run(root, model_config(name, shape, seed), rate, seed, **{"status": status, **options})
    return root


def record(**changes: Any) -> RunRecord:
    given: dict[str, Any] = {
        "id": "0123456789abcdef",
        "status": "finished",
        "config": {"model": {"name": "hourglass_mlp"}},
        "seed": 0,
        "fingerprint": "data",
        "objective": "psnr",
        "maximise": True,
        "code": {"version": "0"},
        "machine": {"cores": 2},
        "versions": {"torch": "2"},
        "metrics": {"test": {"psnr": 21.5}},
    }
    return RunRecord(**given | changes)
