"""Every pathway as an explicit matrix A of d × d operators: r_l = Σ_i A_{l,i} u_i, in float64, row by row, in loops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Row = list[Tensor]
"""A_{l,0} … A_{l,l}, each d × d."""


def eye(d: int) -> Tensor:
    return torch.eye(d, dtype=torch.float64)


def from_steps(first: Tensor, steps: Sequence[tuple[Tensor, Tensor]]) -> list[Row]:
    """A of x_{l+1} = M_l x_l + N_l u_{l+1}: A_{l,i} = M_{l−1} ⋯ M_i N_{i−1}."""
    rows = []
    for place in range(len(steps) + 1):
        row = []
        for source in range(place + 1):
            operator = first if source == 0 else steps[source - 1][1]
            for between in range(source, place):
                operator = steps[between][0] @ operator
            row.append(operator)
        rows.append(row)
    return rows


def plain(p: Any, c: Any, reads: Sequence[Tensor], u: Sequence[Tensor], blocks: Sequence[int]) -> list[Row]:
    d = len(u[0])
    return from_steps(eye(d), [(eye(d), eye(d))] * len(reads))


def none(p: Any, c: Any, reads: Any, u: Any, blocks: Any) -> list[Row]:
    d = len(u[0])
    return from_steps(eye(d), [(0 * eye(d), eye(d))] * len(reads))


def scaled(p: Any, c: Any, reads: Any, u: Any, blocks: Any) -> list[Row]:
    d, places = len(u[0]), len(reads)
    by = {"1/sqrt(places)": 1 / math.sqrt(places), "1/places": 1 / places}.get(c.by, c.by)
    return from_steps(eye(d), [(eye(d), by * eye(d))] * places)


def gained(p: Any, c: Any, reads: Any, u: Any, blocks: Any) -> list[Row]:
    d = len(u[0])
    return from_steps(eye(d), [(eye(d), torch.diag(p.gain[k].expand(d))) for k in range(len(reads))])


def delayed(p: Any, c: Any, reads: Any, u: Any, blocks: Any) -> list[Row]:
    d, places, zero = len(u[0]), len(reads), 0 * eye(len(u[0]))
    first = sum(blocks[: c.from_block - 1])
    rows = []
    for place in range(places + 1):
        row = []
        for source in range(place + 1):  # update number `source` was made at place source − 1
            if place == places or source == 0 or place < first:
                seen = True
            elif c.group == "all":
                seen = source <= first
            elif c.group is not None:
                seen = source <= first or (source - 1 - first) // c.group < (place - first) // c.group
            else:
                seen = source <= place - (1 if c.lag is None else c.lag)
            row.append(eye(d) if seen else zero)
        rows.append(row)
    return rows


def reversible(p: Any, c: Any, reads: Any, u: Any, blocks: Any) -> list[Row]:
    """A checkerboard; the output is the mean of the last two streams."""
    d, places = len(u[0]), len(reads)

    def entry(place: int, source: int) -> Tensor:
        return eye(d) if source == 0 or (source <= place and (place - source) % 2 == 0) else 0 * eye(d)

    rows = [[entry(place, source) for source in range(place + 1)] for place in range(places)]
    return [*rows, [(entry(places, source) + entry(places - 1, source)) / 2 for source in range(places + 1)]]


def rms(x: Tensor, eps: float) -> float:
    return math.sqrt(float(x @ x) / len(x) + eps)


def highway(p: Any, c: Any, reads: Any, u: Any, blocks: Any) -> list[Row]:
    d, steps = len(u[0]), []
    for place, x in enumerate(reads):
        normed = x if c.norm == "none" else x / rms(x, c.eps)
        inner = p.weight[place] @ normed if c.gate == "full" else p.weight[place] * normed
        t = 1 / (1 + torch.exp(-(inner + p.bias[place])))
        steps.append((torch.diag(1 - t) if c.carry == "coupled" else eye(d), torch.diag(t)))
    return from_steps(eye(d), steps)


def injected(p: Any, c: Any, reads: Any, u: Any, blocks: Any) -> list[Row]:
    d, places = len(u[0]), len(reads)
    firsts = {sum(blocks[:number]): number for number in range(len(blocks))}
    start = eye(d) / (rms(u[0], c.eps) if c.normed else 1)
    stream: list[Tensor] = [0 * start if c.begin == "zero" else start]  # of u_0 … u_l, in the stream
    rows = []
    for place in range(places + 1):
        if place in firsts:
            number = firsts[place]
            if c.how == "addition":
                stream[0] = stream[0] + start
            elif c.how == "concatenation":
                stream = [p.W[number][:, :d] @ operator for operator in stream]
                stream[0] = stream[0] + p.W[number][:, d:] @ start
            else:
                step = torch.log1p(torch.exp(p.delta[number]))
                decay = torch.exp(-step * torch.exp(p.A[number]))
                B = p.B[number] if c.mix == "full" else torch.diag(p.B[number])
                stream = [torch.diag(decay) @ operator for operator in stream]
                stream[0] = stream[0] + torch.diag(step) @ B @ start
        rows.append(list(stream))
        stream.append(eye(d))
    return rows


def post_norm(p: Any, c: Any, reads: Any, u: Any, blocks: Any) -> list[Row]:
    d, places = len(u[0]), len(reads)
    alpha = (2 * places / 2) ** 0.25 if c.alpha == "deepnorm" else c.alpha
    steps = []
    for place, x in enumerate(reads):
        y = alpha * x + u[place + 1]
        centre = eye(d) - 1 / d if c.norm == "layer" else eye(d)
        operator = centre / rms(centre @ y, c.eps)
        steps.append((alpha * operator, operator))
    return from_steps(eye(d), steps)


def peri_norm(p: Any, c: Any, reads: Any, u: Any, blocks: Any) -> list[Row]:
    d = len(u[0])
    centre = eye(d) - 1 / d if c.norm == "layer" else eye(d)
    gains = [torch.diag(p.gain[k].expand(d)) @ centre / rms(centre @ u[k + 1], c.eps) for k in range(len(reads))]
    return from_steps(eye(d), [(eye(d), gain) for gain in gains])


def spherical(p: Any, c: Any, reads: Any, u: Any, blocks: Any) -> list[Row]:
    d, steps = len(u[0]), []
    for place, x in enumerate(reads):
        a = p.step[place] if not c.rescaled else torch.abs(p.step[place]) * c.start * math.sqrt(d)
        new = x + a * (u[place + 1] / u[place + 1].norm() - x)
        steps.append((torch.diag(1 - a) / new.norm(), torch.diag(a) / (u[place + 1].norm() * new.norm())))
    return from_steps(eye(d) / u[0].norm(), steps)


def delta(p: Any, c: Any, reads: Any, u: Any, blocks: Any) -> list[Row]:
    d, steps = len(u[0]), []
    for place, x in enumerate(reads):
        length = math.sqrt(float(u[place + 1] @ u[place + 1]) + c.eps**2)
        k = u[place + 1] / length
        gate, bias = p.gate[place], p.bias[place]
        beta = 2 / (1 + math.exp(-float(gate[0] @ x / rms(x, c.norm_eps) + bias[0])))
        erase = eye(d) - beta * torch.outer(k, k)
        if c.write == "update":
            steps.append((erase, eye(d)))
            continue
        v = c.value_scale
        if c.value != "constant":
            logit = float(gate[1] @ x + bias[1])
            v = c.value_scale / (1 + math.exp(-logit)) if c.value == "sigmoid" else logit
        steps.append((erase, beta * v / length * eye(d)))
    return from_steps(eye(d), steps)


def delta_channels(p: Any, c: Any, reads: Any, u: Any, blocks: Any) -> list[Row]:
    """X_{l+1} = (I − β k kᵀ) X_l + β k vᵀ for every channel; a branch reads Σ_n w_n X^n."""
    d, n = len(u[0]), c.channels
    channels: list[list[Tensor]] = [[eye(d)] for _ in range(n)]
    rows = []
    for place in range(len(reads) + 1):
        by = [_reading(p, c, place, k, d) for k in range(n)]
        rows.append([sum((by[k] @ channels[k][i] for k in range(n)), 0 * eye(d)) for i in range(place + 1)])
        if place == len(reads):
            break
        x, update = reads[place], u[place + 1]
        length = math.sqrt(float(update @ update) + c.eps**2)
        gate, bias = p.gate[place], p.bias[place]
        beta = 2 / (1 + math.exp(-float(gate[0] @ x / rms(x, c.norm_eps) + bias[0])))
        erase = eye(d) - beta * torch.outer(update, update) / length**2
        for k in range(n):
            v = c.value_scale / (1 + math.exp(-float(gate[1 + k] @ x + bias[1 + k])))
            channels[k] = [erase @ operator for operator in channels[k]] + [beta * v / length * eye(d)]
    return rows


def _reading(p: Any, c: Any, place: int, channel: int, d: int) -> Tensor:
    """What a channel counts for in Σ_o w_o y_o, with y_o = Σ_t kernel_t x_{o+t−left} for each coordinate."""
    if c.convolution is None:
        return p.reading[place][channel] * eye(d)
    left, total = (c.convolution - 1) // 2, 0 * eye(d)
    for output in range(c.channels):
        for tap in range(c.convolution):
            if output + tap - left == channel:
                total = total + p.reading[place][output] * torch.diag(p.kernel[place][:, tap])
    return total


def mobius(p: Any, c: Any, reads: Any, u: Any, blocks: Any) -> list[Row]:
    d, k, steps = len(u[0]), c.curvature, []
    root = math.sqrt(k)
    for place, x in enumerate(reads):
        lengths = [float(v.norm()) for v in (x, u[place + 1])]
        into = [min(math.tanh(root * s), 1 - c.margin) / (root * s) for s in lengths]
        z, y = into[0] * x, into[1] * u[place + 1]
        factors = [into[0], into[1]]
        if c.order == "stream_first":
            y, z, factors = z, y, factors[::-1]
        inner, y2, z2 = float(y @ z), float(y @ y), float(z @ z)
        bottom = 1 + 2 * k * inner + k * k * y2 * z2
        of_y, of_z = (1 + 2 * k * inner + k * z2) / bottom, (1 - k * y2) / bottom
        length = root * float((of_y * y + of_z * z).norm())
        back = math.atanh(min(length, 1 - c.margin)) / length
        of_stream, of_update = of_z * factors[0], of_y * factors[1]
        if c.order == "stream_first":
            of_stream, of_update = of_y * factors[1], of_z * factors[0]
        steps.append((back * of_stream * eye(d), back * of_update * eye(d)))
    return from_steps(eye(d), steps)


def weighted(p: Any, c: Any, reads: Any, u: Any, blocks: Any) -> list[Row]:
    d, places = len(u[0]), len(reads)
    ends = {sum(blocks[: number + 1]) - 1: number for number in range(len(blocks))}

    def padded(row: Row, size: int) -> Row:
        return row + [0 * eye(d)] * (size - len(row))

    outputs: list[Row] = [[eye(d)]]
    current: Row = [eye(d)]
    rows = [current]
    for place in range(places):
        current = [*current, eye(d)]
        if place in ends:
            outputs.append(current)
            number = ends[place] + 1
            if number % c.period == 0:
                alpha = p.weight[number // c.period - 1]
                chosen = [j for j in range(number + 1) if j % c.dilation == number % c.dilation]
                size = len(current)
                current = [
                    sum(alpha[n] * padded(outputs[j], size)[i] for n, j in enumerate(chosen)) for i in range(size)
                ]
        rows.append(current)
    return rows


def attended(p: Any, c: Any, reads: Any, u: Any, blocks: Any) -> list[Row]:
    d, places = len(u[0]), len(reads)
    size = 1 if c.blocks is None else -(-places // c.blocks)
    rows = [[eye(d)]]
    for place in range(1, places + 1):
        groups = [[0]] + [[i for i in range(1, place + 1) if (i - 1) // size == n] for n in range(-(-place // size))]
        if c.window is not None and len(groups) > c.window + 1:
            groups = [groups[0], *groups[-c.window :]]
        sources = [sum(u[i] for i in group) for group in groups]
        logits = [float(p.query[place - 1] @ v) / rms(v, c.eps) for v in sources]
        bottom = sum(math.exp(logit) for logit in logits)
        row = [0 * eye(d) for _ in range(place + 1)]
        for group, logit in zip(groups, logits, strict=True):
            for i in group:
                row[i] = math.exp(logit) / bottom * (len(groups) if c.total == "sum" else 1) * eye(d)
        rows.append(row)
    return rows


def streams(p: Any, c: Any, reads: Any, u: Any, blocks: Any) -> list[Row]:
    """pre_l · res_{l−1} ⋯ res_{i+1} · post_i: S as coefficients of u_0 … u_l in every copy."""
    d, n = len(u[0]), c.count
    copies: list[list[float]] = [[1.0] for _ in range(n)]  # coefficients of the updates in each copy
    rows = []
    for place in range(len(reads)):
        S = torch.stack([sum(weight * u[i] for i, weight in enumerate(copy)) for copy in copies])
        pre, res, post = stream_maps(p, c, S, place)
        rows.append([sum(float(pre[k]) * copies[k][i] for k in range(n)) * eye(d) for i in range(place + 1)])
        copies = [
            [sum(float(res[old, new]) * copies[old][i] for old in range(n)) for i in range(place + 1)]
            + [float(post[new])]
            for new in range(n)
        ]
    mean = n if c.output == "mean" else 1
    return [*rows, [sum(copies[k][i] for k in range(n)) / mean * eye(d) for i in range(len(u))]]


def stream_maps(p: Any, c: Any, S: Tensor, place: int) -> tuple[Tensor, Tensor, Tensor]:
    n = c.count
    if c.constrain == "none":
        pre, res, post = p.pre[place].clone(), p.res[place].clone(), p.post[place].clone()
        for k in range(n if c.dynamic else 0):
            centred = S[k] - S[k].mean() if c.norm == "layer" else S[k]
            change = p.W[place] @ (centred / rms(centred, c.norm_eps))
            change = torch.tanh(change) if c.bound == "tanh" else change
            pre[k] += p.scale[place][0] * change[0]
            res[k] += p.scale[place][0] * change[1 : n + 1]
            post[k] += p.scale[place][1] * change[n + 1]
        return pre, res, post
    logits = p.bias[place].clone()
    if c.dynamic:
        flat = S.flatten()
        products = p.Phi[place] @ (flat / rms(flat, c.norm_eps))
        for part, (start, end) in enumerate(((0, n), (n, 2 * n), (2 * n, len(logits)))):
            logits[start:end] += p.scale[place][part] * products[start:end]
    pre, post = (
        c.pre_eps + 1 / (1 + torch.exp(-logits[:n])),
        c.post_scale / (1 + torch.exp(-logits[n : 2 * n])),
    )
    if c.constrain == "permutations":
        weights = torch.exp(logits[2 * n :]) / torch.exp(logits[2 * n :]).sum()
        res = torch.zeros(n, n, dtype=torch.float64)
        for weight, order in zip(weights, itertools.permutations(range(n)), strict=True):
            for row, column in enumerate(order):
                res[row, column] += weight
        return pre, res, post
    res = torch.exp(logits[2 * n :].view(n, n))
    res = res / res.sum(1, keepdim=True) + c.sinkhorn_eps
    for turn in range(2 * c.sinkhorn_iterations - 1):
        for line in range(n):
            cells = (slice(None), line) if turn % 2 == 0 else (line, slice(None))
            res[cells] = res[cells] / (res[cells].sum() + c.sinkhorn_eps)
    return pre, res, post


SLOW: dict[str, Callable[..., list[Row]]] = {
    "plain": plain, "none": none, "scaled": scaled, "gained": gained, "delayed": delayed, "reversible": reversible,
    "highway": highway, "injected": injected, "post_norm": post_norm, "peri_norm": peri_norm,
    "spherical": spherical, "delta": delta, "mobius": mobius, "weighted": weighted, "attended": attended,
    "streams": streams,
}  # fmt: skip
