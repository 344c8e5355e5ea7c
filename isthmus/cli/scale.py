"""``isthmus scale``: what the best quality and shape are at a larger budget."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.options import DataDir, Json, command_line


def scale(
    studies: Annotated[
        list[str],
        typer.Argument(
            metavar="STUDY...",
            help="Finished studies: recipes, JSON or YAML files, folders with `candidates.csv`, or recorded grids.",
        ),
    ],
    to: Annotated[
        str | None, typer.Option(help="The larger budget, such as `100M` (default: four times the largest tried).")
    ] = None,
    cross: Annotated[
        str | None, typer.Option(metavar="FAMILY,FAMILY", help="Where these two cross (default: all pairs).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for `laws.json`, `laws.md` and a picture of each study.")
    ] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Predict quality and shape at a larger budget, from laws that are fitted to a finished study.

    Each law checks itself by leaving the two largest budgets out. For example: `isthmus scale demo --to 100M`
    """
    from isthmus.cli import terminal
    from isthmus.core.errors import UserError
    from isthmus.core.files import make_folder, write_json, write_text, write_with
    from isthmus.core.units import amount
    from isthmus.reports import laws as shown
    from isthmus.reports.pictures import save
    from isthmus.studies.laws import fit_laws
    from isthmus.studies.recorded import read_recorded
    from isthmus.training.prepare import Options

    budget = None if to is None else amount(to)
    if isinstance(budget, str):
        raise UserError(f"--to {budget[:60]!r} is no budget; give one such as 500k or 100M")
    names = [] if cross is None else [name.strip() for name in cross.split(",")]
    if cross is not None and (len(names) != 2 or names[0] == names[1]):
        raise UserError(f"--cross {cross[:60]!r} must name two families, such as hourglass_mlp,conventional_mlp")
    pair = (names[0], names[1]) if names else None
    options = Options(data_dir=data_dir, command=command_line())
    laws = []
    for study in studies:
        found = read_recorded(study, options)
        laws += [(found.name, law) for law in fit_laws(found.candidates, budget, found.cost, pair, found.split)]
    plain = [{"study": name} | shown.plain(law) for name, law in laws]
    if out is not None:
        make_folder(out)
        check = shown.check_summary(law for _, law in laws)
        write_json(out / "laws.json", {"command": command_line(), "check": check, "laws": plain})
        write_text(out / "laws.md", shown.markdown(laws, command_line()))
        for name in dict.fromkeys(name for name, _ in laws):
            picture = shown.draw_laws([law for study, law in laws if study == name])
            write_with(out / f"{name}.png", partial(save, picture))
    if as_json:
        terminal.print_json(plain)
        return
    for name, law in laws:
        tables = (shown.quality_rows(law), shown.slope_rows(law), shown.check_rows(law))
        for number, rows in enumerate(tables):
            heading = f"{name}: {shown.title(law)}" if number == 0 else ""
            terminal.print_table(heading, list(rows[0]), [list(row.values()) for row in rows])
            terminal.out.print()
        for said in shown.sentences(law):
            terminal.out.print(said)
        terminal.out.print()
    terminal.out.print(shown.summary_sentence(law for _, law in laws))
    if out is not None:
        terminal.out.print(str(out), soft_wrap=True)
