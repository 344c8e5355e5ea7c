"""What the wide-and-sparse paper proves, on random instances, with column-major vec throughout.

The slips that the layer's docstring lists are tested as well: what is printed fails, what is corrected holds.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Lasso
from torch.nn.functional import gelu

import isthmus
from isthmus.core.errors import UserError
from isthmus.layers import effective_weight as weights
from isthmus.layers.permuted_kronecker import (
    Arrangement,
    Commutation,
    Identity,
    PermutedKronecker,
    RandomPermutation,
    arrange_channels,
    arrange_randomly,
    arrange_tokens,
    batch_last,
    mat,
    vec,
)

size = st.integers(1, 6)
seeds = st.integers(0, 2**31)
few = settings(max_examples=25)
double = torch.float64


def drawn(seed, *shapes):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator, dtype=double) for shape in shapes]


def identity(n):
    return torch.eye(n, dtype=double)


def kron(a, b):
    return torch.from_numpy(np.kron(a.numpy(), b.numpy()))  # torch's own refuses a transposed matrix


def matrix(permutation):
    """J, from (J x)_i = x_σ(i)."""
    return identity(len(permutation.sigma()))[permutation.sigma()]


def layer(arrangement, weight):
    """The only layer of an arrangement, in float64, with this weight and no bias."""
    (made,) = arrangement.layers(bias=False)
    made.double().weight.data.copy_(weight)
    return made


def of(kind, S, S_out, C, seed):
    """An arrangement of each kind, and the shape of the X that it takes."""
    return {
        "token": lambda: arrange_tokens(S, S_out, C),
        "channel": lambda: arrange_channels(S, C),
        "random token": lambda: arrange_randomly(S, S_out, C, S_out, seed, "token"),
        "random channel": lambda: arrange_randomly(C, C, S, S, seed, "channel"),
    }[kind]()


KINDS = ["token", "channel", "random token", "random channel"]


@few
@given(S=size, C=size, seed=seeds)
def test_vec_stacks_columns(S, C, seed):
    (x,) = drawn(seed, (S, C))
    assert all(vec(x)[j * S + i] == x[i, j] for i in range(S) for j in range(C))
    assert torch.equal(mat(vec(x), S), x)
    assert torch.equal(vec(x[None])[0], vec(x))
    assert torch.equal(batch_last(x[None].expand(3, S, C)), x[None].expand(3, S, C))


@few
@given(S=size, C=size, rows=size, columns=size, seed=seeds)
def test_eqs_6_7_8_a_product_is_a_kronecker_weight(S, C, rows, columns, seed):
    W, X, V = drawn(seed, (rows, S), (S, C), (C, columns))
    torch.testing.assert_close(vec(W @ X @ V), kron(V.T, W) @ vec(X))
    torch.testing.assert_close(vec(X @ V), kron(V.T, identity(S)) @ vec(X))
    torch.testing.assert_close(vec(W @ X), kron(identity(C), W) @ vec(X))


@few
@given(S=size, C=size, seed=seeds)
def test_definition_3_1_commutation_transposes_and_exchanges_factors(S, C, seed):
    X, A, B = drawn(seed, (S, C), (S, S), (C, C))
    J = matrix(Commutation(S, C))
    assert torch.equal(J @ vec(X), vec(X.T))
    assert torch.equal(vec(Commutation(S, C)(X[None])[0]), J @ vec(X))
    assert torch.equal(J.T, matrix(Commutation(C, S)))
    torch.testing.assert_close(J.T @ kron(A, B) @ J, kron(B, A))


@few
@given(S=size, C=size, seed=seeds)
def test_proposition_3_2_an_s_mixer_is_a_wide_mlp(S, C, seed):
    X, W, V = drawn(seed, (S, C), (S, S), (C, C))
    H = gelu(gelu(W @ X) @ V)  # Eq. (5)
    J = matrix(Commutation(S, C))
    inner = gelu(J @ kron(identity(C), W) @ vec(X))
    torch.testing.assert_close(vec(H), gelu(J.T @ kron(identity(S), V.T) @ inner))  # Eq. (10)
    tokens, channels = layer(arrange_tokens(S, S, C), W), layer(arrange_channels(S, C), V.T)
    torch.testing.assert_close(gelu(channels(gelu(tokens(X[None]))))[0], H)


@few
@given(S=size, C=size, seed=seeds)
def test_corollary_3_4_a_linear_s_mixer_is_a_monarch_matrix_that_shares_its_blocks(S, C, seed):
    X, W, V = drawn(seed, (S, C), (S, S), (C, C))
    J = matrix(Commutation(S, C))
    L, R = torch.block_diag(*[V.T] * S), torch.block_diag(*[W] * C)
    monarch = J.T @ L @ J @ R  # Eq. (12)
    torch.testing.assert_close(monarch, kron(V.T, W))
    torch.testing.assert_close(vec(gelu(W @ X @ V)), gelu(monarch @ vec(X)))
    tokens, channels = layer(arrange_tokens(S, S, C), W), layer(arrange_channels(S, C), V.T)
    product = isthmus.effective_weight(channels) @ isthmus.effective_weight(tokens)
    torch.testing.assert_close(product, monarch)


def undone(permutation):
    """Jᵀ, of the same shape of result as J's argument had."""
    other = RandomPermutation(len(permutation.index), permutation.rows, 0, "")
    other.index, other.inverse = permutation.inverse, permutation.index
    return other


@few
@given(S=size, C=size, gamma=st.integers(1, 3), seed=seeds)
def test_b_3_the_mixers_belong_to_the_family_once_the_outer_activation_is_gone(S, C, gamma, seed):
    X, W, V, W1, W2, W3, W4 = drawn(
        seed, (S, C), (S, S), (C, C), (gamma * S, S), (S, gamma * S), (C, gamma * C), (gamma * C, C)
    )

    def pk(x, weight, before, after, layout="batch_last"):
        rows, columns = weight.shape
        arrangement = Arrangement(columns, rows, x.numel() // columns, before, after, layout)
        made = PermutedKronecker(arrangement, bias=False)
        made.double().weight.data.copy_(weight)
        return made(x[None])[0]

    nothing, transpose, back = Identity(S * C), Commutation(S, C), Commutation(C, S)
    U = gelu(pk(X, W, nothing, transpose))  # Eq. (S.21): the tokens' layer hands on Uᵀ
    torch.testing.assert_close(U, gelu(W @ X).T)
    torch.testing.assert_close(gelu(pk(U, V.T, nothing, back)), gelu(gelu(W @ X) @ V))

    J1 = RandomPermutation(gamma * S * C, gamma * S, seed, "1")
    hidden = gelu(pk(X, W1, nothing, J1))
    U = pk(hidden, W2, undone(J1), transpose)  # Eq. (S.22) without its outer φ
    torch.testing.assert_close(U.T, W2 @ gelu(W1 @ X))  # Eq. (1)
    J2 = RandomPermutation(gamma * S * C, gamma * C, seed, "2")
    hidden = gelu(pk(U, W3.T, nothing, J2))
    Y = pk(hidden, W4.T, undone(J2), back)  # Eq. (S.23) without its outer φ
    torch.testing.assert_close(Y, gelu(U.T @ W3) @ W4)  # Eq. (2)
    if ((Y.abs() > 1e-3) & (Y < 4)).any():  # φ hardly changes numbers near zero, and large ones
        assert not torch.allclose(gelu(Y), Y), "with the outer φ, as printed, it is another network"


def test_eqs_s_11_and_s_12_hold_for_row_major_vec_only():
    X, W = drawn(0, (3, 4), (3, 3))
    J, I = matrix(Commutation(3, 4)), identity(12)  # noqa: E741 (the paper's name)
    printed = J.T @ kron(identity(4), W) @ J
    assert not torch.allclose(printed @ vec(X), vec(W @ X))
    row_major = matrix(Commutation(4, 3))  # takes the rows of X, one after the other, to its columns
    torch.testing.assert_close(row_major.T @ kron(identity(4), W) @ row_major @ X.flatten(), (W @ X).flatten())
    torch.testing.assert_close(I @ kron(identity(4), W) @ I @ vec(X), vec(W @ X))


@pytest.mark.parametrize("kind", KINDS)
@few
@given(S=size, S_out=size, C=size, seed=seeds)
def test_the_effective_weight_is_what_the_layer_does(kind, S, S_out, C, seed):
    arrangement = of(kind, S, S_out, C, seed)
    W, X = drawn(seed, (arrangement.width_out, arrangement.width_in), (2, S, C))
    made = layer(arrangement, W)
    W_eff = isthmus.effective_weight(made)
    J1, J2 = matrix(arrangement.before), matrix(arrangement.after)
    torch.testing.assert_close(W_eff, J2 @ kron(identity(arrangement.copies), W) @ J1)  # Eq. (19)
    torch.testing.assert_close(vec(made(X)), vec(X) @ W_eff.T)
    assert W_eff.shape == made.effective_shape
    assert (W_eff != 0).double().mean() == pytest.approx(1 / arrangement.copies)


@pytest.mark.parametrize("kind", KINDS)
@few
@given(S=size, S_out=size, C=size, seed=seeds)
def test_the_singular_values_are_those_of_the_small_weight(kind, S, S_out, C, seed):
    arrangement = of(kind, S, S_out, C, seed)
    (W,) = drawn(seed, (arrangement.width_out, arrangement.width_in))
    of_effective = torch.linalg.svdvals(isthmus.effective_weight(layer(arrangement, W)))
    repeated = torch.linalg.svdvals(W).repeat_interleave(arrangement.copies)
    torch.testing.assert_close(of_effective, repeated.sort(descending=True).values)


def test_random_permutations_scatter_what_normal_ones_keep_in_blocks():
    W = torch.ones(8, 8)
    normal = isthmus.effective_weight(layer(arrange_tokens(8, 8, 8), W))
    scattered = isthmus.effective_weight(layer(arrange_randomly(8, 8, 8, 8, 0, "x"), W))
    assert torch.equal(normal, torch.block_diag(*[torch.ones(8, 8, dtype=double)] * 8))
    inside = (scattered * normal).sum() / scattered.sum()
    assert inside < 0.25, "about one in eight stays in a block of the diagonal"


def test_b_2_a_product_with_a_uniform_permutation_is_uniform():
    """Exactly, by counting: multiplication by any g maps the group onto itself."""
    group = [torch.tensor(p) for p in itertools.permutations(range(4))]
    for g in group:
        products = {tuple(sigma[g].tolist()) for sigma in group}
        assert len(products) == len(group)


def test_b_2_our_draws_and_their_products_are_uniform():
    index = {p: n for n, p in enumerate(itertools.permutations(range(4)))}
    single, product = np.zeros(24), np.zeros(24)
    for seed in range(2400):
        one, other = (RandomPermutation(4, 4, seed, name).sigma() for name in ("before", "after"))
        single[index[tuple(one.tolist())]] += 1
        product[index[tuple(other[one].tolist())]] += 1
    assert scipy.stats.chisquare(single).pvalue > 1e-3
    assert scipy.stats.chisquare(product).pvalue > 1e-3


@few
@given(m=size, seed=seeds)
def test_b_2_the_product_of_matrices_is_the_composition_of_indices(m, seed):
    one, other = (RandomPermutation(m, m, seed, name) for name in ("before", "after"))
    composed = identity(m)[other.sigma()[one.sigma()]]
    assert torch.equal(matrix(one) @ matrix(other), composed)
    assert torch.equal(matrix(one).T, identity(m)[one.inverse])


@few
@given(m=size, n=size, strength=st.floats(0.01, 10), seed=seeds)
def test_lemma_b_1_at_every_point(m, n, strength, seed):
    """g(u, v) ≥ φ(u ⊗ v) ≥ h(u ⊗ v), and a rescaled (u, v) attains φ; f cancels."""
    u, v = drawn(seed, (m,), (n,))
    beta = kron(u, v)
    g, phi = strength * (u.square().sum() + v.square().sum()) / 2, strength * beta.norm()
    h = strength / math.sqrt(m * n) * beta.norm(1)
    assert g >= phi * (1 - 1e-12)
    assert phi >= h * (1 - 1e-12)
    scale = (v.norm() / u.norm()).sqrt()
    torch.testing.assert_close(kron(scale * u, v / scale), beta)
    torch.testing.assert_close(strength * ((scale * u).square().sum() + (v / scale).square().sum()) / 2, phi)


@few
@given(m=st.integers(2, 4), n=st.integers(2, 4), strength=st.floats(0.1, 3), seed=seeds)
def test_lemma_b_1_for_the_minima_of_a_regression(m, n, strength, seed):
    """The best factors found never go below the lasso's optimum, which a convex solver finds."""
    rows = 12
    A, y, u, v = drawn(seed, (rows, m * n), (rows,), (m,), (n,))

    def loss(beta):
        return (A @ beta - y).square().sum() / 2

    lasso = Lasso(strength / math.sqrt(m * n) / rows, fit_intercept=False, tol=1e-10, max_iter=100_000)
    beta = torch.from_numpy(lasso.fit(A.numpy(), y.numpy()).coef_)
    least_h = loss(beta) + strength / math.sqrt(m * n) * beta.norm(1)
    tensor = A.view(rows, m, n)
    for _ in range(60):  # alternate ridge regressions: g falls at every one
        of_u = torch.einsum("rmn,n->rm", tensor, v)
        u = torch.linalg.solve(of_u.T @ of_u + strength * identity(m), of_u.T @ y)
        of_v = torch.einsum("rmn,m->rn", tensor, u)
        v = torch.linalg.solve(of_v.T @ of_v + strength * identity(n), of_v.T @ y)
    least_g = loss(kron(u, v)) + strength * (u.square().sum() + v.square().sum()) / 2
    assert least_g >= least_h - 1e-6
    assert least_g <= loss(torch.zeros(m * n, dtype=double)) + 1e-9


@few
@given(S=size, C=size, seed=seeds)
def test_proposition_3_3_has_the_lemmas_constant(S, C, seed):
    W, V = drawn(seed, (S, S), (C, C))
    assert (W.square().sum() + V.square().sum()) / 2 >= kron(V, W).abs().sum() / (C * S) * (1 - 1e-12)


@few
@given(a=size, b=size, c=size, d=size, seed=seeds)
def test_eq_s_34_a_hadamard_product_is_the_kronecker_product(a, b, c, d, seed):
    W, V = drawn(seed, (a, b), (c, d))
    u = vec(kron(W, torch.ones(c, d, dtype=double)))
    v = vec(kron(torch.ones(a, b, dtype=double), V))
    torch.testing.assert_close(u * v, vec(kron(W, V)))
    # Eq. (S.31) holds for these norms; the traces printed there are smaller by a factor C.
    torch.testing.assert_close(u.square().sum(), c * d * W.square().sum())
    torch.testing.assert_close(v.square().sum(), a * b * V.square().sum())


def test_eqs_s_31_and_s_37_as_printed_lose_a_factor():
    (W,) = drawn(0, (3, 3))
    ones = torch.ones(5, 5, dtype=double)
    torch.testing.assert_close(torch.trace(kron(W.T @ W, ones)), 5 * W.square().sum())  # printed: 25
    (beta,) = drawn(1, (7,))
    u = beta.abs().sqrt()
    v = beta / u
    # The least (|u|² + |v|²) / 2 with u ⊙ v = β is |β|_1, so that λ/(2C²) of (S.35) becomes λ/C², as in eq. (11).
    torch.testing.assert_close((u.square().sum() + v.square().sum()) / 2, beta.norm(1))


def test_a_weight_that_does_not_fit_is_refused_in_a_line(monkeypatch):
    with torch.device("meta"):
        (huge,) = arrange_tokens(4096, 4096, 4096).layers(bias=False)
    with pytest.raises(
        UserError, match=r"a W_eff of 16,777,216×16,777,216 needs 1,125,899.9 GB; this machine has"
    ) as error:
        isthmus.effective_weight(huge)
    assert "\n" not in str(error.value)
    (small,) = arrange_tokens(2, 2, 2).layers(bias=False)
    monkeypatch.setattr(weights, "_free_bytes", lambda: 63)
    with pytest.raises(UserError, match=r"a W_eff of 4×4 needs 0.0 GB; this machine has 0.0 GB free"):
        isthmus.effective_weight(small)
    monkeypatch.setattr(weights, "_free_bytes", lambda: 64)
    assert isthmus.effective_weight(small).shape == (4, 4)
    with pytest.raises(UserError, match="a Linear has no W_eff"):
        isthmus.effective_weight(torch.nn.Linear(2, 2))
