"""``isthmus shapes``: mixers with the same number of connections."""

from __future__ import annotations

from typing import Annotated

import typer

from isthmus.cli.options import Json


def shapes(
    omega: Annotated[str, typer.Option(help="Mean connections per layer: `2^18`, `262144`, `2.6e8`.")],
    gamma: Annotated[float, typer.Option(help="Expansion of the hidden layers; 1 for S-Mixers.")] = 1.0,
    channels: Annotated[
        list[int] | None, typer.Option("--channels", min=1, help="Only this C; repeatable.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """List mixers with the same number of connections: integer S and C, width and density.

    For example: `isthmus shapes --omega 2^19 --gamma 2`
    """
    from dataclasses import asdict

    from isthmus.analysis.shape_theory import parse_amount, widest_side
    from isthmus.analysis.shape_theory import shapes as of_equal_cost
    from isthmus.cli import terminal

    wanted = parse_amount(omega)
    found = of_equal_cost(wanted, gamma, channels)
    if as_json:
        terminal.print_json([asdict(each) for each in found])
        return
    rows = [
        [each.C, each.S, each.m, f"{each.p:.4g}", f"{each.omega:,.0f}", f"{each.deviation:.2%}".replace("-", "–")]
        for each in found
    ]
    title = f"omega {wanted:,.0f}, gamma {gamma:g}: widest at C = S = {widest_side(wanted, gamma):.4g}"
    terminal.print_table(title, ["C", "S", "m", "p", "omega", "deviation"], rows)
