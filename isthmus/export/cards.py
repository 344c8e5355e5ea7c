"""The model card of an export: what it is, its test metrics, and how to use it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from isthmus.core.record import RunRecord
from isthmus.export.int8_format import ROWS
from isthmus.sources.encoding import Column, TableEncoder
from isthmus.training.exported import EXPORT, FILES, Exported

_USE = {
    "safetensors": """```python
import isthmus

trained = isthmus.load("FOLDER")      # trained.predict(rows) takes your rows as they are
model = trained.model                 # the torch.nn.Module in evaluation mode
```

`isthmus.export.HubModel.from_pretrained("FOLDER")` reads the same folder, here or on the Hugging Face Hub.""",
    "onnx": """```python
import onnxruntime

session = onnxruntime.InferenceSession("FOLDER/model.onnx")
(y,) = session.run(None, {"x": x})    # any number of rows
```""",
    "torch": """```python
import torch

model = torch.export.load("FOLDER/model.pt2").module()    # any number of rows
```""",
}
_USE["narrow"] = _USE["safetensors"]
_MOST_LISTED = 100
"""Categories and columns without names beyond this number are not listed."""


def model_card(exported: Exported, record: RunRecord, width: int) -> str:
    """Markdown with the front matter that the Hugging Face Hub reads; ``width`` is the number of inputs."""
    name, task = exported.model["name"], exported.task["name"]
    metrics = "\n".join(f"| {metric} | {value:.4g} |" for metric, value in exported.metrics.items())
    return f"""---
library_name: isthmus
tags:
  - isthmus
  - {name}
  - {task}
---

# {name} for {task.replace("_", " ")}

A `{name}` of {record.cost["params"]:,} parameters, trained by Isthmus on `{record.config["source"]["name"]}` (seed
{record.seed}, {record.steps:,} steps), in `{FILES[exported.format]}`.

| test | |
|---|---|
{metrics}

{_describe_int8(exported)}Measured on test rows, which were used neither for training nor for selection; other data may
differ.

## Use

{_USE[exported.format]}

{_describe_inputs(exported, width)}

## Settings

```json
{json.dumps(exported.model, indent=2)}
```

Run `{record.id}`; data {record.fingerprint[:16]}….
"""


def _describe_int8(exported: Exported) -> str:
    if not exported.int8:
        return ""
    chosen, metric = exported.int8["chosen"], exported.int8["objective"]
    lines = [f"| weights | bytes of the model | test {metric} | ms per {ROWS} rows |", "|---|---|---|---|"]
    for title, name in (("float32", "float32"), ("int8 everywhere", "uniform"), ("this file", "chosen")):
        policy = exported.int8[name]
        lines.append(f"| {title} | {policy['bytes']:,} | {policy['test'][metric]:.5g} | {policy['latency']:.3g} |")
    layers = ", ".join(f"`{name}`" for name in chosen["layers"]) or "none"
    few = f"{len(chosen['layers'])} of {len(exported.int8['layers'])} layers are int8 ({layers}); the table measures"
    return "\n".join([f"{few} this network, not the float32 one.", "", *lines, "", ""])


def _describe_inputs(exported: Exported, width: int) -> str:
    if not exported.raw:
        return (
            f"Inputs are scaled as the task `{exported.task['name']}` learned it (`task.safetensors`). "
            "`isthmus predict FOLDER FILES` does that for\n"
            "images, arrays and tables, and gives outputs in your units."
        )
    targets = exported.table.get("targets") or exported.source.get("targets") or ()
    names = [targets] if isinstance(targets, str) else list(targets)
    outputs = f"the value of {_join(names)} in your units" if names else "the predicted values in your units"
    if exported.classes:
        outputs = f"the probabilities of {_join(exported.classes)}"
    columns = list(_describe_table(exported) if exported.table else _number(exported.columns))
    table = "\n".join(["| place | column | content |", "|---|---|---|", *columns])
    inside = "Missing values, scaling and units are" if exported.table else "Scaling and units are"
    return f"""`x` is a float64 array (rows, {width}) of raw columns; the output is {outputs}.
{inside} handled inside. `isthmus.load("FOLDER").predict(rows)` makes `x` of your tables.

{table if columns else "The columns have no names; they are in the order of training."}"""


def _number(names: Sequence[str]) -> Iterator[str]:
    return (f"| {place} | {_escape(name)} | the number |" for place, name in enumerate(names))


def _describe_table(exported: Exported) -> Iterator[str]:
    """What each number of a row of codes means."""
    place = 0
    for column in TableEncoder.recall(exported.table["encoder"]).columns:
        last = place + column.width - 1
        places = f"{place} to {last}" if last > place else str(place)
        yield f"| {places} | {_escape(column.name)} | {_describe_codes(column)} |"
        place = last + 1


def _describe_codes(column: Column) -> str:
    if column.kind == "category":
        listed = [f"{code} {_escape(value)}" for code, value in enumerate(column.values[:_MOST_LISTED])]
        rest = f"; {EXPORT} lists all {len(column.values):,}" if len(column.values) > _MOST_LISTED else ""
        return f"{', '.join(listed)}{rest}; -1 any other; NaN missing"
    contents = {
        "number": "the number; NaN missing",
        "boolean": "0 false, 1 true; NaN missing",
        "date": "days since 1970-01-01, with fractions for the time of day; NaN missing",
        "text": "counts of hashed words, as `isthmus.sources.cells.word_counts` gives them; NaN missing",
    }
    return contents[column.kind]


def _join(names: Sequence[str]) -> str:
    listed = ", ".join(f"`{_escape(name)}`" for name in names[:_MOST_LISTED])
    return listed + (" …" if len(names) > _MOST_LISTED else "")


def _escape(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("`", "'")
