"""The protocols of "Understanding MLP-Mixer as a Wide and Sparse MLP" (appendix C).

Not printed, and chosen here: the weight decay of AdamW (0.01, PyTorch's) and of SGD (none), the padding of random crops
(4 pixels), and which epoch is reported (the last). The paper trains on all 50,000 CIFAR images; here 5,000 of them are
held out for validation.
"""

from __future__ import annotations

from typing import Any

from isthmus.core.config import RunConfig, run_config
from isthmus.recipes import at_224_pixels, published_network, recipe

CROPS = {"crop_padding": 4, "flip": True}
POLICY = CROPS | {"policy": "auto_augment_cifar10"}
NESTEROV = {"optimizer": "sgd", "momentum": 0.9, "nesterov": True, "schedule": "cosine", "select": "last"}
ADAMW = {"optimizer": "adamw", "weight_decay": 0.01, "schedule": "cosine", "select": "last"}
IMAGENET_TRAIN = {
    "epochs": 300, "batch_size": 4096, "accumulate": 32, "optimizer": "adamw", "learning_rate": 1e-3,
    "weight_decay": 0.05, "decayed": "matrices", "schedule": "cosine", "warmup_epochs": 5,
    "warmup_learning_rate": 1e-6, "final_learning_rate": 1e-5, "select": "last",
}  # fmt: skip


def _classify(
    source: str, model: dict[str, Any], train: dict[str, Any], augment: dict[str, Any] | None = None, size: int = 32
) -> RunConfig:
    """STL-10 has images of 32 pixels unless the paper says otherwise (appendix C.4)."""
    task: dict[str, Any] = {"name": "classification"} | ({"augment": augment} if augment else {})
    data = {"name": source} | ({"size": size} if source == "stl10" else {})
    return run_config({"source": data, "task": task, "model": model, "train": train})


def mixer(C: int, S: int | None, depth: int, gamma: float, patch: int = 4, **fields: Any) -> dict[str, Any]:
    return {"name": "mlp_mixer", "patch": patch, "S": S, "C": C, "depth": depth, "gamma": gamma, **fields}


def s_mixer(C: int, S: int, depth: int, patch: int = 4, **fields: Any) -> dict[str, Any]:
    return {"name": "s_mixer", "patch": patch, "S": S, "C": C, "depth": depth, **fields}


def figure_4() -> RunConfig:
    """The paper's protocol of Figures 2(a) and 4 with its widest Mixer, C = S = 64: 600 epochs of AutoAugment."""
    train = ADAMW | {"epochs": 600, "batch_size": 128, "learning_rate": 0.01}
    return _classify("cifar10", mixer(64, 64, 3, 2), train, POLICY)


def figure_5(source: str = "cifar10", rate: float = 0.02) -> RunConfig:
    """The paper's protocol of Figure 5, and of all small data sets unless it says otherwise; C = S = 64."""
    train = NESTEROV | {"epochs": 200, "batch_size": 128, "learning_rate": rate}
    return _classify(source, s_mixer(64, 64, 8), train, CROPS)


def _imagenet1k(model: dict[str, Any]) -> RunConfig:
    task = at_224_pixels(cutmix_share=0.5)
    return run_config({"source": {"name": "imagenet1k"}, "task": task, "model": model, "train": IMAGENET_TRAIN})


def table_1(variant: str, source: str = "cifar10") -> RunConfig:
    model = published_network("mlp_mixer", variant)
    if source == "imagenet1k":
        return _imagenet1k(model)
    train = ADAMW | {"epochs": 4000, "batch_size": 1024, "learning_rate": 0.04}
    return _classify(source, model, train, POLICY)


def ratio(source: str) -> RunConfig:
    """Table S.2."""
    if source == "imagenet1k":
        return _imagenet1k(mixer(768, 196, 8, 4, patch=16))
    if source == "cifar10":
        train = ADAMW | {"epochs": 2000, "batch_size": 1024, "learning_rate": 0.02}
    else:
        epochs = 600 if source == "cifar100" else 2000
        train = NESTEROV | {"epochs": epochs, "batch_size": 128, "learning_rate": 0.1}
    size = 64 if source == "stl10" else 128
    return _classify(source, s_mixer(size, size, 12), train, POLICY if source == "cifar10" else CROPS)


def stl10_90() -> RunConfig:
    """The paper's protocol of Figure S.5 on STL-10 at 90 pixels, with its best patch: C0 = 108, S0 = 225."""
    train = NESTEROV | {"epochs": 400, "batch_size": 128, "learning_rate": 0.1}
    return _classify("stl10", s_mixer(64, 64, 4, patch=6), train, CROPS, size=90)


def shallow(name: str) -> RunConfig:
    """Figure 2(d)."""
    train = ADAMW | {"epochs": 200, "batch_size": 128, "learning_rate": 0.01}
    return _classify("mnist", {"name": name}, train)


def beta_lasso() -> RunConfig:
    """β-LASSO on its own network of 256 M connections, which Table 1 quotes.

    The paper's protocol is not printed; rate, β, λ and epochs are those of a public reimplementation.
    """
    train = {
        "optimizer": "beta_lasso", "learning_rate": 0.1, "lasso_lambda": 2e-5, "lasso_beta": 50.0, "schedule": "cosine",
        "epochs": 400, "batch_size": 512,
    }  # fmt: skip
    return _classify("cifar10", published_network("dense_mlp", "s-fc-cifar10"), train, CROPS)


RECIPES = {
    "widesparse-beta-lasso": beta_lasso,
    "widesparse-mixer": figure_4,
    "widesparse-s-mixer": figure_5,
    "widesparse-mixer-ss-8": recipe(
        "The paper's Mixer-SS/8 of Table 1; rates searched over 0.04, 0.05 and 0.06.", table_1, "ss-8"
    ),
    "widesparse-mixer-ss-w": recipe(
        "The paper's Mixer-SS-W of Table 1, with the C of 467 that gives its 255 M connections (487 is printed).",
        table_1, "ss-w",
    ),
    "widesparse-mixer-ss-w-cifar100": recipe("The paper's Mixer-SS-W on CIFAR-100.", table_1, "ss-w", "cifar100"),
    "widesparse-mixer-b-w": recipe(
        "The paper's Mixer-B-W of Table 1, with the γ of 4.095 that gives its width of 6.2e5 (4.57 is printed).",
        table_1, "b-w", "imagenet1k",
    ),
    "widesparse-cifar10-ratio": recipe(
        "The paper's protocol of Figure 6 on CIFAR-10, as in Table S.2; C = S = 128.", ratio, "cifar10"
    ),
    "widesparse-cifar100-ratio": recipe(
        "The paper's protocol of Figure 6 on CIFAR-100, as in Table S.2; C = S = 128.", ratio, "cifar100"
    ),
    "widesparse-stl10-ratio": recipe(
        "The paper's protocol of Figure 6 on STL-10, as in Table S.2; C = S = 64.", ratio, "stl10"
    ),
    "widesparse-imagenet1k-ratio": recipe(
        "The paper's protocol of Figure 6 on ImageNet-1k: the baseline, patches of 16 pixels, S = 196 and C = 768.",
        ratio, "imagenet1k",
    ),
    "widesparse-stl10-90": stl10_90,
    "widesparse-mnist-monarch": recipe(
        "The paper's shallow net of Figure 2(d) with Monarch matrices; its batch size is not printed.",
        shallow, "monarch_mlp",
    ),
    "widesparse-mnist-kronecker": recipe(
        "The paper's shallow net of Figure 2(d) with Kronecker products.", shallow, "kronecker_mlp"
    ),
}  # fmt: skip
