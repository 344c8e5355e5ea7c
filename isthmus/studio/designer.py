"""Design a network: its fields as sliders, drawn to scale, with what it costs, and trained at the press of a button."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from isthmus.core.config import override, run_config
from isthmus.core.errors import UserError, nearest
from isthmus.core.files import digest, make_folder, write_json
from isthmus.core.titles import meaning
from isthmus.core.units import amount
from isthmus.reports.drawing import draw_network, widest_layer
from isthmus.reports.text import architecture_title, duration, magnitude
from isthmus.studio.controls import choose, control, list_fields, number, read_whole, type_value
from isthmus.studio.designs import Design, Price, fit_to_budget, price, read_design, sketch
from isthmus.studio.index import Index
from isthmus.studio.layout import Part, View, command
from isthmus.studio.problems import is_usable, list_problems, list_spaces, signature_of

if TYPE_CHECKING:
    from isthmus.core.protocols import Signature

_TRAINING = {"epochs": "20", "batch_size": "128", "learning_rate": "0.001"}


class Designer(View):
    """The page: a form of fields, and beside it the network and its costs."""

    title, place, is_live, beside = "Design a network", "/design", False, "form"

    def __init__(self, index: Index, given: Mapping[str, str]) -> None:
        self.given = dict(given)
        self.problems = list_problems(index)
        chosen = [problem for problem in self.problems if problem.key == given.get("problem")]
        if given.get("problem") and not chosen:
            raise UserError("this problem is not there any more; choose another")
        self.problem = chosen[0] if chosen else next(filter(is_usable, self.problems))

    def parts(self) -> dict[str, Part]:
        try:
            signature = signature_of(self.problem)
            names = list(list_spaces(signature))
            if not names:
                raise UserError("no architecture declares networks for this problem; choose another one")
        except UserError as error:
            chosen = f"<form method='get' action='/design'><div class='fields'>{self._choose_problem()}</div></form>"
            return {
                "form": f"{chosen}<p class='error' role='alert'>{escape(str(error))}</p>",
                "network": "",
                "same": "",
            }
        name = self.given.get("model") or names[0]
        if name not in names:
            raise UserError(f"{name[:60]!r} does not fit this problem; {nearest(name, names)}")
        trouble = ""
        try:
            design = read_design(signature, name, self.given)
            if self.given.get("fit"):
                design = self._fit(signature, name, design)
        except UserError as error:
            trouble, design = str(error), read_design(signature, name, {})
        form = self._form(signature, names, design)
        if trouble:
            return {"network": f"<p class='error' role='alert'>{escape(trouble)}</p>", "form": form, "same": ""}
        return {"network": self._compare(signature, design), "form": form, "same": self._same(design)}

    def _fit(self, signature: Signature, name: str, design: Design) -> Design:
        budget = amount(self.given["fit"])
        if not isinstance(budget, int) or budget < 1:
            raise UserError(f"{self.given['fit'][:60]!r} is not a number of parameters; give one such as 50k")
        fitted = fit_to_budget(signature, design, budget)
        return read_design(signature, name, {key: type_value(value) for key, value in fitted.items()})

    def _form(self, signature: Signature, names: Sequence[str], design: Design) -> str:
        models = {name: f"{architecture_title(name)} – {meaning('models', name)}" for name in names}
        chosen = self._choose_problem()
        chosen += choose("model", "Architecture", models, design.model.name, "data-reload")
        fields = "".join(control(design, name, schema) for name, schema in list_fields(design.model).items())
        training = "".join(
            number(name, name.replace("_", " ").capitalize(), self.given.get(name, default))
            for name, default in _TRAINING.items()
        )
        other = self.given.get("other", "")
        hidden = f"<input type='hidden' name='other' value='{escape(other)}'>" if other else ""
        return (
            f"<form class='design' method='get' action='/design' data-follow>{hidden}"
            f"<div class='fields'>{chosen}</div>"
            f"<fieldset><legend>Network</legend><div class='sliders'>{fields}</div><div class='fields'>"
            f"{number('fit', 'At most so many parameters', self.given.get('fit', ''), kind='text', form='fit')}"
            "<button class='act' form='fit'>Fit to this budget</button></div></fieldset>"
            f"<fieldset><legend>Training</legend><div class='fields'>{training}</div></fieldset>"
            "<p><button class='act unscripted'>Update</button> "
            "<button class='act strong' formmethod='post' formaction='/design/train'>Train this</button></p></form>"
            f"<form id='fit' method='get' action='/design' data-with='form.design'>{self._carry(design)}</form>"
        )

    def _choose_problem(self) -> str:
        problems = {problem.key: problem.title for problem in self.problems}
        return choose("problem", "Problem", problems, self.problem.key, "data-reload")

    def _carry(self, design: Design) -> str:
        """The fields of the design in another form, for browsers without scripts."""
        return "".join(
            f"<input type='hidden' name='{escape(name)}' value='{escape(value)}'>"
            for name, value in self._query(design).items()
        )

    def _query(self, design: Design) -> dict[str, str]:
        known = {"problem": self.problem.key, "model": design.model.name}
        known |= {name: type_value(value) for name, value in design.given.items() if name != "name"}
        known |= {name: self.given[name] for name in (*_TRAINING, "other") if self.given.get(name)}
        return known

    def _compare(self, signature: Signature, design: Design) -> str:
        """The design, and the one that was kept beside it, on one scale."""
        designs = {"This design": design}
        trouble = ""
        if other := self.given.get("other"):
            fields = dict(parse_qsl(other[:10_000], keep_blank_values=True, max_num_fields=200))
            try:
                designs["Kept design"] = read_design(signature, fields.get("model", ""), fields)
            except UserError as error:
                trouble = f"<p class='error'>The kept design does not fit this problem: {escape(str(error))}</p>"
        batch = read_whole(self.given.get("batch_size"), 128)
        sketches = [sketch(each.model) for each in designs.values()]
        widest = max(map(widest_layer, sketches))
        prices = [price(signature, each, batch) for each in designs.values()]
        shown = "".join(
            _show(title, each, drawn, cost, widest, place)
            for place, (title, each, drawn, cost) in enumerate(
                zip(designs, designs.values(), sketches, prices, strict=True)
            )
        )
        mine = self._query(design)
        mine.pop("other", None)
        keep = urlencode(mine | {"other": urlencode(mine)})
        back = f"<a class='act' href='/design?{escape(other)}'>Go back to the kept design</a>" if other else ""
        note = (
            "Step time: predicted for one core of this machine, from two measured networks of the same architecture. "
            "Memory: weights, gradients, optimiser, best weights, and what a batch keeps for the gradient."
        )
        return (
            f"{trouble}<div class='pair designs'>{shown}</div><p><a class='act' href='/design?{escape(keep)}'>"
            f"Keep this design beside the next ones</a> {back}</p><p class='note'>{note}</p>"
        )

    def _same(self, design: Design) -> str:
        settings = design.model.model_dump(mode="json", exclude_defaults=True)
        words = [f"{name}={type_value(value)}" for name, value in settings.items() if name != "name"]
        typed = shlex.join(["isthmus", "describe", design.model.name, *words])
        return f"<p class='note'>The same costs in a terminal:</p>{command(typed)}"


def _show(title: str, design: Design, drawn: Mapping[str, Any], cost: Price, widest: int, place: int) -> str:
    picture = draw_network(drawn, f"var(--shape-{place})", widest) if drawn else "<p>It has no residual stream.</p>"
    shown = {
        "Parameters": f"{cost.params:,}",
        "Multiply-adds per row": f"{cost.macs:,}",
        "Memory to train": magnitude(cost.memory) + "B",
        "Step": duration(cost.step) if cost.step >= 0.1 else f"{1000 * cost.step:.3g} ms",
    }
    rows = "".join(
        f"<div><dt>{name}</dt><dd><b data-number='{name.split()[0].lower()}'>{escape(text)}</b></dd></div>"
        for name, text in shown.items()
    )
    return (
        f"<div><h2>{title}</h2><p class='quiet'>{escape(design.title)}</p>"
        f"<figure>{picture}</figure><dl class='figures'>{rows}</dl></div>"
    )


@dataclass(frozen=True)
class Training:
    """A design that is to be trained."""

    words: tuple[str, ...]
    title: str
    problem: str
    run: str


def plan_training(index: Index, given: Mapping[str, str]) -> Training:
    """Write the config of a run of the design, for `isthmus train`."""
    from isthmus.training.prepare import prepare

    page = Designer(index, given)
    signature = signature_of(page.problem)
    design = (
        read_design(signature, given.get("model", ""), given) if given.get("model") in list_spaces(signature) else None
    )
    if design is None:
        raise UserError("choose an architecture")
    texts = {name: given.get(name) or default for name, default in _TRAINING.items()}
    train = override({}, [f"{name}={value}" for name, value in texts.items()])
    settings = {**page.problem.config, "model": design.given, "train": train, "threads": 1}
    config = run_config(settings)
    run = prepare(config)
    path = make_folder(index.home / "studio" / "configs") / f"{digest(settings, 16)}.json"
    write_json(path, json.loads(config.model_dump_json()))
    return Training(("train", str(path)), f"training: {design.title}", page.problem.key, run.id)
