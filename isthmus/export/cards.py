"""The model card of an export: what it is, its test metrics, and how to use it."""

from __future__ import annotations

import json

from isthmus.core.record import RunRecord
from isthmus.training.exported import FILES, Exported

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


def model_card(exported: Exported, record: RunRecord) -> str:
    """Markdown with the front matter that the Hugging Face Hub reads."""
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

Measured on test rows, which were used neither for training nor for selection; other data may differ.

## Use

{_USE[exported.format]}

Inputs are scaled as the task `{task}` learned it (`task.safetensors`). `isthmus predict FOLDER FILES` does that for
images, arrays and tables, and gives outputs in your units.

## Settings

```json
{json.dumps(exported.model, indent=2)}
```

Run `{record.id}`; data {record.fingerprint[:16]}….
"""
