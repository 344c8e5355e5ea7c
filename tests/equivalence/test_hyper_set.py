"""Hyper-SET against equations (2) to (4), (7), (8) and (10) to (12), written out token by token in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.equivalence.slow_sequences import IMAGES, TOKENS, Slow, assert_same, drawn, gelu, samples, sinusoids, softmax

STEPS = ["X_0", "X_t", "time", "fixed"]
CASES: dict[str, dict[str, Any]] = {
    "tokens": {**TOKENS, "ff_ratio": 1.5},
    "images": IMAGES,
    "grid": {**TOKENS, "positions": "grid", "input_shape": (9,), "output_shape": (9, 4)},
    "learned positions, gelu": {**TOKENS, "positions": "learned", "head_bias": False, "activation": "gelu"},
}


class SlowHyperSET(Slow):
    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.readout_norm = "rms" if self.config.vocabulary else "layer"

    def bases(self, name: str) -> list[Tensor]:
        """W_h of every head, d × p."""
        return [part.T for part in self.heads(self.weights[f"{name}.attention.W.weight"])]

    def attention(self, name: str, X: Tensor) -> Tensor:
        """The sum over heads in eq. (8)."""
        total, N, beta = torch.zeros_like(X), X.shape[1], 1 / math.sqrt(self.p)
        for W_h in self.bases(name):
            names = ["attention.norm"] * 3
            if self.config.attention_norms == "three":
                names[1:] = ["attention.others.0", "attention.others.1"]
            Q, K, Z = (
                torch.stack([self.rms_norm(f"{name}.{norm}", W_h.T @ x) for x in X.T], dim=1) for norm in names
            )  # Eq. (7)
            QK = torch.tensor([[beta * K[:, i] @ Q[:, j] for j in range(N)] for i in range(N)], dtype=torch.float64)
            by_column = torch.stack([softmax(QK[:, j]) for j in range(N)], dim=1)
            by_row = torch.stack([softmax(QK[i]) for i in range(N)])
            total += W_h @ Z @ by_column + W_h @ Z @ by_row
        return total

    def feed_forward(self, name: str, x: Tensor) -> Tensor:
        """D ReLU(RMSNorm(Dᵀ x)) of one token: eq. (10)."""
        D = self.weights[f"{name}.feed_forward.D.weight"].T
        hidden = self.rms_norm(f"{name}.feed_forward.norm", D.T @ x)
        return D @ (hidden.clamp(min=0) if self.config.activation == "relu" else gelu(hidden))

    def time(self, name: str, t: int) -> Tensor:
        inclusive = self.config.time_spacing == "inclusive"
        if not self.config.time_mlp:
            return sinusoids(t, self.config.d, inclusive)
        hidden = self.linear(f"{name}.steps.time.0", sinusoids(t, self.config.time_frequencies, inclusive))
        if not self.config.time_norms:
            return self.linear(f"{name}.steps.time.2", gelu(hidden))
        hidden = gelu(self.rms_norm(f"{name}.steps.time.1", hidden))
        hidden = self.linear(f"{name}.steps.time.4", self.rms_norm(f"{name}.steps.time.3", hidden))
        return self.rms_norm(f"{name}.steps.time.5", hidden)

    def steps(self, name: str, x: Tensor, x_0: Tensor, t: int) -> tuple[Tensor, Tensor]:
        """α and γ of every channel of one token: eq. (11) and (12)."""
        d, condition = self.config.d, self.config.step_sizes
        if condition == "fixed":
            step = torch.full((d,), self.config.fixed_step, dtype=torch.float64)
            return step, step
        c_t, given = self.time(name, t), {"X_0": x_0, "X_t": x, "time": torch.zeros_like(x)}[condition]
        if not self.config.time_mlp:
            mixed = self.rms_norm(f"{name}.steps.norm", c_t + given)
        elif condition == "X_t":
            mixed = c_t + self.rms_norm(f"{name}.steps.norm", given)
        else:
            mixed = c_t + given
        both = self.linear(f"{name}.steps.last", gelu(mixed))
        return both[:d], both[d:]

    def layer(self, name: str, X: Tensor, X_0: Tensor, t: int) -> Tensor:
        steps = [self.steps(name, x, x_0, t) for x, x_0 in zip(X.T, X_0.T, strict=True)]
        push = self.attention(name, X)
        after = [x - alpha * push[:, i] for i, (x, (alpha, _)) in enumerate(zip(X.T, steps, strict=True))]  # Eq. (8)
        moved = [x + gamma * self.feed_forward(name, x) for x, (_, gamma) in zip(after, steps, strict=True)]  # Eq. (10)
        return torch.stack(moved, dim=1)

    def energies(self, name: str, X: Tensor) -> tuple[float, float]:
        """E_ATTN on spheres of radius √p and E_FF on one of radius √M."""
        N, beta, attention, feed_forward = X.shape[1], 1 / math.sqrt(self.p), 0.0, 0.0
        for W_h in self.bases(name):
            Z = [math.sqrt(self.p) * W_h.T @ x / (W_h.T @ x).norm() for x in X.T]  # Eq. (3)
            for i in range(N):
                attention += math.log(sum(math.exp(beta * Z[i] @ Z[j]) for j in range(N))) / beta  # Eq. (2)
        D = self.weights[f"{name}.feed_forward.D.weight"].T
        M = D.shape[1]
        for x in X.T:
            hidden = math.sqrt(M) * D.T @ x / (D.T @ x).norm()
            feed_forward -= 0.5 * sum(max(0.0, float(hidden[m])) ** 2 for m in range(M))  # Eq. (4)
        return attention, feed_forward


def hyper_set(**fields: Any) -> Any:
    return drawn("hyper_set", **{"time_frequencies": 10, "fixed_step": 0.3} | fields)


@pytest.mark.parametrize("time_mlp", [True, False])
@pytest.mark.parametrize("step_sizes", STEPS)
@pytest.mark.parametrize("case", CASES)
def test_it_is_the_slow_one(case, step_sizes, time_mlp):
    model = hyper_set(**CASES[case], step_sizes=step_sizes, time_mlp=time_mlp)
    assert_same(model, SlowHyperSET(model))


@pytest.mark.parametrize("case", CASES)
def test_the_norms_of_the_authors_classifier_are_those_of_the_slow_one(case):
    model = hyper_set(**CASES[case], attention_norms="three", time_norms=True, step_sizes="X_t")
    assert_same(model, SlowHyperSET(model))


@pytest.mark.parametrize("time_mlp", [True, False])
@pytest.mark.parametrize("step_sizes", ["X_0", "X_t", "time"])
def test_learned_steps_depend_on_the_iteration_which_starts_at_one(step_sizes, time_mlp):
    model = hyper_set(**TOKENS, step_sizes=step_sizes, time_mlp=time_mlp)
    X = model.embedding(samples(model))
    steps = [torch.cat(model.layers[0].steps(X, X, t), dim=-1) for t in (0, 1, 2)]
    assert (steps[1] - steps[0]).abs().max() > 0.01
    assert (steps[2] - steps[1]).abs().max() > 0.01
    seen: list[int] = []
    model.layers[0].steps.register_forward_hook(lambda module, given, output: seen.append(given[2]))
    model(samples(model), iterations=4)
    assert seen == [1, 2, 3, 4]


@pytest.mark.parametrize("ff_ratio", [1, 2.5])
def test_energies_are_those_of_tokens_on_spheres_of_the_papers_radius(ff_ratio):
    model = hyper_set(**TOKENS, ff_ratio=ff_ratio)
    slow, X = SlowHyperSET(model), model.embedding(samples(model))
    found = model.layers[1].energies(X)
    expected = torch.tensor([slow.energies("layers.1", tokens.T) for tokens in X], dtype=torch.float64)
    torch.testing.assert_close(torch.stack(found, dim=1), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("time_mlp", [True, False])
def test_frequencies_of_the_time_can_end_at_a_ten_thousandth(time_mlp):
    model = hyper_set(**TOKENS, step_sizes="X_0", time_mlp=time_mlp, time_spacing="inclusive")
    assert_same(model, SlowHyperSET(model))
    other = hyper_set(**TOKENS, step_sizes="X_0", time_mlp=time_mlp)
    assert not torch.allclose(model(samples(model)), other(samples(model)))
