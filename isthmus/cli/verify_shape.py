"""``isthmus verify-shape``: the network that `find` chooses against the papers' shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli import options
from isthmus.cli.options import Budget, DataDir, Json, Overrides, Rows, Target, command_line


def verify_shape(
    data: Rows,
    overrides: Overrides = None,
    target: Target = None,
    task: Annotated[
        str | None, typer.Option(help="`regression`, `classification`, … (default: by the target).")
    ] = None,
    budget: Budget = "50k",
    within: Annotated[str, typer.Option(help="The time of the search, such as `90s`, `5m` or `2h`.")] = "2m",
    seeds: Annotated[int, typer.Option(min=2, help="Trainings of each network; more decide smaller differences.")] = 5,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes of one thread each (default: the cores).")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the page and of verification.json.")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Find a network for your data, and compare it with the papers' best shapes of the same size on the test rows.

    All are trained with the same rows, recipe and seeds; each difference has its interval. Repeat the command to
    resume. For example: `isthmus verify-shape houses.csv --target price --budget 50k`
    """
    import json

    from isthmus.api.verification import say
    from isthmus.api.verification import verify_shape as verify
    from isthmus.cli import terminal
    from isthmus.cli.complete import complete_study
    from isthmus.core.files import home, write_text
    from isthmus.core.interrupts import was_interrupted
    from isthmus.core.units import amount
    from isthmus.search import engine
    from isthmus.search.display import Bar
    from isthmus.training.prepare import Options

    answer = engine.find(
        data, list(target or []) or None, task=task, budget=budget, within=within, workers=workers,
        settings=overrides or (), data_dir=data_dir, progress=Bar(terminal.err), command=command_line(),
        began=options.started,
    )  # fmt: skip
    if was_interrupted():  # a search that is stopped answers with the best so far; the command ends here
        raise KeyboardInterrupt
    given = Options(data_dir=data_dir, command=command_line())
    found = verify(answer, int(amount(budget)), seeds, given, complete_study, workers)
    folder = out or home() / "verifications" / found["study"]
    write_text(folder / "verification.json", json.dumps(found, indent=2, sort_keys=True, allow_nan=False) + "\n")
    if as_json:
        terminal.print_json(found, sort_keys=True)
        return
    rows = [("found", found["found"]), *found["shapes"].items()]
    terminal.print_table(
        f"{found['objective']} on test rows, mean ± standard deviation over {seeds} seeds",
        ["", "network", "parameters", found["objective"]],
        [
            [name, each["title"], f"{each['parameters']:,}", f"{each['mean']:.4g} ± {each['std'] or 0:.2g}"]
            for name, each in rows
        ],
    )
    for line in say(found):
        terminal.out.print(line, highlight=False, soft_wrap=True)
    terminal.out.print(f"numbers: {folder / 'verification.json'}", soft_wrap=True)
