"""What int8 weights cost and save in onnxruntime, on six networks that are trained here on embedded data.

The policies are those of `isthmus export RUN --to onnx --int8`: the layers are chosen on validation data, qualities are
measured on test data with the quantised network, and times come from one interleaved run with float32.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from isthmus.analysis.ratios import load
from isthmus.core.config import RunConfig, run_config
from isthmus.export.formats import Int8, export_run
from isthmus.export.int8_format import Choice, Policy
from isthmus.training.devices import arithmetic
from isthmus.training.prepare import Options, prepare
from isthmus.training.run import run

BYTES_BAR = 0.3
"""A quarter of the bytes, and room for scales and the graph."""


def _network(source: str, task: str, epochs: int, batch: int = 64, rate: float = 2e-3, **model: Any) -> RunConfig:
    train = {"epochs": epochs, "batch_size": batch, "learning_rate": rate}
    settings = {"source": {"name": source}, "task": {"name": task}, "model": model, "train": train, "threads": 1}
    return run_config(settings)


def networks() -> dict[str, RunConfig]:
    mlp: dict[str, Any] = {"name": "hourglass_mlp"}
    return {
        "MNIST 5k denoising, Hourglass": _network(
            "mnist5k", "denoise", 8, 128, 1e-3, **mlp, d_z=785, d_h=128, depth=5),
        "MNIST 5k denoising, conventional": _network(
            "mnist5k", "denoise", 8, 128, 1e-3, name="conventional_mlp", d_z=784, d_h=785, depth=2),
        "MNIST 5k classes, Hourglass": _network("mnist5k", "classification", 12, **mlp, d_z=192, d_h=36, depth=3),
        "digits denoising, Hourglass, frozen W_in": _network(
            "digits", "denoise", 20, **mlp, d_z=192, d_h=64, depth=6, w_in="orthogonal"),
        "digits classes, MLP-Mixer": _network(
            "digits", "classification", 20, name="mlp_mixer", patch=2, C=32, depth=2, gamma=2),
        "digits classes, Hourglass ViT": _network(
            "digits", "classification", 20, name="hourglass_vit", patch=2, d_z=48, d_h=24, depth=4, num_heads=3),
    }  # fmt: skip


def measure(tell: Callable[[str], None], chosen: Mapping[str, RunConfig] | None = None) -> list[dict[str, Any]]:
    rows = []
    for title, config in (chosen or networks()).items():
        tell(title)
        prepared = prepare(config, Options(command="isthmus bench int8"))
        run(prepared)
        with tempfile.TemporaryDirectory() as folder, arithmetic(1):
            before = load()
            written = export_run(prepared.id, "onnx", Path(folder) / "model", bare=True, int8=Int8())
        assert written.int8 is not None
        rows.append(describe(title, written.int8) | {"load before": before, "load after": load()})
    return rows


def describe(title: str, choice: Choice) -> dict[str, Any]:
    """Losses are of the objective on test data, beside the tolerance; ratios are to float32, times in ms per 32 rows.

    Bytes are those of the file, which also holds the graph; weights are its constants alone.
    """
    float32, uniform, some, written = choice.float32, choice.uniform, choice.some, choice.chosen
    mixed = choice.mixed
    assert float32.test is not None
    assert float32.latency
    return {
        "network": title,
        "objective": choice.objective,
        "float32": round(float32.test[choice.objective], 4),
        "tolerance": float(f"{choice.tolerance:.3g}"),
        "layers": len(choice.layers),
        "float32 bytes": float32.bytes,
        "float32 ms": round(float32.latency, 4),
        "int8 bytes": round(uniform.bytes / float32.bytes, 3),
        "int8 weights": round(uniform.weights / float32.weights, 3),
        "int8 loss": round(choice.loss(uniform), 5),
        "int8 time": round((uniform.latency or 0) / float32.latency, 3),
        "int8 ms": round(uniform.latency or 0, 4),
        "some layers": None if some is None else len(some.layers),
        "some bytes": None if some is None else round(some.bytes / float32.bytes, 3),
        "some weights": None if some is None else round(some.weights / float32.weights, 3),
        "some loss": None if some is None else round(choice.loss(some), 5),
        "written layers": len(written.layers),
        "written bytes": round(written.bytes / float32.bytes, 3),
        "written weights": round(written.weights / float32.weights, 3),
        "written loss": round(choice.loss(written), 5),
        "written time": round((written.latency or 0) / float32.latency, 3),
        "written ms": round(written.latency or 0, 4),
        "per layer on the front": None if mixed is None else is_on_front(choice, mixed),
        "per layer above int8": None if mixed is None else choice.loss(mixed) < choice.loss(uniform),
    }


def is_on_front(choice: Choice, policy: Policy) -> bool:
    """Whether neither float32 nor int8 everywhere has as few bytes and as little loss, and less of one of them."""
    own = policy.bytes, choice.loss(policy)
    others = [(each.bytes, choice.loss(each)) for each in (choice.float32, choice.uniform)]
    return not any(other != own and other[0] <= own[0] and other[1] <= own[1] for other in others)


def summarise(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "networks": len(rows),
        "int8 has at most 0.3 of the bytes": sum(row["int8 bytes"] <= BYTES_BAR for row in rows),
        "written loses at most the tolerance": sum(row["written loss"] <= row["tolerance"] for row in rows),
        "written is faster": sum(row["written time"] < 1 for row in rows),
        "a policy per layer is on the front or above int8": sum(
            bool(row["per layer on the front"] or row["per layer above int8"]) for row in rows
        ),
        "some layers lose less than all": sum(
            row["some loss"] is not None and row["some loss"] < row["int8 loss"] for row in rows
        ),
    }
