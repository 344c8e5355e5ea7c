"""Our models through timm's own functions, and timm's weights in our models. Run by `make test-timm`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

try:
    import timm
except (ImportError, RuntimeError):  # torchvision is missing, or made for another build of torch
    pytest.skip("timm does not work in this environment; `make test-timm` makes one", allow_module_level=True)

import timm.optim
import timm.scheduler
from safetensors.torch import save_file
from timm.data import Mixup, resolve_data_config
from timm.loss import SoftTargetCrossEntropy
from timm.utils import ModelEmaV3

import isthmus
import isthmus.timm
from isthmus.core.errors import UserError
from isthmus.models.mlp_mixer import VARIANTS as MIXERS
from isthmus.models.vit import VARIANTS as VITS
from isthmus.training.timm_weights import convert_timm
from tests.architecture.documents import IN_TIMM, run_blocks
from tests.papers.exact_counts import EXACT

HOURGLASS = "isthmus_hourglass_vit_tiny_patch16_224"
NAMES = sorted(isthmus.timm.VARIANTS)
SMALL: dict[str, dict[str, Any]] = {
    "vit": {"d_z": 24, "d_h": 12, "depth": 4, "num_heads": 3},
    "mlp_mixer": {"C": 24, "depth": 4, "token_hidden": None, "channel_hidden": None},
    "imixer": {"C": 24, "depth": 4, "token_hidden": 6, "channel_hidden": 30, "head_init": "xavier"},
}


def small(name: str, **kwargs: Any) -> Any:
    """A registered model with four narrow blocks, on images of 32 pixels."""
    fields = SMALL[isthmus.timm.VARIANTS[name]["name"]] | {"patch": 8}
    torch.manual_seed(0)
    return timm.create_model(name, img_size=32, **fields | {"num_classes": 7} | kwargs)


def images(rows: int = 3, size: int = 32, channels: int = 3) -> Tensor:
    return torch.randn(rows, channels, size, size, generator=torch.Generator().manual_seed(1))


def test_every_model_is_listed_with_its_config():
    assert set(timm.list_models("isthmus_*")) == set(NAMES)
    assert len(NAMES) == 15
    for name in NAMES:
        config = timm.models.get_pretrained_cfg(name)
        assert (config.input_size, config.num_classes, config.classifier) == ((3, 224, 224), 1000, "model.head.linear")
        assert not config.has_weights
    data = resolve_data_config({}, model=small(HOURGLASS))
    assert data["input_size"] == (3, 224, 224)


@pytest.mark.parametrize("variant", EXACT)
def test_sizes_are_those_of_table_2(variant):
    size, _, shape = variant.partition("-")
    name = f"isthmus_{'hourglass_' * (shape == 'hourglass')}vit_{size}_patch16_224"
    with torch.device("meta"):
        model = timm.create_model(name, num_classes=196)
    assert sum(parameter.numel() for parameter in model.parameters()) == EXACT[variant]


RIVALS = {
    "vit_tiny_patch16_224": ("isthmus_vit_tiny_patch16_224", VITS["tiny-conventional"]),
    "mixer_s16_224": ("isthmus_mixer_s16_224", MIXERS["s"]),
}


@pytest.mark.parametrize("name", RIVALS)
def test_timms_weights_give_timms_outputs(name, tmp_path):
    torch.manual_seed(0)
    theirs = timm.create_model(name, num_classes=11).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():  # also biases, norms and a head that start at zero or one
            parameter.add_(0.05 * torch.randn_like(parameter))
    registered, variant = RIVALS[name]
    ours = isthmus.create_model(**variant | {"output_shape": (11,)}).eval()
    ours.load_state_dict(convert_timm(theirs.state_dict()))
    save_file(theirs.state_dict(), tmp_path / "theirs.safetensors")
    overlay = {"file": str(tmp_path / "theirs.safetensors"), "num_classes": 11}
    loaded = timm.create_model(registered, pretrained=True, pretrained_cfg_overlay=overlay, num_classes=11).eval()
    x = images(2, 224)
    with torch.no_grad():
        expected = theirs(x)
        assert expected.std() > 0.1
        torch.testing.assert_close(ours(x), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(loaded(x), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(loaded.forward_features(x), theirs.forward_features(x), rtol=1e-4, atol=1e-5)


def test_timms_weights_fit_other_channels_and_classes(tmp_path):
    theirs = timm.create_model("vit_tiny_patch16_224", num_classes=11)
    save_file(theirs.state_dict(), tmp_path / "theirs.safetensors")
    overlay = {"file": str(tmp_path / "theirs.safetensors"), "num_classes": 11}
    name = RIVALS["vit_tiny_patch16_224"][0]
    ours = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay, num_classes=5, in_chans=1)
    kernel = theirs.patch_embed.proj.weight.sum(1).flatten(1)
    torch.testing.assert_close(ours.model.stem.linear.weight, kernel)
    torch.testing.assert_close(ours.model.blocks[3].ffn[0].W1.weight, theirs.blocks[3].mlp.fc1.weight)
    assert ours(images(1, 224, 1)).shape == (1, 5)


def test_weights_of_another_kind_are_named():
    other = timm.create_model("vit_tiny_patch16_224", init_values=1e-5)
    with pytest.raises(UserError, match=r"blocks\.0\.ls1\.gamma has no place in our ViT"):
        convert_timm(other.state_dict())


@pytest.mark.parametrize("name", NAMES)
def test_features_and_intermediates(name):
    model = small(name).eval()
    x = images()
    with torch.no_grad():
        features, taken = model.forward_intermediates(x, indices=[1, 3], norm=True)
        assert [tuple(found.shape) for found in taken] == [(3, 24, 4, 4)] * 2
        torch.testing.assert_close(features, model.forward_features(x))
        torch.testing.assert_close(taken[1].flatten(2).mT, features[:, model.prefix :])
        torch.testing.assert_close(model.forward_head(features), model(x))
        assert model.forward_head(features, pre_logits=True).shape == (3, 24)
        rows = model.forward_intermediates(x, indices=2, output_fmt="NLC", intermediates_only=True, stop_early=True)
        assert [tuple(row.shape) for row in rows] == [(3, 16, 24)] * 2
        getter = small(name, features_only=True, out_indices=(0, 2)).eval()
        assert getter.feature_info.channels() == [24, 24]
        assert getter.feature_info.reduction() == [8, 8]
        torch.testing.assert_close(getter(x), model.forward_intermediates(x, [0, 2], intermediates_only=True))
        assert len(getter.model.model.blocks) == 3, "what comes later is left out"


@pytest.mark.parametrize("name", NAMES)
def test_the_classifier_can_be_reset(name):
    model = small(name)
    assert model.get_classifier().out_features == model.num_classes == 7
    model.reset_classifier(3)
    assert model(images()).shape == (3, 3)
    model.reset_classifier(0)
    assert model(images()).shape == (3, 24)
    assert small(name, num_classes=0)(images()).shape == (3, 24)
    assert small(name, global_pool="")(images()).shape == (3, 16 + model.prefix, 7)


def test_class_token_and_mean():
    token, mean = small(HOURGLASS), small(HOURGLASS, global_pool="avg")
    assert (token.prefix, token.global_pool, mean.prefix, mean.global_pool) == (1, "token", 0, "avg")
    with pytest.raises(UserError, match="global_pool='map': vit takes 'token', 'avg', ''"):
        small(HOURGLASS, global_pool="map")


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_has_its_layer(name):
    model = small(name)
    spared = model.no_weight_decay()
    groups = timm.optim.param_groups_layer_decay(model, 0.1, no_weight_decay_list=spared, layer_decay=0.5)
    scale = {id(parameter): group["lr_scale"] for group in groups for parameter in group["params"]}
    decay = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
    layers = dict(model.named_parameters())
    assert scale.keys() == {id(parameter) for parameter in layers.values()}
    order = [layers["model.stem.linear.weight"], *(next(block.parameters()) for block in model.model.blocks)]
    scales = [scale[id(parameter)] for parameter in [*order, layers["model.head.linear.weight"]]]
    assert scales == sorted(scales)
    assert len(set(scales)) == len(scales)
    assert all(decay[id(layers[undecayed])] == 0 for undecayed in spared)
    assert bool(spared) == bool(model.prefix)


@pytest.mark.parametrize("name", [name for name in NAMES if "imixer" not in name])
def test_checkpointed_gradients_are_the_same(name):
    found = []
    for again in (False, True):
        model = small(name, drop_path_rate=0.3)
        model.set_grad_checkpointing(again)
        torch.manual_seed(5)
        model(images()).square().mean().backward()
        found.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for key, gradient in found[0].items():
        torch.testing.assert_close(found[1][key], gradient, msg=key)


def test_a_spectral_norm_cannot_be_computed_again():
    with pytest.raises(UserError, match="a spectral norm changes with every pass"):
        small("isthmus_imixer_s16_224").set_grad_checkpointing()
    small("isthmus_imixer_s16_224", norm="none").set_grad_checkpointing()


@pytest.mark.parametrize("name", [HOURGLASS, "isthmus_mixer_s16_224", "isthmus_imixer_s16_224"])
def test_it_trains_with_the_parts_of_timms_script(name: str, tmp_path: Path) -> None:
    model = small(name, drop_rate=0.1, drop_path_rate=0.1, num_classes=4)
    optimizer = timm.optim.create_optimizer_v2(model, "sgd", lr=0.05, weight_decay=1e-4, layer_decay=0.9)
    scheduler, _ = timm.scheduler.create_scheduler_v2(optimizer, "cosine", num_epochs=6, warmup_epochs=1)
    mixup = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=4)
    average = ModelEmaV3(model, decay=0.9)
    x, labels = images(16), torch.arange(16) % 4
    x = x + 3 * labels[:, None, None, None]  # a class is a brightness
    before = nn.functional.cross_entropy(model.eval()(x), labels).item()
    model.train()
    for epoch in range(6):
        for _ in range(8):
            mixed, target = mixup(x.clone(), labels)
            SoftTargetCrossEntropy()(model(mixed), target).backward()
            optimizer.step()
            optimizer.zero_grad()
            average.update(model)
        scheduler.step(epoch + 1)
    assert nn.functional.cross_entropy(model.eval()(x), labels).item() < before
    torch.save(model.state_dict(), tmp_path / "last.pth")
    again = small(name, num_classes=4, checkpoint_path=str(tmp_path / "last.pth")).eval()
    torch.testing.assert_close(again(x), model(x))


@pytest.mark.parametrize("name", [HOURGLASS, "isthmus_rp_mixer_s16_224", "isthmus_imixer_s16_224"])
def test_images_of_another_size_are_refused_even_with_as_many_patches(name: str) -> None:
    with pytest.raises(UserError, match=r"images of shape \(3, 16, 64\) for a model of \(3, 32, 32\)"):
        small(name)(torch.zeros(1, 3, 16, 64))


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "isthmus.timm", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_a_script_of_timms_knows_our_models(tmp_path: Path) -> None:
    """timm's train.py is in its repository alone; like it, this script takes a name and never imports isthmus."""
    (tmp_path / "beside.py").write_text("import timm\nmake = timm.create_model\n")
    script = tmp_path / "train.py"
    script.write_text("import sys\nfrom beside import make\nprint(__name__, type(make(sys.argv[1])).__name__)\n")
    found = run(script, HOURGLASS)
    assert found.stdout == "__main__ Backbone\n", found.stderr


@pytest.mark.parametrize("arguments", [[], ["no-such-script.py", "data"]])
def test_a_missing_script_is_one_line(arguments: list[str]) -> None:
    found = run(*arguments)
    assert found.returncode == 1
    line = found.stderr.splitlines()[-1]
    assert line.startswith("isthmus: ")
    assert "python -m isthmus.timm" in line
    assert "Traceback" not in found.stderr


def test_the_page_about_timm_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_blocks(IN_TIMM)
