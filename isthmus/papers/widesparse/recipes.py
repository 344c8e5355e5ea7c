"""The protocols of "Understanding MLP-Mixer as a Wide and Sparse MLP" (appendix C), and Mixers for two cores.

Not printed, and chosen here: the decay of AdamW (0.01, PyTorch's) and of SGD (none), the padding of a random crop (4
pixels), and which epoch is reported (the last). The paper trains on all 50,000 CIFAR images; here 5,000 of them are
held out for validation. Times are on two cores.
"""

from __future__ import annotations

from typing import Any

from isthmus.core.config import RunConfig, run_config
from isthmus.recipes.images import at_224_pixels, brief

NAMES = {
    "cifar10-mixer": "cifar10_mixer",
    "cifar10-rp-mixer": "cifar10_rp_mixer",
    "cifar10-s-mixer": "cifar10_s_mixer",
    "cifar10-sw-mlp": "cifar10_sw_mlp",
    "digits-mixer": "digits_mixer",
    "widesparse-mixer": "figure_4",
    "widesparse-s-mixer": "figure_5",
    "widesparse-mixer-ss-8": "mixer_ss_8",
    "widesparse-mixer-ss-w": "mixer_ss_w",
    "widesparse-mixer-ss-w-cifar100": "mixer_ss_w_cifar100",
    "widesparse-mixer-b-w": "mixer_b_w",
    "widesparse-cifar10-ratio": "ratio_cifar10",
    "widesparse-cifar100-ratio": "ratio_cifar100",
    "widesparse-stl10-ratio": "ratio_stl10",
    "widesparse-imagenet1k-ratio": "ratio_imagenet1k",
    "widesparse-stl10-90": "stl10_90",
    "widesparse-mnist-monarch": "mnist_monarch",
    "widesparse-mnist-kronecker": "mnist_kronecker",
}

CROPS = {"crop_padding": 4, "flip": True}
POLICY = CROPS | {"policy": "auto_augment_cifar10"}
NESTEROV = {"optimizer": "sgd", "momentum": 0.9, "nesterov": True, "schedule": "cosine", "select": "last"}
ADAMW = {"optimizer": "adamw", "weight_decay": 0.01, "schedule": "cosine", "select": "last"}
IMAGENET_TRAIN = {
    "epochs": 300,
    "batch_size": 4096,
    "accumulate": 32,
    "optimizer": "adamw",
    "learning_rate": 1e-3,
    "weight_decay": 0.05,
    "decayed": "matrices",
    "schedule": "cosine",
    "warmup_epochs": 5,
    "warmup_learning_rate": 1e-6,
    "final_learning_rate": 1e-5,
    "select": "last",
}


def _classify(
    source: str, model: dict[str, Any], train: dict[str, Any], augment: dict[str, Any] | None = None
) -> RunConfig:
    task: dict[str, Any] = {"name": "classification"} | ({"augment": augment} if augment else {})
    size = {"size": 32} if source == "stl10" else {}  # appendix C.4
    return run_config({"source": {"name": source, **size}, "task": task, "model": model, "train": train})


def _mixer(C: int, S: int | None, depth: int, gamma: float, **fields: Any) -> dict[str, Any]:
    return {"name": "mlp_mixer", "patch": 4, "S": S, "C": C, "depth": depth, "gamma": gamma, **fields}


def _s_mixer(C: int, S: int, depth: int) -> dict[str, Any]:
    return {"name": "s_mixer", "patch": 4, "S": S, "C": C, "depth": depth}


def cifar10_mixer() -> RunConfig:
    """`isthmus train cifar10-mixer`: 64 tokens of 64 channels, three blocks, 20 epochs of crops and flips."""
    return _classify("cifar10", _mixer(64, None, 3, 2), brief(20), CROPS)


def cifar10_rp_mixer() -> RunConfig:
    """`isthmus train cifar10-rp-mixer`: the same Mixer with random permutations, drawn once from the run's seed."""
    return _classify("cifar10", _mixer(64, None, 3, 2, permutation="random"), brief(20), CROPS)


def cifar10_s_mixer() -> RunConfig:
    """`isthmus train cifar10-s-mixer`: one matrix per mixing step, C = S = 64, eight blocks, 20 epochs."""
    return _classify("cifar10", _s_mixer(64, 64, 8), brief(20), CROPS)


def cifar10_sw_mlp() -> RunConfig:
    """`isthmus train cifar10-sw-mlp`: 2,048 wide, one in a hundred connections, eight blocks, 20 epochs."""
    model = {"name": "sw_mlp", "patch": 4, "m": 2048, "p": 0.01, "depth": 8, "mask_scale": "one"}
    return _classify("cifar10", model, brief(20), CROPS)


def digits_mixer() -> RunConfig:
    """`isthmus train digits-mixer`: 16 tokens of 32 channels on embedded digits, no download, seconds."""
    return _classify("digits", _mixer(32, None, 2, 2, patch=2), brief(10))


def figure_4() -> RunConfig:
    """The paper's protocol of Figures 2(a) and 4 with its widest Mixer, C = S = 64: 600 epochs of AutoAugment."""
    train = ADAMW | {"epochs": 600, "batch_size": 128, "learning_rate": 0.01}
    return _classify("cifar10", _mixer(64, 64, 3, 2), train, POLICY)


def figure_5(source: str = "cifar10") -> RunConfig:
    """The paper's protocol of Figure 5, and of all small data sets unless it says otherwise; C = S = 64."""
    train = NESTEROV | {"epochs": 200, "batch_size": 128, "learning_rate": 0.02}
    return _classify(source, _s_mixer(64, 64, 8), train, CROPS)


def _table_1(source: str, model: dict[str, Any], rate: float) -> RunConfig:
    train = ADAMW | {"epochs": 4000, "batch_size": 1024, "learning_rate": rate}
    return _classify(source, model, train, POLICY)


def mixer_ss_8(source: str = "cifar10", rate: float = 0.04) -> RunConfig:
    """The paper's Mixer-SS/8 of Table 1; rates searched over 0.04, 0.05 and 0.06."""
    return _table_1(source, _mixer(986, None, 2, 4, patch=8), rate)


def mixer_ss_w() -> RunConfig:
    """The paper's Mixer-SS-W of Table 1, with the C of 467 that gives its 255 M connections (487 is printed)."""
    return _table_1("cifar10", _mixer(467, None, 2, 4), 0.04)


def mixer_ss_w_cifar100() -> RunConfig:
    """The paper's Mixer-SS-W on CIFAR-100."""
    return _table_1("cifar100", _mixer(467, None, 2, 4), 0.04)


def _imagenet1k(model: dict[str, Any]) -> RunConfig:
    task = at_224_pixels(cutmix_share=0.5)
    return run_config({"source": {"name": "imagenet1k"}, "task": task, "model": model, "train": IMAGENET_TRAIN})


def mixer_b_w() -> RunConfig:
    """The paper's Mixer-B-W of Table 1, with the γ of 4.095 that gives its width of 6.2e5 (4.57 is printed)."""
    return _imagenet1k(_mixer(588, None, 8, 4.095, patch=14))


def ratio_cifar10() -> RunConfig:
    """The paper's protocol of Figure 6 on CIFAR-10, as in Table S.2; C = S = 128."""
    train = ADAMW | {"epochs": 2000, "batch_size": 1024, "learning_rate": 0.02}
    return _classify("cifar10", _s_mixer(128, 128, 12), train, POLICY)


def ratio_cifar100() -> RunConfig:
    """The paper's protocol of Figure 6 on CIFAR-100, as in Table S.2; C = S = 128."""
    train = NESTEROV | {"epochs": 600, "batch_size": 128, "learning_rate": 0.1}
    return _classify("cifar100", _s_mixer(128, 128, 12), train, CROPS)


def ratio_stl10() -> RunConfig:
    """The paper's protocol of Figure 6 on STL-10, as in Table S.2; C = S = 64."""
    train = NESTEROV | {"epochs": 2000, "batch_size": 128, "learning_rate": 0.1}
    return _classify("stl10", _s_mixer(64, 64, 12), train, CROPS)


def ratio_imagenet1k() -> RunConfig:
    """The paper's protocol of Figure 6 on ImageNet-1k: the baseline, patches of 16 pixels, S = 196 and C = 768."""
    return _imagenet1k(_mixer(768, 196, 8, 4, patch=16))


def stl10_90() -> RunConfig:
    """The paper's protocol of Figure S.5 on STL-10 at 90 pixels, with its best patch: C0 = 108, S0 = 225."""
    train = NESTEROV | {"epochs": 400, "batch_size": 128, "learning_rate": 0.1}
    task = {"name": "classification", "augment": CROPS}
    source = {"name": "stl10", "size": 90}
    return run_config({"source": source, "task": task, "model": _s_mixer(64, 64, 4) | {"patch": 6}, "train": train})


def _shallow(name: str) -> RunConfig:
    train = ADAMW | {"epochs": 200, "batch_size": 128, "learning_rate": 0.01}
    return _classify("mnist", {"name": name}, train)


def mnist_monarch() -> RunConfig:
    """The paper's shallow net of Figure 2(d) with Monarch matrices; its batch size is not printed."""
    return _shallow("monarch_mlp")


def mnist_kronecker() -> RunConfig:
    """The paper's shallow net of Figure 2(d) with Kronecker products."""
    return _shallow("kronecker_mlp")
