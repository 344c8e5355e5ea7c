"""The panels of tokens: Sudoku, and images whose hidden parts are filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from isthmus.core.errors import UserError
from isthmus.studio.controls import slider
from isthmus.studio.figures import draw_lines, line_trace
from isthmus.studio.layout import Figure, Part, link
from isthmus.studio.panel import SAMPLES, TURN, Panel, address, picture, whole_number

_MOST_ITERATIONS = 200


class SudokuPanel(Panel):
    """A board to type or to pick; the iterations fill it, with the energy of each where the model has one."""

    def _puzzle(self, given: Mapping[str, str]) -> np.ndarray:
        typed = [given.get(f"c{place}") for place in range(81)]
        if any(cell is not None for cell in typed):
            digits = [int(cell) if cell and re.fullmatch("[1-9]", cell) else 0 for cell in typed]
            return np.array(digits, np.int64)
        number = given.get("puzzle", "0")
        place = int(number) if re.fullmatch("[0-9]{1,2}", number) else 0
        if self.samples is None:
            return np.zeros(81, np.int64)
        board: np.ndarray = self.samples.inputs[place % len(self.samples.inputs)].astype(np.int64)
        return board

    @property
    def _iterates(self) -> bool:
        return hasattr(self.trained.model, "states")

    def _iterations(self, given: Mapping[str, str]) -> int:
        trained = getattr(self.trained.model.config, "iterations", 1)
        return max(1, whole_number(given.get("iterations", ""), trained, _MOST_ITERATIONS))

    def form(self, given: Mapping[str, str]) -> str:
        board = self._puzzle(given)
        cells = "".join(
            "<tr>"
            + "".join(
                f"<td><input name='c{row * 9 + column}' value='{board[row * 9 + column] or ''}' maxlength='1' "
                f"inputmode='numeric' pattern='[1-9]?' aria-label='row {row + 1}, column {column + 1}'></td>"
                for column in range(9)
            )
            + "</tr>"
            for row in range(9)
        )
        picks = " ".join(link(f"{self.path}?puzzle={number}", str(number + 1)) for number in range(SAMPLES))
        picked = f"<p>Pick a test puzzle: {picks}</p>" if self.samples is not None else ""
        sliders = ""
        if self._iterates:
            iterations = self._iterations(given)
            layers = len(self.trained.model.layers)
            shown = whole_number(given.get("shown", ""), iterations * layers, _MOST_ITERATIONS * layers)
            sliders = slider("iterations", iterations, (1, max(2 * iterations, 24)), whole=True, label="Iterations")
            limits = (0, iterations * layers)
            sliders += slider("shown", min(shown, limits[1]), limits, whole=True, label="Show the board after")
            sliders += "<p><button type='button' class='act' data-play='field-shown'>Play the iterations</button></p>"
        return (
            f"{picked}<table class='sudoku'><caption class='unseen'>The puzzle</caption><tbody>{cells}</tbody></table>"
            f"<div class='sliders'>{sliders}</div>"
        )

    def answer(self, given: Mapping[str, str]) -> dict[str, Part]:
        import torch

        puzzle, model, task = self._puzzle(given), self.trained.model, self.trained.task
        tokens, energies = task.encode(puzzle[None]), list[float]()
        with TURN, torch.no_grad():
            if self._iterates:
                states = list(model.states(tokens, self._iterations(given)))
                layer = model.layers[0]
                if hasattr(layer, "energies") and len(model.layers) == 1:
                    energies = [float(sum(part.double().sum() for part in layer.energies(state))) for state in states]
                outputs = [model.readout(state) for state in states]
            else:
                outputs = [model(tokens)]
            boards = [np.where(puzzle > 0, puzzle, task.decode(output)[0]) for output in outputs]
        last = len(boards) - 1
        place = min(whole_number(given.get("shown", ""), last, last), last)
        wrong = find_conflicts(boards[place])
        said = (
            "No two equal digits meet: it is solved."
            if not wrong.any()
            else f"{int(wrong.sum())} cells are in conflict."
        )
        head = f"After iteration {place} of {last}" if self._iterates else "The network's board"
        board = f"<h2>{head}</h2>{draw_board(boards[place], puzzle, wrong)}<p aria-live='polite'>{said}</p>"
        board += f"<span hidden data-limit='field-shown' data-most='{last}'></span>" if self._iterates else ""
        conflicts = [int(find_conflicts(each).sum()) for each in boards]
        number = list(range(len(boards)))
        energy = draw_lines([line_trace(number, energies)], "Iteration", "Energy", height=260) if energies else None
        lower = sum(after < before for before, after in pairwise(energies))
        curve = draw_lines([line_trace(number, conflicts, 1)], "Iteration", "Cells in conflict", height=260)
        return {
            "answer": board,
            "energy": Figure(
                "Energy over the iterations",
                energy,
                f"The sum of the attention and feed-forward energies. {lower} of {last} iterations lower it; learned "
                "step sizes may also raise it.",
            ),
            "conflicts": Figure("Conflicts over the iterations", curve if len(boards) > 1 else None),
        }


class MaskedPanel(Panel):
    """Paint what is hidden of an image, and watch it being filled in."""

    @cached_property
    def tokenizer(self) -> Any:
        from isthmus.core.files import data_dir
        from isthmus.core.registry import component, find

        settings = dict(self.trained.source)
        source = find("sources", settings["name"])(component("sources", settings))
        return source.open_tokenizer(data_dir(), positions=self.trained.task.positions)

    def _mask(self, given: Mapping[str, str]) -> np.ndarray:
        """What is hidden; of a new form, the right half."""
        height, width = self.tokenizer.grid
        if "painted" not in given:
            return np.tile(np.arange(width) >= width / 2, height)
        return np.array([f"m{place}" in given for place in range(height * width)])

    def _row(self, given: Mapping[str, str]) -> np.ndarray:
        if self.samples is None:
            raise UserError("the data are not here, so that there is no image to hide parts of")
        row: np.ndarray = self.samples.inputs[self._place(given)]
        return row

    def _place(self, given: Mapping[str, str]) -> int:
        """The number of the test image."""
        number = given.get("sample", "0")
        return int(number) % len(self.samples.inputs) if re.fullmatch("[0-9]{1,2}", number) else 0

    def form(self, given: Mapping[str, str]) -> str:
        self._row(given)
        chosen, mask = given.get("sample", "0"), self._mask(given)
        height, width = self.tokenizer.grid
        images = self.tokenizer.pictures(np.asarray(self.samples.inputs))
        samples = "".join(
            f"<label class='sample'><input type='radio' name='sample' value='{number}'"
            f"{' checked' * (str(number) == chosen)}> {picture(image, f'sample {number + 1}')}</label>"
            for number, image in enumerate(images)
        )
        cells = "".join(
            "<tr>"
            + "".join(
                f"<td><input type='checkbox' name='m{place}' "
                f"aria-label='hide row {row + 1}, column {place % width + 1}'"
                f"{' checked' * bool(mask[place])}></td>"
                for place in range(row * width, (row + 1) * width)
            )
            + "</tr>"
            for row in range(height)
        )
        steps = self.trained.task.config.decoding_steps
        shown = whole_number(given.get("shown", ""), steps, steps)
        return (
            f"<fieldset><legend>Take a test image</legend><div class='thumbnails'>{samples}</div></fieldset>"
            "<fieldset><legend>Paint what is hidden</legend><input type='hidden' name='painted' value='1'>"
            f"<table class='mask' data-mask style='background-image: url({address(images[self._place(given)])})'>"
            "<caption class='unseen'>Hidden parts</caption>"
            f"<tbody>{cells}</tbody></table></fieldset>"
            f"<div class='sliders'>{slider('shown', shown, (0, steps), whole=True, label='Show the image after')}"
            "<p><button type='button' class='act' data-play='field-shown'>Play the steps</button></p></div>"
        )

    def answer(self, given: Mapping[str, str]) -> dict[str, Part]:
        import torch

        from isthmus.core.draws import torch_generator

        row, mask, task = self._row(given), self._mask(given), self.trained.task
        tokens = torch.from_numpy(np.array(row[None], np.int64))
        hidden = tokens.masked_fill(torch.from_numpy(mask[None]), task.mask_token)
        passes = list[Any]()

        def watch(seen: Any) -> Any:
            passes.append(seen.clone())
            return self.trained.model(seen)

        with TURN, torch.no_grad():
            found = task.fill_in(watch, hidden, torch_generator(0, "predicted")) if mask.any() else hidden
            states = [*passes, found]
            last = len(states) - 1
            place = min(whole_number(given.get("shown", ""), last, last), last)
            covered = (states[place] == task.mask_token).numpy()
            drawn = self.tokenizer.pictures(
                torch.where(torch.from_numpy(covered), tokens, states[place]).numpy(), covered
            )
            whole = self.tokenizer.pictures(tokens.numpy())
            before = self.tokenizer.pictures(tokens.numpy(), mask[None])
        right = int((found == tokens).numpy()[0][mask].sum())
        shown = {"The image": whole[0], "Hidden": before[0], f"After step {place} of {last}": drawn[0]}
        figures = "".join(
            f"<figure class='seen'>{picture(each, name)}<figcaption>{name}</figcaption></figure>"
            for name, each in shown.items()
        )
        said = f"At the end, {right} of {int(mask.sum())} hidden tokens are those of the image."
        limit = f"<span hidden data-limit='field-shown' data-most='{last}'></span>"
        return {
            "answer": f"<h2>Filled in</h2><div class='restored'>{figures}</div><p aria-live='polite'>{said}</p>{limit}"
        }


def find_conflicts(board: np.ndarray) -> np.ndarray:
    """The cells whose digit stands again in their row, column or box."""
    from isthmus.sources.puzzles.boards import UNITS

    wrong = np.zeros(81, bool)
    for cells in UNITS:
        digits = board[cells]
        counts = np.bincount(digits, minlength=10)
        wrong[cells] |= (counts[digits] > 1) & (digits > 0)
    return wrong


def draw_board(board: np.ndarray, puzzle: np.ndarray, wrong: np.ndarray) -> str:
    def cell(place: int) -> str:
        kinds = ["given"] * bool(puzzle[place]) + ["wrong"] * bool(wrong[place])
        said = "<span class='unseen'> in conflict</span>" if wrong[place] else ""
        return f"<td class='{' '.join(kinds)}'>{board[place] or ''}{said}</td>"

    rows = "".join(f"<tr>{''.join(cell(9 * row + column) for column in range(9))}</tr>" for row in range(9))
    return (
        f"<table class='sudoku solved'><caption class='unseen'>The filled board</caption><tbody>{rows}</tbody></table>"
    )
