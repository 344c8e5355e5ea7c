"""Masked images: the studies, measurements, claims and pictures of Tables 2 and 10 to 12 and Figures 7 and 13.

A tokenizer is trained first where the paper takes a public one. All tables are of the same runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from isthmus.analysis.pictures import finish, style
from isthmus.core.config import StudyConfig, run_config, study_config
from isthmus.papers import load_paper
from isthmus.papers.engine.claims import Claims, Finding, Rule, combine, conclude, judge, not_addressed
from isthmus.papers.engine.exhibit import Analysis, AnalysisInput, ClaimTest, Findings, Judgement, Part, Quantity, Scale
from isthmus.papers.engine.figures import page
from isthmus.papers.engine.parts import Model, Settings, describe_study, make_part
from isthmus.papers.hyperset import protocols, recipes
from isthmus.recipes import published_network
from isthmus.recipes.recurrent import CIFAR10_TOKENIZER, cifar10_tokenizer, fill_tokens
from isthmus.studies.statistics import Interval, Sample, compare, compare_runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARES = {"T2": 0.4, "T10": 0.1, "T11": 0.2, "T12": 0.3}
METRICS = {"psnr": 1, "ssim": 1, "ms_ssim": 1, "lpips": -1, "fid": -1}
"""1 where more is better, −1 where less is."""
CLOSE = {"psnr": 0.1, "ssim": 0.005}
"""Two models match within these bounds, which are ours. The printed differences are 0.002 dB and 0.000."""
SMOKE_TOKENIZER = "032b081fdd2aaecc"
"""The run of ``tokenizers("smoke")``."""
SMALLER = (
    "CIFAR-10 at 32 pixels and 64 tokens of a tokenizer of ours instead of ImageNet-100 at 256 pixels and 256 tokens "
    "of the public one; d 64 with 3 and 6 iterations instead of 768 with 12 and 24"
)
FEWER = "256 test images are restored instead of 5,000"
ROWS: dict[Scale, int] = {"paper": 5_000, "cpu": 256, "smoke": 256}
"""Test images that are restored."""

claim = Claims("hyperset")


def tokenizers(scale: Scale) -> list[StudyConfig]:
    """The studies that train the tokenizer first; at the paper's scale it is a file."""
    if scale == "paper":
        return []
    base = cifar10_tokenizer()
    if scale == "smoke":
        model = {"name": "vq_tokenizer", "codes": 16, "stride": 2, "d_code": 4, "width": 8, "blocks": 0}
        train = {"epochs": 1, "batch_size": 64, "learning_rate": 2e-3}
        settings = {"source": {"name": "digits"}, "task": {"name": "tokenization"}, "model": model, "train": train}
        base = run_config({**settings, "threads": 1})
    return [
        study_config({"name": f"hyperset-tokenizer-{scale}", "base": base, "candidates": [base.model.model_dump()]})
    ]


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
        tried = models(chosen)
        if chosen == "paper":
            return describe_study("hyperset-masked", chosen, recipes.paper_images("hyper_set"), tried)
        tokens = {"cpu": (CIFAR10_TOKENIZER, "cifar10"), "smoke": (SMOKE_TOKENIZER, "digits")}[chosen]
        return describe_study("hyperset-masked", chosen, fill_tokens(tried[0], *tokens, epochs=1), tried, 2)

    unprinted = "how many runs the tables rest on is not printed"
    notes = {"all": [unprinted], "cpu": [SMALLER, FEWER], "smoke": [FEWER]}
    more: Settings = {"subject": "hyper_set", "fields": ("d", "ff_ratio", "iterations"), "protocol": protocols.MASKED}
    return [make_part("masked images", scale, study, notes, **more)]


def restore_images(table: str) -> Analysis:
    """``masked[row][metric][share]``: one value for each run; and the printed numbers of one table beside them."""

    def analyse(given: AnalysisInput) -> dict[str, Any]:
        from isthmus.analysis.reconstruction import of_run

        (item,) = given.parts
        found: dict[str, dict[str, dict[str, list[float]]]] = {}
        for network, folders in item.runs():
            ours = network.shape == "hyper_set"
            row = str(0 if not ours else 1 if network.model["ff_ratio"] == 1 else 2)  # the printed row it stands for
            runs = [of_run(folder, given.data_dir, ROWS[given.scale]) for folder in folders]
            missing, lines = runs[0]["missing"], list(zip(*(run["table"] for run in runs), strict=True))
            found[row] = {
                metric: {f"{each[0]['masked']:g}": [float(line[metric]) for line in each] for each in lines}
                for metric in METRICS
                if metric in lines[0][0]
            }
        quantities = [
            Quantity(
                f"{identity}.{metric}", f"{metric.upper()}, {printed['model']} M = {printed['ff_ratio']}d",
                printed[metric], statistics.fmean(found[str(row)][metric][f"{SHARES[table]:g}"]), decimals=3,
            )
            for row, (identity, printed) in enumerate(load_paper("hyperset").tables[table].rows.items())
            for metric in METRICS
            if metric in found.get(str(row), {})
        ]  # fmt: skip
        return {"masked": found, "restored": ROWS[given.scale], "quantities": quantities, "differences": missing}

    return analyse


def _judge_row(findings: Findings, table: str, row: int, test: Callable[[str, Interval], Finding]) -> Judgement:
    """A row against the Transformer's, metric by metric, as measured and as printed."""
    masked, share, published = findings.analysis["masked"], f"{SHARES[table]:g}", load_paper("hyperset").tables[table]
    if str(row) not in masked or "0" not in masked:
        return conclude({"measured": not_addressed("one of the two models has no finished run")})
    measured = {
        metric: test(metric, compare_runs(values[share], masked["0"][metric][share]))
        for metric, values in masked[str(row)].items()
    }
    theirs, *ours = published.rows.values()
    printed = {
        metric: test(metric, compare(Sample(ours[row - 1][metric], None, 1), Sample(theirs[metric], None, 1)))
        for metric in METRICS
    }
    return conclude({f"{SHARES[table]:.0%} masked": combine(measured)}, {published.printed_as: combine(printed)})


def c8(table: str) -> ClaimTest:
    @claim("C8")
    def trails(findings: Findings) -> Judgement:
        """With the Transformer's iterations and M = d, Hyper-SET is worse in every metric that can be taken here: yes
        if decided worse in all, no if decided better in one."""

        def is_worse(metric: str, gap: Interval) -> Finding:
            return judge(gap, Rule.trails() if METRICS[metric] > 0 else Rule.leads())

        return _judge_row(findings, table, 1, is_worse)

    return trails


@claim("C9")
def c9(findings: Findings) -> Judgement:
    """With twice the iterations and M = 8d, Hyper-SET at 40 % masked tokens is within 0.1 dB and 0.005 of SSIM of the
    Transformer: yes if both intervals lie within that, no if one lies outside. Other metrics are printed beside it."""

    def matches(metric: str, gap: Interval) -> Finding:
        if metric not in CLOSE:
            return not_addressed(gap.text())
        return judge(gap, Rule.within(CLOSE[metric]))

    return _judge_row(findings, "T2", 2, matches)


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
