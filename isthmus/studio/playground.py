"""Try a run: a panel for each task, with a form and what the network makes of it.

A task of another package brings a panel of its own: a subclass of `Panel`, named like the task under the entry points
``isthmus.panels``.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib.metadata import entry_points
from pathlib import Path
from urllib.parse import quote

from isthmus.core.errors import UserError
from isthmus.core.titles import model_title
from isthmus.reports.text import metric_noun
from isthmus.studio.contents import Studio
from isthmus.studio.image_panels import ClassPanel, PrototypePanel, RestorePanel, TokenizerPanel, ValuePanel
from isthmus.studio.layout import Part, View, command, link
from isthmus.studio.panel import Panel, load_run
from isthmus.studio.row_panel import RowPanel
from isthmus.studio.tables import run_title
from isthmus.studio.token_panels import MaskedPanel, SudokuPanel


def find_panel(folder: Path, path: str) -> Panel:
    """The panel of a run's task."""
    trained = load_run(folder)
    task = trained.task.config.name
    for entry in entry_points(group="isthmus.panels"):
        if entry.name == task:
            try:
                found: Panel = entry.load()(folder, path)
            except Exception as error:  # another package may raise anything
                raise UserError(f"the panel of task {task} cannot be loaded from {entry.value}: {error}") from error
            return found
    is_image = len(trained.task.row_shape) == 3 and not trained.table
    panels: dict[str, type[Panel]] = {
        "classification": ClassPanel if is_image else RowPanel,
        "regression": ValuePanel if is_image else RowPanel,
        "generative_classification": PrototypePanel,
        "tokenization": TokenizerPanel,
        "denoise": RestorePanel,
        "super_resolution": RestorePanel,
        "masked_tokens": MaskedPanel,
        "sudoku": SudokuPanel,
    }
    if task not in panels:
        raise UserError(f"there is no panel for task {task}; `isthmus predict {folder.name} FILES` tries this run")
    return panels[task](folder, path)


class Try(View):
    """The page: the form of the task's panel, and the answer, which follows it."""

    is_live, beside = False, "form"

    def __init__(self, studio: Studio, identity: str, given: Mapping[str, str]) -> None:
        self.run, self.given = studio.run(identity), given
        record = self.run.record
        if record is None or record.status != "finished":
            raise UserError("only a finished run can be tried")
        self.title = f"Try run {identity}"

    def parts(self) -> dict[str, Part]:
        path = f"/runs/{quote(self.run.id)}/try"
        panel = find_panel(self.run.folder, path)
        record = self.run.record
        assert record is not None
        quality = record.quality()
        noun = metric_noun(record.objective)
        known = [link(f"/problems/{self.run.problem}", run_title(self.run))]
        known.append(link(f"/runs/{quote(self.run.id)}", model_title(self.run.config["model"])))
        known += [f"test {escape(noun)} {quality:.4g}"] if quality is not None else []
        head = f"<p>{', '.join(known)}</p>"
        form = (
            f"<form class='panel' method='get' action='{path}' data-follow>{panel.form(self.given)}"
            "<p class='unscripted'><button class='act'>Update</button></p></form>"
        )
        try:
            answer = panel.answer(self.given)
        except UserError as error:
            answer = {"answer": f"<p class='error' role='alert'>{escape(str(error))}</p>"}
        same = f"<p class='note'>For files:</p>{command(f'isthmus predict {self.run.id} FILES')}"
        return {"form": head + form, **answer, "same": same}
