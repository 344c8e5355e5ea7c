"""Measurements beyond test accuracy: components, settings, costs, spectra, similarities and training curves."""

from __future__ import annotations

import statistics
from typing import Any

from isthmus.analysis import shape_theory as theory
from isthmus.papers import load_paper
from isthmus.papers.engine.exhibit import AnalysisInput, Quantity
from isthmus.papers.engine.networks import shape_of
from isthmus.papers.widesparse.studies import FIGURE_4, ratio, tokens_of, with_random

SHAPES = {"input_shape": (3, 32, 32), "output_shape": (10,), "patch": 8}
BUILT: dict[str, list[dict[str, Any]]] = {
    "sw_mlp": [{"name": "sw_mlp", "m": 64, "p": 0.5, "depth": 1, "S": 16, "pool": True, **SHAPES}],
    "mlp_mixer_and_rp": with_random([{"name": "mlp_mixer", "C": 8, "depth": 1, "gamma": 2, **SHAPES}]),
    "s_mixer_and_rp": with_random([{"name": "s_mixer", "C": 8, "depth": 1, **SHAPES}]),
    "shallow_kronecker": [{"name": "kronecker_mlp", "d_in": 784, "d_out": 10}],
    "shallow_monarch": [{"name": "monarch_mlp", "d_in": 784, "d_out": 10}],
}


def components(given: AnalysisInput) -> dict[str, Any]:
    """Table S.1, from models built here."""
    from isthmus.core.registry import create_model

    quantities = []
    for identity, row in load_paper("widesparse").tables["TS1"].rows.items():
        found = [_components(create_model(**model)) for model in BUILT[row["model"]]]
        for column, here in found[0].items():
            same = all(other[column] == here for other in found)
            printed = row[column] if row[column] is None else bool(row[column])
            word = "" if printed is None else "agrees" if same and here == printed else "differs"
            note = "the table leaves it to the experiment: block=single or block=mlp" if printed is None else ""
            quantities.append(Quantity(f"{identity} {column}", f"{row['model']}: {column}", printed, here, word, note))
    return {
        "quantities": quantities,
        "differences": ["SW-MLP has no pooling in A.2.5 and a tick in the table: here it is the field `pool`, ticked"],
    }


def _components(model: Any) -> dict[str, bool]:
    """A model has skips if the input of each branch plus its update is the stream after it."""
    import torch

    from isthmus.analysis.steps import steps_of
    from isthmus.layers.patches import Head, PatchEmbedding

    parts, steps = list(model.modules()), steps_of(model)
    x = torch.randn(2, *model.input_shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        taken = list(model.steps(x)) if hasattr(model, "steps") else []
    adds = [torch.allclose(step.read + step.update, step.stream, atol=1e-5) for step in taken]
    return {
        "per_patch_fc": any(isinstance(part, PatchEmbedding) for part in parts),
        "skip": bool(adds) and all(adds),
        "layer_norm": any("Norm" in type(part).__name__ for part in parts),
        "hidden_layer_in_block": any(len(step.layers) > 1 for step in steps),
        "global_average_pool": any(isinstance(part, Head) for part in parts),
    }


def settings(given: AnalysisInput) -> dict[str, Any]:
    """Table S.2 beside the configs of Figure 6 at the paper's scale."""
    studies = {part.source: part.study for part in ratio("paper")}
    quantities = []
    for identity, row in load_paper("widesparse").tables["TS2"].rows.items():
        study = studies[row["dataset"]]
        train, models = study.base.train, [candidate.model_dump() for candidate in study.candidates]
        task = study.base.task.model_dump()
        connections = [theory.mixer_connections(m["S"], m["C"], m.get("gamma", 1.0)) for m in models]
        here = {
            "L": models[0]["depth"],
            "omega": round(statistics.median(connections)),
            "gamma": models[0].get("gamma"),
            "optimizer": {"adamw": "AdamW", "sgd": "SGD"}[train.optimizer],
            "init_lr": train.learning_rate,
            "batch_size": train.batch_size,
            "epochs": train.epochs,
            "hard_augmentation": int(task["augment"]["policy"] != "none"),
        }
        for column, value in here.items():
            close = value == row[column] or (column == "omega" and abs(value / row[column] - 1) < 0.01)
            note = "the nearest whole C and S miss it by less than 1 %" if column == "omega" else ""
            name, word = f"{row['dataset']}: {column}", "agrees" if close else "differs"
            quantities.append(Quantity(f"{identity} {column}", name, row[column], value, word, note))
    return {"quantities": quantities, "differences": ["γ is left out of the table where the models are S-Mixers"]}


def shape_curves(given: AnalysisInput) -> dict[str, Any]:
    """Figure 3: m and p over C at Ω = 10^8 and γ = 1."""
    omega, gamma = 1e8, 1.0
    side = theory.widest_side(omega, gamma)
    grid = [side * 2 ** (k / 512) for k in range(-4096, 4097)]
    curve = [(C, theory.tokens(C, omega, gamma)) for C in grid]
    widest = max(curve, key=lambda pair: pair[0] * pair[1])
    sparsest = min(curve, key=lambda pair: theory.matched_density(pair[1], pair[0]))
    least, most = theory.mixer_widths(omega, gamma)
    peak = {
        "C": widest[0], "m": widest[0] * widest[1], "C_of_least_p": sparsest[0],
        "p": theory.matched_density(sparsest[1], sparsest[0]), "C_theory": side, "m_theory": most,
    }  # fmt: skip
    return {
        "peak": peak,
        "curve": [
            {"C": C, "S": S, "m": S * C, "p": theory.matched_density(S, C)} for C, S in curve[::64] if 1 <= C <= omega
        ],
        "quantities": [
            Quantity("F3 C", "C* = S*, where m is largest", None, widest[0], "", f"eq. (15): {side:.4g}"),
            Quantity("F3 m", "largest m", None, peak["m"], "", f"eq. (15): {most:,.0f}"),
            Quantity("F3 least", "least m, at S = 1 or C = 1", None, least, "", "eq. (S.45)"),
            Quantity("F3 p", "smallest p", None, peak["p"], "", "at the same C"),
        ],
        "differences": ["the curves are computed, not trained; the paper prints none of their values"],
    }


def widths(given: AnalysisInput) -> dict[str, Any]:
    """Figure 4, right: at the paper's own Ω except at the smoke scale, because nothing is trained for it."""
    from isthmus.analysis.singular_values import of_widths

    omega, trials = (2**19, 50) if given.scale != "smoke" else (2**11, 3)
    pairs = [(S, C) for C, S in FIGURE_4.items()]
    if given.scale == "smoke":
        pairs = [(tokens_of(C, omega, 2), C) for C in (2, 4, 10)]
    found = of_widths(pairs, omega, 2.0, trials)
    quantities = [
        Quantity(
            f"F4 γm {line['width']}", f"largest singular value of SW-MLP, C {line['C']}, S {line['S']}", None,
            line["sw_mlp"]["mean"], "",
            f"± {line['sw_mlp']['std']:.3f}; eq. (17) corrected {line['edge']:.3f}, as printed "
            f"{line['printed_edge']:.3f}; Mixer {line['mixer']['mean']:.3f}",
        )
        for line in found["widths"]
    ]  # fmt: skip
    edge = load_paper("widesparse").figures["F4"].stated[3]["value"]
    agrees = "agrees" if abs(found["dense_edge"] - edge) < 5e-5 else "differs"
    quantities.append(Quantity("F4 edge", "1 + √γ at γ = 2", edge, found["dense_edge"], agrees))
    return {"singular_values": found, "quantities": quantities}


def exponents(given: AnalysisInput) -> dict[str, Any]:
    """Figure S.1, centre and right."""
    from isthmus.analysis.singular_values import of_exponents

    small = given.scale == "smoke"
    found = of_exponents(
        (0.0, 0.5, 1.0) if small else (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5), 100 if small else 1000, 3 if small else 50
    )
    quantities = [
        Quantity(f"FS1 a {line['a']:g}", f"largest singular value, m {line['m']}, p {line['p']:.3g}", None,
                 line["largest"]["mean"], "", f"± {line['largest']['std']:.3f}")
        for line in found["exponents"]
    ]  # fmt: skip
    return {"scaling": found, "quantities": quantities}


def similarities(given: AnalysisInput) -> dict[str, Any]:
    """Figure 2(a) to (c): CKA of every Mixer with the sparse MLPs of its width, seed by seed. (d): the validation error
    of the shallow nets during training, in percent."""
    from isthmus.analysis.cka import of_run

    item = next(part for part in given.parts if part.of("mlp_mixer"))
    runs = {
        network.id: dict(zip(candidate.seeds, folders, strict=True))
        for (network, folders), candidate in zip(item.runs(), item.candidates, strict=True)
    }
    curves: dict[str, list[dict[str, Any]]] = {}
    for mixer in item.of("mlp_mixer"):
        lines = []
        for sparse in item.of("sw_mlp"):
            if sparse.model["m"] == mixer.model["S"] * mixer.model["C"]:
                seeds = [seed for seed in runs[mixer.id] if seed in runs[sparse.id]]
                found = [of_run(runs[mixer.id][seed], given.data_dir, runs[sparse.id][seed]) for seed in seeds]
                values = [entry["mean_diagonal"] for entry in found]
                line = {"p": sparse.model["p"], "row": sparse.id, "values": values, "mean": statistics.fmean(values)}
                lines.append(line | {"matrix": found[0]["cka"]})
        curves[f"S = C = {mixer.model['S']}"] = sorted(lines, key=lambda line: -float(line["p"]))
    errors = {
        network.shape: [[(epoch, 100 - 100 * value) for epoch, value in run] for run in runs_of]
        for part in given.parts
        if part is not item
        for network, runs_of in part.curves("accuracy")
    }
    return {
        "cka": curves,
        "errors": errors,
        "quantities": [
            Quantity(f"F2a {name}, 1/p {1 / line['p']:g}", "mean CKA of corresponding blocks", None, line["mean"])
            for name, lines in curves.items()
            for line in lines
        ],
    }


def curves(given: AnalysisInput) -> dict[str, Any]:
    """Figures S.6 to S.8: the validation loss of every run, and how far it rises above its lowest value."""
    lines = [
        {
            "part": item.part.title, "row": network.id, "C": network.model["C"],
            "random": shape_of(network.model).startswith("rp_"), "losses": losses,
            "rises": [loss[-1][1] - min(value for _, value in loss) for loss in losses],
        }
        for item in given.parts
        for network, losses in item.curves("loss")
    ]  # fmt: skip
    quantities = []
    for line in lines:
        what = f"last − lowest validation loss, C {line['C']}, {'random' if line['random'] else 'normal'}"
        quantities.append(Quantity(f"{line['row']} rise", what, None, statistics.fmean(line["rises"])))
    return {"curves": lines, "quantities": quantities}


def pictures(given: AnalysisInput) -> dict[str, Any]:
    """Figure S.9: one weight of each kind with S = C = 8 and p = 1/8, as zeros and ones."""
    from isthmus.analysis.effective_weights import corner
    from isthmus.analysis.steps import steps_of
    from isthmus.core.registry import create_model

    shapes: dict[str, Any] = {"input_shape": (3, 32, 32), "output_shape": (10,), "patch": 4, "depth": 1}
    mixer = {"name": "s_mixer", "S": 8, "C": 8, **shapes}
    models = {
        "M ⊙ A": ({"name": "sw_mlp", "m": 64, "p": 1 / 8, "mask_seed": 0, "S": 8, **shapes}, -1),
        "I ⊗ W": (mixer, 1),
        "J2 (I ⊗ W) J1": ({**mixer, "permutation": "random", "permutation_seed": 0}, 1),
    }
    found = {}
    for name, (model, place) in models.items():
        (layer,) = steps_of(create_model(**model))[place].layers.values()
        found[name] = (corner(layer) > 0).int().tolist()
    quantities = []
    for name, picture in found.items():
        note = "p = 0.125 on average" if name == "M ⊙ A" else "1/S = 0.125 exactly"
        share = sum(map(sum, picture)) / 64**2
        quantities.append(Quantity(f"FS9 {name}", "share of entries that are connections", None, share, "", note))
    return {"pictures": found, "quantities": quantities, "differences": ["a permutation and a mask drawn here"]}


def costs(given: AnalysisInput) -> dict[str, Any]:
    """Table S.3: counted for both settings, and timed here for CIFAR."""
    from isthmus.papers.widesparse.table_s3 import measure_table

    threads, steps = (1, 1) if given.scale == "smoke" else (2, 20)
    lines = measure_table(threads, steps)
    quantities = []
    for line in lines:
        for what in ("bytes", "FLOPs", "s/epoch"):
            printed, rule = line[f"{what} published"], line.get(f"{what} by rule")
            if printed is None:
                continue
            word = "" if rule is None else "agrees" if abs(rule / printed - 1) < 0.01 else "differs"
            note = "" if rule is None else f"by the table's own rule {rule:,}"
            note += f"; {line['slip']}" if word == "differs" and line["slip"] else ""
            name = f"{line['model']}, {line['setting']}: {what}"
            quantities.append(Quantity(f"TS3 {name}", name, printed, line[f"{what} here"], word, note))
    by_name = {(line["model"], line["setting"]): line for line in lines}
    sparse, mixer = (by_name[model, "imagenet"] for model in ("sw_mlp", "rp_mixer"))
    speeds = []
    for word in ("here", "published"):
        slow, random, normal = (
            by_name[model, "cifar"][f"s/epoch {word}"] for model in ("sw_mlp", "rp_mixer", "mlp_mixer")
        )
        speeds.append(
            f"{word}: SW-MLP takes {slow / random:.1f} times as long as RP-Mixer, and RP-Mixer {random / normal:.3f} "
            "times as long as MLP-Mixer"
        )
    return {
        "costs": lines,
        "ratios": {
            name: {
                what: sparse[f"{column} {where}"] / mixer[f"{column} {where}"]
                for what, column in (("memory", "bytes"), ("FLOPs", "FLOPs"))
            }
            for name, where in (("measured", "by rule"), ("published", "published"), ("here", "here"))
        },
        "quantities": quantities,
        "differences": [
            "“agrees” compares the table's own rule in the settings that fit its entries (S = C = 64 for CIFAR, γ = 4 "
            "for ImageNet) with what is printed; “measured” is what our models store, compute and take",
            "SW-MLP here stores its connections and where they are, at the Mixer's density; the table counts every "
            "entry of weight and mask",
            f"seconds per epoch are {steps} training step{'s' * (steps > 1)} on {threads} CPU "
            f"thread{'s' * (threads > 1)}, taken for 50,000 images; the paper's are on a V100",
            "the ImageNet setting is counted and not run: its SW-MLP would take 23.2 TB",
        ],
        "summary": ["; ".join(speeds)],
    }
