"""What a training leaves in its folder: weights, samples, metrics, and the record last."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn

from isthmus.core.config import RunConfig
from isthmus.core.errors import UserError
from isthmus.core.files import data_dir, sha256
from isthmus.core.machine import machine, versions
from isthmus.core.protocols import SPLITS, Data, SplitName, Task
from isthmus.core.record import (
    CONFIG,
    MODEL,
    SAMPLES,
    RunRecord,
    flatten,
    read_record,
    remove_leftovers,
    write_record,
    write_remeasured,
)
from isthmus.core.registry import find
from isthmus.training.checkpoint import State, write_model
from isthmus.training.devices import arithmetic
from isthmus.training.loading import load_model, load_task
from isthmus.training.loop import Diverged, Outcome, Rows, Training, evaluate
from isthmus.training.prepare import Options, Prepared, Start, describe_code
from isthmus.training.samples import write_sheet, write_values
from isthmus.training.tracking import Tracked


def finished_record(prepared: Prepared) -> RunRecord:
    """The record of a run, checked against its config; metrics that are measured in another way today are updated."""
    record = read_record(prepared.folder)
    meant, written = flatten(prepared.config.model_dump(mode="json")), flatten(record.config)
    different = [name for name in written if name in meant and meant[name] != written[name]]
    if record.id != prepared.id or different:
        raise UserError(f"{prepared.folder} holds the record of another run: {record.id} {' '.join(different)}".strip())
    remove_leftovers(prepared.folder)
    versions = prepared.task.metric_versions
    outdated = [name for name, version in versions.items() if record.metric_versions.get(name, 1) != version]
    if record.status != "finished" or not outdated:
        return record
    metrics = {split: {**values} for split, values in record.metrics.items()}
    for split, values in _evaluate_again(prepared).items():
        metrics[split] |= {name: values[name] for name in outdated if name in values}
    write_remeasured(prepared.folder, record, metrics, versions)
    return read_record(prepared.folder)


def _evaluate_again(prepared: Prepared) -> dict[str, dict[str, float]]:
    """The metrics of the stored weights, measured as today."""
    model, task, device = load_model(prepared.folder), load_task(prepared.folder), torch.device("cpu")
    with arithmetic(prepared.config.threads):
        rows = {split: Rows.of(prepared.data.split(split), device) for split in SPLITS}
        return _evaluate_held_out(model, task, rows, device)


def _evaluate_held_out(
    model: nn.Module, task: Task, rows: Mapping[SplitName, Rows], device: torch.device
) -> dict[str, dict[str, float]]:
    """The metrics of validation and test; none on validation if the run trained on those rows."""
    held_out: tuple[SplitName, ...] = ("validation", "test")
    return {name: evaluate(model, task, rows[name], name, device) if len(rows[name]) else {} for name in held_out}


def write_results(
    prepared: Prepared,
    start: Start,
    training: Training,
    outcome: Outcome | Diverged,
    rows: Mapping[SplitName, Rows],
    options: Options,
    listener: Tracked,
) -> None:
    """Write the results of a training that has ended, and the record last."""
    config, folder, task = prepared.config, prepared.folder, prepared.task
    finished = outcome if isinstance(outcome, Outcome) else None
    device = training.devices.device
    metrics = (
        {} if finished is None else _write_model_and_samples(prepared, start.model, finished, rows, device, options)
    )
    record = RunRecord(
        id=prepared.id,
        status="failed" if finished is None else "finished",
        reason="" if finished is not None else str(outcome),
        config=config.model_dump(mode="json"),
        seed=config.seed,
        fingerprint=prepared.data.fingerprint,
        objective=task.objective,
        maximise=task.maximise,
        code=describe_code(config),
        machine=machine(),
        versions=versions(),
        data=_describe(prepared.data),
        cost=prepared.cost.as_dict(),
        metrics=metrics,
        directions=task.directions(),
        metric_versions=dict(task.metric_versions),
        selected=_selection(config, finished, start.fresh),
        steps=training.position.step,
        wall_seconds=round(training.position.seconds, 3),
        samples_per_second=round(training.samples_seen / max(training.position.seconds, 1e-9), 1),
        started=datetime.fromtimestamp((folder / CONFIG).stat().st_mtime, UTC).isoformat(timespec="seconds"),
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        command=options.command,
        files={path.name: sha256(path) for path in sorted(folder.iterdir()) if _is_result(path)},
    )
    write_record(folder, record)
    State(folder).clear()
    listener.finish(record)


def _write_model_and_samples(
    prepared: Prepared,
    model: nn.Module,
    outcome: Outcome,
    rows: Mapping[SplitName, Rows],
    device: torch.device,
    options: Options,
) -> dict[str, dict[str, float]]:
    model.load_state_dict(outcome.weights)
    model.eval()
    write_model(prepared.folder / MODEL, model, outcome.weights, prepared.config.model.model_dump(mode="json"))
    _write_samples(prepared, model, rows["test"], device, options.data_dir or data_dir())
    return _evaluate_held_out(model, prepared.task, rows, device)


def _describe(data: Data) -> dict[str, Any]:
    rows = {name: len(data.split(name)) for name in SPLITS}
    facts: dict[str, Any] = {"rows": rows, "classes": list(data.classes), "columns": list(data.columns)}
    facts |= {"findings": list(data.findings)} if data.findings else {}
    return facts | ({"table": dict(data.table)} if data.table else {})


def _selection(config: RunConfig, outcome: Outcome | None, fresh: list[str]) -> dict[str, Any]:
    if outcome is None:
        return {}
    by = "lowest validation loss" if config.train.select == "best" else "last step"
    chosen: dict[str, Any] = {"step": outcome.step, "epoch": outcome.epoch, "by": by}
    return chosen | ({"not_initialised_from_run": fresh} if fresh else {})


def _is_result(path: Path) -> bool:
    return path.is_file() and not path.name.startswith((".", "state"))


@torch.no_grad()
def _write_samples(prepared: Prepared, model: nn.Module, rows: Rows, device: torch.device, where: Path) -> None:
    """Write predictions for ten evenly spread test rows, the same for every model."""
    folder, task = prepared.folder, prepared.task
    index = torch.linspace(0, len(rows) - 1, min(10, len(rows))).long()
    batch = task.evaluation_batch(*rows.take(index, device), "test", block=len(rows))  # noise of its own block
    if samples := task.sample_rows(model, batch):
        source = find("sources", prepared.config.source.name)(prepared.config.source)
        write_sheet(folder / SAMPLES, [source.pictures(each.rows, where, each.hidden) for each in samples])
        return
    decoded = task.decode(model(batch.input))
    if decoded.ndim == 4:
        pictures = (batch.input.clamp(0, 1) * 255).round().to(torch.uint8).cpu().numpy()
        write_sheet(folder / SAMPLES, [pictures, decoded, task.decode(batch.target)])
    else:
        target = batch.target.cpu().numpy() if decoded.ndim == 1 else task.decode(batch.target)
        write_values(folder / "samples.csv", decoded, target)
