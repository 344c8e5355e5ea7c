"""``isthmus studio``: the live web application."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from isthmus.studio import PORT


def studio(
    host: Annotated[
        str, typer.Option(help="The address to listen on; any but this machine's own needs the printed token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = PORT,
    demo: Annotated[bool, typer.Option("--demo", help="Start a search of one minute on an embedded table.")] = False,
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = True,
) -> None:
    """Open the studio: watch searches and studies, start one, and look inside runs, in the browser.

    Searches that it starts go on when the studio or the browser is closed.
    """
    from isthmus.cli import terminal
    from isthmus.core.errors import UserError

    try:
        from isthmus.studio.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise UserError("the studio needs starlette and uvicorn; type: pip install 'isthmus[studio]'") from None

    def announce(address: str) -> None:
        terminal.out.print(address, highlight=False, soft_wrap=True)
        terminal.err.print("Ctrl-C ends the studio; searches go on without it", style="dim", highlight=False)
        if browser and terminal.out.is_terminal:
            import webbrowser

            webbrowser.open(address)

    with contextlib.suppress(KeyboardInterrupt):
        serve(host, port, announce, demo=demo)
