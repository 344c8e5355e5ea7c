"""Connections, widths and densities against the paper's printed shapes, and its edges against measured spectra."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from isthmus.analysis import shape_theory as theory
from isthmus.core.errors import UserError
from tests.command_line import call

sizes = st.floats(1, 1e4)
omegas = st.floats(1, 1e12)
gammas = st.floats(0.1, 16)

FIGURE_4 = dict(
    zip(
        [4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 64],
        [360, 252, 203, 173, 152, 136, 124, 113, 104, 96, 89, 83, 64],
        strict=True,
    )
)  # C -> S at Ω = 2^19, γ = 2
FIGURE_5 = {
    2**18: [(16, 173), (32, 113), (48, 83), (83, 48), (113, 32), (173, 16)],
    2**21: [(16, 504), (32, 346), (64, 226), (226, 64), (346, 32), (504, 16)],
    2**27: [(128, 1386), (256, 904), (904, 256), (1386, 128)],
}  # (C, S) at γ = 1


def test_every_printed_pair_of_figure_4_is_listed():
    listed = {each.C: each.S for each in theory.shapes(2**19, 2)}
    assert {C: listed[C] for C in FIGURE_4} == FIGURE_4
    assert max(abs(theory.shape(C, 2**19, 2).deviation) for C in FIGURE_4) == pytest.approx(0.0066, abs=5e-5)


@pytest.mark.parametrize(("omega", "worst"), [(2**18, 0.0045), (2**21, 0.0022), (2**27, 0.0006)])
def test_every_printed_pair_of_figure_5_is_listed(omega, worst):
    listed = {(each.C, each.S): each for each in theory.shapes(omega)}
    assert listed.keys() >= set(FIGURE_5[omega])
    assert max(abs(listed[pair].deviation) for pair in FIGURE_5[omega]) == pytest.approx(worst, abs=5e-5)
    assert all(theory.shape(C, omega).S == S for C, S in FIGURE_5[omega])


def test_the_widths_of_figure_5s_sparse_mlps():
    widths = [round(math.sqrt(2**18 / p)) for p in (0.9, 0.7, 0.5, 0.3, 0.1)]
    assert widths == [540, 612, 724, 935, 1619]


def test_the_imagenet_sweep_has_the_baseline_in_it():
    assert theory.mixer_connections(196, 768, 4) == 290217984
    found = {each.C: each.S for each in theory.shapes(290217984, 4, [3 * patch**2 for patch in (7, 8, 14, 16, 28, 32)])}
    assert found == {147: 923, 192: 779, 588: 283, 768: 196, 2352: 26, 3072: 15}


def test_printed_shapes_that_do_not_follow_the_rule():
    """Figure S.6 prints C = 114 where the others have 113; Mixer-B-W's S is the image's; SS-W's C 487 has too many."""
    assert theory.shape(32, 2**18).S == 113
    assert theory.tokens(588, 290217984, 4) == pytest.approx(283.3, abs=0.05)
    assert 290217984 / theory.mixer_connections(256, 588) == pytest.approx(4.57, abs=0.005)  # γ of so many connections
    assert 2.6e8 / theory.mixer_connections(256, 588) == pytest.approx(4.09, abs=0.005)
    layers = [4 * theory.mixer_connections(64, C, 4) * 2 for C in (467, 487)]
    assert [round((both + 64 * 48 * C) / 1e6) for both, C in zip(layers, (467, 487), strict=True)] == [255, 276]


def test_the_peaks_of_the_three_omegas():
    for omega, side in ((2**18, 64), (2**21, 128), (2**27, 512)):
        assert theory.widest_side(omega) == pytest.approx(side)
        widest = max(theory.shapes(omega), key=lambda each: each.m)
        assert (widest.C, widest.S, widest.deviation) == (side, side, 0)


@given(sizes, sizes, gammas)
def test_a_mixer_is_as_dense_as_its_matched_sparse_mlp(S, C, gamma):
    omega = theory.mixer_connections(S, C, gamma)
    p = theory.matched_density(S, C)
    assert theory.density(S * C, omega, gamma) == pytest.approx(p)
    assert theory.sparse_connections(S * C, p, gamma) == pytest.approx(omega)
    assert math.sqrt(omega / (gamma * p)) == pytest.approx(S * C)  # Eq. (S.43)


@given(sizes, omegas, gammas)
def test_tokens_and_channels_invert_each_other(C, omega, gamma):
    S = theory.tokens(C, omega, gamma)
    assume(S > 1e-3 * C)  # below, the difference of two near numbers
    assert theory.mixer_connections(S, C, gamma) == pytest.approx(omega, rel=1e-6)
    assert theory.tokens(S, omega, gamma) == pytest.approx(C, rel=1e-6)


@given(omegas, gammas, st.floats(0, 1))
def test_the_width_lies_between_one_token_and_as_many_as_channels(omega, gamma, place):
    assume(omega / gamma >= 1)
    least, largest = theory.mixer_widths(omega, gamma)
    C = theory.widest_side(omega, gamma) ** place  # from 1 to C*
    m = C * theory.tokens(C, omega, gamma)
    assert least * (1 - 1e-6) <= m <= largest * (1 + 1e-6)
    assert theory.tokens(1, omega, gamma) == pytest.approx(least, rel=1e-6)
    side = theory.widest_side(omega, gamma)
    assert side**2 == pytest.approx(largest)
    assert theory.mixer_connections(side, side, gamma) == pytest.approx(omega)


@given(sizes, omegas, st.floats(0.1, 10))
def test_gamma_is_largest_for_as_many_tokens_as_channels(m, omega, ratio):
    side, gamma = math.sqrt(m), omega / m**1.5  # Eq. (S.46)
    assert omega / theory.mixer_connections(side, side) == pytest.approx(gamma)
    assert omega / theory.mixer_connections(side * ratio, side / ratio) <= gamma * (1 + 1e-9)


@given(st.floats(10, 1e4), st.floats(1e-9, 1), gammas)
def test_sparseness_at_fixed_omega_is_the_term_of_equation_17(m, p, gamma):
    omega = p * gamma * m**2
    assert theory.density(m, omega, gamma) == pytest.approx(p)
    sparseness = gamma * m / omega - 1 / m  # Eq. (18)
    excess = theory.squared_edge(m, p, gamma) - theory.dense_edge(gamma) ** 2
    expected = 3 * theory.dense_edge(gamma) ** 2 / math.sqrt(gamma) * sparseness
    assert excess == pytest.approx(expected, rel=1e-6, abs=1e-9 * theory.squared_edge(m, p, gamma))


@given(st.floats(10, 1e4), st.floats(1e-3, 1))
def test_the_edges_agree_at_gamma_one_and_for_dense_weights(m, p):
    assert theory.printed_squared_edge(m, p) == pytest.approx(theory.squared_edge(m, p))
    assert theory.sparse_edge(m, 1.0, 3.0) == pytest.approx(theory.dense_edge(3.0)) == pytest.approx(1 + math.sqrt(3))


def test_the_scaling_of_appendix_d1_keeps_omega():
    for a in (0, 0.5, 1.5):
        m, p = theory.scaled_sparse_shape(1000, a)
        assert theory.sparse_connections(m, p) == pytest.approx(1000)
    assert theory.scaled_sparse_shape(1000, 0)[1] == 1


def largest_squared(m: int, p: float, gamma: float, seed: int) -> float:
    """λ_max² of M ⊙ A as section 4.3 draws it, by the whole spectrum."""
    draw = np.random.default_rng(seed)
    rows = round(gamma * m)
    weight = draw.standard_normal((rows, m)) * (draw.random((rows, m)) < p) / math.sqrt(p * m)
    gram = weight.T @ weight if rows >= m else weight @ weight.T
    return float(np.linalg.eigvalsh(gram)[-1])


@pytest.mark.parametrize(
    ("m", "gamma"),
    [pytest.param(300, 4.0, marks=pytest.mark.slow), pytest.param(400, 1.0, marks=pytest.mark.slow), (800, 0.25)],
)
def test_the_corrected_edge_is_what_matrices_show_and_the_printed_one_is_not(m, gamma):
    """The excess over dense matrices of the same size, because both lie below their edges by as much."""
    p, trials = 30 / m, 8
    sparse, dense = (np.mean([largest_squared(m, q, gamma, seed) for seed in range(trials)]) for q in (p, 1.0))
    edge = theory.dense_edge(gamma) ** 2
    uncertainty = 1 / m**2 + m ** (-2 / 3)  # Eq. (16) for p = 1
    assert dense == pytest.approx(edge, abs=2 * edge * uncertainty)
    assert sparse - dense == pytest.approx(theory.squared_edge(m, p, gamma) - edge, rel=0.25)
    printed = theory.printed_squared_edge(m, p, gamma) - edge
    assert gamma == 1 or not 0.5 < (sparse - dense) / printed < 2


def test_the_command_lists_them():
    rows = call("shapes", "--omega", "2^18", "--gamma", "1", "--json").json()
    assert {(row["C"], row["S"]) for row in rows} >= set(FIGURE_5[2**18])
    assert rows[0].keys() == {"C", "S", "m", "p", "omega", "deviation"}
    asked = call("shapes", "--omega", "290217984", "--gamma", 4, "--channels", 768, "--json").json()
    assert [(row["S"], row["deviation"]) for row in asked] == [(196, 0)]
    table = call("shapes", "--omega", "2.6e8").out
    assert "omega 260,000,000, gamma 1" in table
    assert "deviation" in table


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--omega", "many"], "'many' is no number such as 2^18"),
        (["--omega", "0"], "omega=0 is no number of connections"),
        (["--omega", "9^9999"], "omega=inf is no number of connections"),
        (["--omega", "8", "--gamma", "0"], "gamma=0 is no expansion factor"),
        (["--omega", "9" * 4_000 + "^1023"], "is no number such as 2^18"),
        (["--omega", "1e308"], "omega=1e+308 is no number of connections"),
        (["--omega", "8", "--gamma", "5e-324"], "is no expansion factor"),
        (["--omega", "8", "--channels", "1" + "0" * 400], "channels are whole numbers"),
    ],
)
def test_the_command_says_what_it_takes(arguments, said):
    answer = call("shapes", *arguments)
    assert answer.code == 2
    assert said in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "value"), [("2^18", 262144), ("2**3", 8), (" 10 ^ 2 ", 100), ("290_217_984", 290217984), ("2.6e8", 2.6e8)]
)
def test_amounts(text, value):
    assert theory.parse_amount(text) == value


@pytest.mark.parametrize("text", ["", "2^", "^2", "two", "2^-1", "1,000"])
def test_amounts_that_are_none(text):
    with pytest.raises(UserError, match="no number such as"):
        theory.parse_amount(text)
