"""Trained models as ONNX graphs for any batch size, and as modules run by onnxruntime."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from isthmus.core.errors import UserError, quiet
from isthmus.core.files import write_with
from isthmus.export.graphs import GraphModel, first_line

INSTALL = "pip install isthmus[export]"
_LARGEST = 2**31
"""Bytes of one ONNX file; a larger model would need external data files."""


def write_onnx(path: Path, exported: ExportedProgram) -> None:
    size = sum(tensor.numel() * tensor.element_size() for tensor in exported.state_dict.values())
    if size >= _LARGEST:
        raise UserError(f"this model has {size / 2**30:.1f} GiB of weights, and an ONNX file holds 2; try --to torch")
    try:
        import onnxscript  # noqa: F401 (torch's exporter needs it)
    except ImportError:
        raise UserError(f"ONNX files need onnx and onnxscript: {INSTALL}") from None
    try:
        with quiet("torch.onnx"), warnings.catch_warnings():  # about operators of packages that are not installed
            warnings.simplefilter("ignore")
            graph = torch.onnx.export(exported, input_names=["x"], output_names=["y"], dynamo=True, verbose=False)
    except torch.onnx.errors.OnnxExporterError as error:
        raise UserError(f"this model has no ONNX form: {_explain_missing(error)}") from None
    assert graph is not None
    write_with(path, lambda temporary: graph.save(temporary, external_data=False))


def _explain_missing(error: BaseException | None) -> str:
    """The operator that ONNX lacks, or the innermost error message."""
    text = ""
    while error is not None:
        text, error = str(error), error.__cause__ or error.__context__
    found = re.search(r"No ONNX function found for <OpOverload\(op='([\w.]+)'", text)
    return f"ONNX has no operator for torch's {found[1]}" if found else text.splitlines()[0][:200]


def read_onnx(path: Path) -> nn.Module:
    """An ONNX graph as a module; onnxruntime loads no code from the file."""
    try:
        import onnxruntime
    except ImportError:
        raise UserError(f"ONNX files are run by onnxruntime: {INSTALL}") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        (taken,) = session.get_inputs()
    except Exception as error:  # onnxruntime's errors have no common base class
        raise UserError(f"{path} is damaged or not an ONNX model: {first_line(error)}") from None

    def compute(x: Tensor) -> Tensor:
        (y,) = session.run(None, {taken.name: x.numpy()})
        return torch.from_numpy(y)

    return GraphModel(path, tuple(taken.shape[1:]), compute)
