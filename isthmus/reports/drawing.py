"""Draws a residual network to scale, as SVG for pages and notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from isthmus.core.titles import pathway_title

_WIDTH, _HEIGHT, _TALLEST = 440, 212, 140
_MIDDLE = 26 + _TALLEST / 2
_ENDS, _STREAM = (12, 428), (92, 348)
"""Where the input and the output are, and where the stream begins and ends."""
_MOST_BLOCKS = 12
_INK, _BLUE = "var(--ink, currentColor)", "var(--shape-0, #0072b2)"


def widest_layer(model: Mapping[str, Any]) -> int:
    """The largest width in a network that can be drawn, or 0."""
    sizes = [model.get(name) for name in ("d_z", "d_h", "depth")]
    ends = [model.get(name) for name in ("d_in", "d_out")]
    if not all(isinstance(size, int) for size in sizes) or not all(isinstance(end, int | None) for end in ends):
        return 0
    return max(model["d_z"], model["d_h"] if model["depth"] else 0, *(end or 0 for end in ends))


def draw_network(model: Mapping[str, Any], colour: str = _BLUE, widest: int = 0) -> str:
    """Input, stream, hidden layers and output as inline SVG. The height of each is its width in the network.

    ``widest`` is the width that gets the whole height (default: the network's own), so that networks can share a scale.
    Empty for a model that is not described by ``d_z``, ``d_h`` and ``depth``. ``iterations`` above 1 are an arrow back
    to the beginning of the stream, and a pathway other than plain is named.
    """
    widest = max(widest, own) if (own := widest_layer(model)) else 0
    if not widest:
        return ""
    d_z, d_h, depth = (int(model[name]) for name in ("d_z", "d_h", "depth"))
    d_in, d_out = model.get("d_in"), model.get("d_out")

    def half(width: int) -> float:
        return max(0.75, width * _TALLEST / widest / 2)

    start, stop = _STREAM if depth else (220, 220)
    parts = []
    for width, where, side in ((d_in, _ENDS[0], start), (d_out, _ENDS[1], stop)):
        if width:
            parts.append(_shape([where, side], [half(width), half(d_z)], _INK, 0.10))
            parts.append(_shape([where - 3, where + 3], [half(width)] * 2, _INK, 0.75))
    drawn = min(depth, _MOST_BLOCKS)
    parts.append(_shape([start - 3, stop + 3], [half(d_z)] * 2, colour, 0.22 if depth else 0.75))
    length = (stop - start) / max(drawn, 1)
    for number in range(drawn):
        left, right = start + number * length, start + (number + 1) * length
        gap = min(3.0, length / 8)
        across = [left + gap, (left + right) / 2, right - gap]
        parts.append(_shape(across, [half(d_z), half(d_h), half(d_z)], colour, 0.72))
    given, pathway = model.get("iterations"), pathway_title(model.get("pathway") or "plain")
    iterations = given if isinstance(given, int) else 1
    if depth and iterations > 1:
        parts.append(_loop(start, stop))
    blocks = f"{depth} block{'s' * (depth > 1)}" + (f", {drawn} drawn" if drawn < depth else "")
    blocks += f" × {iterations:,} iterations" if iterations > 1 else ""
    hidden = f"hidden d_h {d_h:,} × {blocks}" if depth else "no hidden layer: linear"
    stream = f"stream d_z {d_z:,}" + (f", pathway {escape(str(pathway))}" if pathway != "plain" else "")
    texts = [_text(220, 16, "middle", stream), _text(220, _HEIGHT - 18, "middle", hidden)]
    texts += [_text(0, _HEIGHT - 18, "start", f"input {d_in:,}")] if d_in else []
    texts += [_text(_WIDTH, _HEIGHT - 18, "end", f"output {d_out:,}")] if d_out else []
    label = ", ".join([f"input {d_in}"] * bool(d_in) + [stream, hidden] + [f"output {d_out}"] * bool(d_out))
    return (
        f'<svg class="network" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Network: {label}" '
        f'style="max-width:{_WIDTH}px;width:100%;height:auto">{"".join(parts)}{"".join(texts)}</svg>'
    )


def _shape(across: Sequence[float], halves: Sequence[float], colour: str, opacity: float) -> str:
    """A shape that is symmetric about the middle, from its half heights."""
    edges = list(zip(across, halves, strict=True))
    corners = [(x, _MIDDLE - half) for x, half in edges] + [(x, _MIDDLE + half) for x, half in reversed(edges)]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    return f'<polygon points="{points}" style="fill:{colour};fill-opacity:{opacity}"/>'


def _loop(start: float, stop: float) -> str:
    """An arrow below the stream, from its end to its beginning."""
    y = _MIDDLE + _TALLEST / 2 + 3
    line = f"M{stop:.1f},{y:.1f} v7 H{start:.1f} v-7 m-3.5,4 l3.5,-4 l3.5,4"
    return f'<path d="{line}" style="fill:none;stroke:var(--quiet, currentColor);stroke-width:1.25"/>'


def _text(x: float, y: float, anchor: str, text: str) -> str:
    style = "fill:var(--quiet, currentColor);font:13px system-ui, sans-serif"
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" style="{style}">{text}</text>'
