"""What holds for every registered source, found through the registry."""

import importlib
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from isthmus.core import registry
from isthmus.core.errors import UserError
from isthmus.core.protocols import SPLITS, Component, Source

SOURCES = sorted(name for name, home in registry.catalogue("sources").items() if home.startswith("isthmus."))
EMBEDDED = {"bikes", "digits", "mnist5k", "photos", "sudoku", "tower"}
REQUIRED: dict[str, dict[str, Any]] = {
    "arrays": {"path": "absent.csv"},
    "table": {"path": "absent.csv"},
    "image_folder": {"path": "absent"},
    "sudoku_csv": {"path": "absent.csv.gz"},
    "hub": {"repo": "absent/absent", "image": "image"},
    "tokens": {"tokenizer": "absent", "images": {"name": "digits"}},
}


def build(name, **fields):
    config = registry.component("sources", {"name": name, **REQUIRED.get(name, {}), **fields})
    return registry.find("sources", name)(config)


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_has_a_config_and_says_what_it_reads(name):
    source = registry.find("sources", name)
    assert issubclass(source, Source)
    assert issubclass(source.Config, Component)
    assert source.__doc__
    assert importlib.import_module(source.__module__).__doc__
    splits_itself = "split_seed" in source.Config.model_fields  # tokens have the splits of their images
    said = "did you mean 'split_seed'" if splits_itself else "choose from"
    with pytest.raises(UserError, match=f"unknown field 'split_sed'; {said}"):
        build(name, split_sed=1)
    config = build(name).config
    assert source.Config(**config.model_dump(mode="json")) == config


@pytest.mark.parametrize("name", sorted(EMBEDDED))
def test_embedded_data_keep_the_contract(name, tmp_path):
    data = build(name).load(tmp_path)
    for split in (data.split(part) for part in SPLITS):
        assert (split.inputs.dtype.name, split.inputs.ndim) in {("uint8", 4), ("int16", 2), ("float32", 2)}
        assert split.inputs.flags.c_contiguous
        assert split.inputs.flags.writeable
        assert split.targets is None or split.targets.dtype in (np.int64, np.int16, np.float32)
        assert split.targets is None or len(split.targets) == len(split)
    assert len(data.fingerprint) == 64
    assert build(name).load(tmp_path).fingerprint == data.fingerprint


@pytest.mark.parametrize("name", sorted(set(SOURCES) - EMBEDDED))
def test_missing_data_are_one_line_that_says_what_and_where(name, tmp_path, monkeypatch):
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "home"))
    if name == "hub":
        datasets = pytest.importorskip("datasets")
        monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError) as error:
        build(name).load(tmp_path)
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value) or "absent/absent" in str(error.value)


def test_sources_do_without_torch_and_import_heavy_packages_late():
    modules = [registry.catalogue("sources")[name].partition(":")[0] for name in SOURCES]
    heavy = ["torch", "sklearn", "skimage", "mlxtend", "pyarrow", "datasets", "PIL", "pandas"]
    program = f"import sys, {', '.join(sorted(set(modules)))}; print([m for m in {heavy} if m in sys.modules])"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("COV_")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "[]"
