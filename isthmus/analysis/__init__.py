"""What can be read off a trained run: one measurement per file, written as ``analysis/NAME.json`` beside its record.

A file of this folder that defines ``of_run`` is an analysis, and ``isthmus analyze RUN`` finds it by that; nothing else
changes when one is added. It offers

    applies(model, task) -> str | None
        Why nothing can be measured on this model, or of its task ("it has no token mixing"); None where it can.
    of_run(run, data_dir=None) -> dict[str, Any]
        The numbers, measured once: later calls answer from the sealed ``RUN/analysis/NAME.json`` (``NAME`` is the
        file's name, ``schema`` and ``run`` are among the fields). A run to which it does not apply is a ``UserError``.
    summary(found) -> dict[str, float | str]
        Of what ``of_run`` found, the few numbers that fit into a table of the terminal, by their titles.
    draw(found, folder) -> list[Path]
        Pictures of it, drawn from ``found`` alone into ``folder``, as ``NAME.png`` or ``NAME-PART.png``.

An analysis of two runs takes the other one as ``of_run(run, data_dir=None, against=None)``.

Analyses do not import each other. What they share is in files without ``of_run``: ``trained_run.py`` opens a run and
keeps an answer, ``pictures.py`` draws in the style of the reports.
"""
