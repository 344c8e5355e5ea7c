"""Measurements of trained runs, one per file, written as ``analysis/NAME.json`` beside the record.

A file of this folder that defines ``of_run`` is an analysis, and ``isthmus analyze RUN`` finds it by that. Another
package names its module under the entry points ``isthmus.analyses``. An analysis defines

    applies(model, task) -> str | None
        Why it cannot measure this model or task ("it has no token mixing"); None if it can.
    of_run(run, data_dir=None) -> dict[str, Any]
        The numbers, measured once: later calls read the sealed ``RUN/analysis/NAME.json`` (``NAME`` is the file's
        name, ``schema`` and ``run`` are among the fields). A ``UserError`` if it does not apply to the run.
    summary(found) -> dict[str, float | str]
        The few numbers to show in the terminal, by their titles.
    draw(found, folder) -> list[Path]
        Figures drawn from ``found`` alone into ``folder``, as ``NAME.png`` or ``NAME-PART.png``.

An analysis of two runs takes the other one as ``of_run(run, data_dir=None, against=None)``.

Analyses do not import each other. Shared code is in files without ``of_run``: ``trained_run.py`` opens a run and stores
the results, ``pictures.py`` draws in the style of the reports.
"""
