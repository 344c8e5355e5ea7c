"""Masked images: the studies, measurements, claims and pictures of Tables 2 and 10 to 12 and Figures 7 and 13.

A tokenizer is trained first where the paper takes a public one. All tables are of the same runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from isthmus.core.config import RunConfig, StudyConfig, run_config, study_config
from isthmus.papers import load_paper
from isthmus.papers.engine.claims import AHEAD, REVERSED, Claims, Finding, combine, conclude, not_addressed, within
from isthmus.papers.engine.exhibit import Analysis, AnalysisInput, ClaimTest, Findings, Judgement, Part, Quantity, Scale
from isthmus.papers.engine.figures import finish, page, style
from isthmus.papers.engine.networks import Network
from isthmus.papers.engine.parts import Model, Settings, at_each_scale, describe_study, make_part
from isthmus.papers.hyperset import recipes
from isthmus.recipes.images import published_network
from isthmus.recipes.recurrent import CIFAR10_TOKENIZER, cifar10_tokenizer
from isthmus.studies.statistics import Sample, compare

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARES = {"T2": 0.4, "T10": 0.1, "T11": 0.2, "T12": 0.3}
METRICS = {"psnr": 1, "ssim": 1, "ms_ssim": 1, "lpips": -1, "fid": -1}
"""1 where more is better, −1 where less is."""
CLOSE = {"psnr": 0.1, "ssim": 0.005}
"""How near two models are when they match; our bounds. The printed differences are 0.002 dB and 0.000."""
SMOKE_TOKENIZER = "032b081fdd2aaecc"
"""The run of ``tokenizers("smoke")``."""
SMALLER = (
    "CIFAR-10 at 32 pixels and 64 tokens of a tokenizer of ours instead of ImageNet-100 at 256 pixels and 256 tokens "
    "of the public one; d 64 with 3 and 6 iterations instead of 768 with 12 and 24"
)
BETAS = "the paper prints 0.0 and 0.95 for AdamW's β; the authors' code has 0.9 and 0.96, and so has the paper's scale"
FEWER = "256 test images are restored instead of 5,000"
ROWS: dict[Scale, int] = {"paper": 5_000, "cpu": 256, "smoke": 256}
"""Test images that are restored."""

claim = Claims("hyperset")


def tokenizers(scale: Scale) -> list[StudyConfig]:
    """What is trained before; at the paper's scale the tokenizer is a file."""
    if scale == "paper":
        return []
    base = cifar10_tokenizer() if scale == "cpu" else _smoke_tokenizer()
    return [study_config(describe_study("hyperset-tokenizer", scale, base, [base.model.model_dump()]))]


def _smoke_tokenizer() -> RunConfig:
    model = {"name": "vq_tokenizer", "codes": 16, "stride": 2, "d_code": 4, "width": 8, "blocks": 0}
    train = {"epochs": 1, "batch_size": 64, "learning_rate": 2e-3}
    settings = {"source": {"name": "digits"}, "task": {"name": "tokenization"}, "model": model, "train": train}
    return run_config({**settings, "threads": 1})


def _base(scale: Scale) -> RunConfig | Settings:
    if scale == "paper":
        return recipes.paper_masked()
    tokenizer, images = (CIFAR10_TOKENIZER, "cifar10") if scale == "cpu" else (SMOKE_TOKENIZER, "digits")
    source = {"name": "tokens", "tokenizer": tokenizer, "images": {"name": images}}
    train = {
        "epochs": 1, "batch_size": 128, "learning_rate": 2e-3, "weight_decay": 0.01, "betas": [0.9, 0.95],
        "schedule": "cosine", "warmup_epochs": 0.2, "clip_norm": 3.0,
    }  # fmt: skip
    return {"source": source, "task": {"name": "masked_tokens"}, "train": train, "threads": 1}


def models(scale: Scale) -> list[Model]:
    """The three rows: the Transformer, Hyper-SET with M = d, and with M = 8d and twice the iterations."""
    if scale == "paper":
        rows = (("recurrent_transformer", ""), ("hyper_set", ""), ("hyper_set", "-8d"))
        return [published_network(name, f"masked-images{suffix}") for name, suffix in rows]
    full = scale == "cpu"
    shared: Model = {"d": 64 if full else 16, "num_heads": 2, "iterations": 3 if full else 2}
    ours = {"name": "hyper_set", **shared, "step_sizes": "X_0", "time_mlp": False}
    rival = {"name": "recurrent_transformer", **shared, "positions": "learned"}
    return [rival, ours, {**ours, "ff_ratio": 8, "iterations": 2 * shared["iterations"]}]


def parts(scale: Scale) -> list[Part]:
    def study(chosen: Scale) -> Settings:
        seeds = tuple(range(3 if chosen == "paper" else 2))
        return describe_study("hyperset-masked", chosen, _base(chosen), models(chosen), seeds=seeds)

    unprinted = "how many runs the tables rest on is not printed"
    notes = {"all": [BETAS, unprinted], "cpu": [SMALLER, FEWER], "smoke": [FEWER]}
    more: Settings = {"subject": "hyper_set", "fields": ("d", "ff_ratio", "iterations")}
    return [make_part("masked images", scale, at_each_scale(study), notes, **more)]


def _row(network: Network) -> int:
    """Which of the printed rows a network stands for."""
    return 0 if network.shape == "recurrent_transformer" else 1 if network.model["ff_ratio"] == 1 else 2


def restore_images(table: str) -> Analysis:
    """``masked[row][metric][share]``: one value for each run; and the printed numbers of one table beside them."""

    def analyse(given: AnalysisInput) -> dict[str, Any]:
        from isthmus.analysis.reconstruction import of_run

        (item,) = given.parts
        images = ROWS[given.scale]
        runs = {
            _row(network): [of_run(folder, given.data_dir, images) for folder in folders]
            for network, folders in item.runs()
        }
        found = {
            str(row): {
                metric: {
                    f"{line['masked']:g}": [_at(run, line["masked"], metric) for run in each]
                    for line in each[0]["table"]
                }
                for metric in METRICS
                if metric in each[0]["table"][0]
            }
            for row, each in runs.items()
        }
        missing = next(iter(runs.values()))[0]["missing"]
        return {"masked": found, "restored": images, "quantities": _quantities(table, found), "differences": missing}

    return analyse


def _at(run: Mapping[str, Any], share: float, metric: str) -> float:
    return float(next(line[metric] for line in run["table"] if line["masked"] == share))


def _quantities(table: str, found: Mapping[str, Any]) -> list[Quantity]:
    share = f"{SHARES[table]:g}"
    rows = list(load_paper("hyperset").tables[table].rows.items())
    return [
        Quantity(
            f"{identity}.{metric}", f"{metric.upper()}, {printed['model']} M = {printed['ff_ratio']}d",
            printed[metric], statistics.fmean(found[str(row)][metric][share]),
        )
        for row, (identity, printed) in enumerate(rows)
        for metric in METRICS
        if metric in found.get(str(row), {})
    ]  # fmt: skip


Judge = Callable[[str, Sample, Sample], Finding]


def _judge_row(findings: Findings, table: str, row: int, judge: Judge) -> Judgement:
    """A row against the Transformer's, metric by metric, as measured and as printed."""
    masked, share = findings.analysis["masked"], f"{SHARES[table]:g}"
    if str(row) not in masked or "0" not in masked:
        return conclude({"measured": not_addressed("one of the two models has no finished run")})
    measured = {
        metric: judge(metric, Sample.of(values[share]), Sample.of(masked["0"][metric][share]))
        for metric, values in masked[str(row)].items()
    }
    rows = list(load_paper("hyperset").tables[table].rows.values())
    printed = {
        metric: judge(metric, Sample(rows[row][metric], None, 1), Sample(rows[0][metric], None, 1))
        for metric in METRICS
    }
    name = f"{SHARES[table]:.0%} masked"
    return conclude({name: combine(measured)}, {load_paper("hyperset").tables[table].printed_as: combine(printed)})


def _trails(metric: str, ours: Sample, theirs: Sample) -> Finding:
    gap = compare(ours, theirs)
    ahead = AHEAD[gap.decision]
    return (REVERSED[ahead] if METRICS[metric] > 0 else ahead), {"said": gap.text(), "difference": gap.difference}


def _matches(metric: str, ours: Sample, theirs: Sample) -> Finding:
    gap = compare(ours, theirs)
    if metric not in CLOSE:
        return not_addressed(gap.text())
    return within(CLOSE[metric]).judge(gap), {"said": gap.text(), "difference": gap.difference}


def c8(table: str) -> ClaimTest:
    @claim("C8")
    def judge(findings: Findings) -> Judgement:
        """With the Transformer's iterations and M = d, Hyper-SET is worse in every metric that can be taken here: yes
        if decided worse in all, no if decided better in one."""
        return _judge_row(findings, table, 1, _trails)

    return judge


@claim("C9")
def c9(findings: Findings) -> Judgement:
    """With twice the iterations and M = 8d, Hyper-SET at 40 % masked tokens is within 0.1 dB and 0.005 of SSIM of the
    Transformer: yes if both intervals lie within that, no if one lies outside. Other metrics are printed beside it."""
    return _judge_row(findings, "T2", 2, _matches)


def quality(findings: Findings) -> Figure:
    """Every metric over the masked part, a line for each model; the tokenizer alone is where nothing is masked."""
    found = findings.analysis["masked"]
    names = list(next(iter(found.values())))
    figure, (axes,) = page(1, len(names), width=4.4)
    titles = ("Transformer", "Hyper-SET, M = d", "Hyper-SET, M = 8d")
    for axis, metric in zip(axes, names, strict=True):
        for row, values in found.items():
            points = [(float(share), statistics.fmean(runs)) for share, runs in values[metric].items()]
            axis.plot(*zip(*points, strict=True), label=titles[int(row)], **style(int(row)))
        finish(axis, findings.parts[0].part.title, "part of the tokens that is masked", metric.upper())
    return figure


def pictures(findings: Findings) -> Figure:
    """Figures 7 and 13: original, tokenizer alone, masked and filled in, with a block for each model."""
    import base64
    import io

    from PIL import Image

    from isthmus.analysis.reconstruction import of_run

    (item,) = findings.parts
    figure, rows = page(len(item.networks), 1, width=8, height=4.2)
    for (network, folders), (axis,) in zip(item.runs(), rows, strict=True):
        sheet = of_run(folders[0], rows=findings.analysis["restored"])["sheet"]
        axis.imshow(Image.open(io.BytesIO(base64.b64decode(sheet))).convert("RGB"), interpolation="nearest")
        finish(axis, f"{network.shape}, iterations {network.model['iterations']}", "", "")
        axis.axis("off")
    return figure
