"""Energies of Hyper-SET in float64: which updates are their gradients, and where descent is exact."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import isthmus
from isthmus.core.errors import UserError
from isthmus.models.hyper_set import HyperSETConfig, Layer

FIELDS: dict[str, Any] = {
    "input_shape": (7,),
    "output_shape": (7, 4),
    "vocabulary": 5,
    "d": 12,
    "num_heads": 3,
    "iterations": 4,
}


def layer(seed=0, **fields):
    torch.manual_seed(seed)
    return Layer(HyperSETConfig(name="hyper_set", **FIELDS | fields)).double()


def tokens(seed=1):
    return torch.randn(2, 7, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def slope(energy, x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(energy(x).sum(), x)[0]


def test_the_attention_update_off_the_sphere_is_minus_the_gradient():
    attention = layer().attention
    attention.norm = torch.nn.Identity()
    expected = slope(lambda x: attention.energy(x, on_sphere=False), tokens())  # the layer subtracts its attention
    torch.testing.assert_close(attention(tokens()), expected)


@pytest.mark.parametrize("ratio", [1, 2.5])
def test_the_feed_forward_update_off_the_sphere_is_minus_the_gradient(ratio):
    forward = layer(ff_ratio=ratio).feed_forward
    forward.norm = torch.nn.Identity()
    torch.testing.assert_close(forward(tokens()), -slope(lambda x: forward.energy(x, on_sphere=False), tokens()))


def test_energies_are_one_number_per_sample_and_equal_the_written_out_sums():
    built = layer()
    attention, feed_forward = built.energies(tokens(), on_sphere=False)
    assert attention.shape == feed_forward.shape == (2,)
    expected, weights = torch.zeros(2, dtype=torch.float64), built.attention.W.weight
    for head in range(3):
        for sample in range(2):
            z = tokens()[sample] @ weights[4 * head : 4 * head + 4].mT
            for i in range(7):
                expected[sample] += 2 * torch.log(torch.stack([torch.exp(z[i] @ z[j] / 2) for j in range(7)]).sum())
    torch.testing.assert_close(attention, expected)
    hidden = tokens() @ built.feed_forward.D.weight.mT
    torch.testing.assert_close(feed_forward, -0.5 * hidden.clamp(min=0).square().sum(dim=(1, 2)))


def test_the_constraint_puts_every_projection_on_its_sphere():
    """So an energy is that of tokens which meet the constraint already, and knows no length."""
    built = layer(ff_ratio=1)
    torch.nn.init.orthogonal_(built.feed_forward.D.weight)
    with torch.no_grad():
        built.attention.W.weight.copy_(built.feed_forward.D.weight)
        heads = built.project(tokens())
        on_spheres = 2 * heads / heads.norm(dim=-1, keepdim=True)  # p = 4; then also ‖Dᵀ x‖ = √12 = √M
        x = on_spheres.transpose(1, 2).flatten(2) @ built.attention.W.weight
        torch.testing.assert_close(built.project(x).norm(dim=-1), torch.full((2, 3, 7), 2.0, dtype=torch.float64))
        for one, other in zip(built.energies(x), built.energies(x, on_sphere=False), strict=True):
            torch.testing.assert_close(one, other)
        for one, other in zip(built.energies(x), built.energies(9 * x), strict=True):
            torch.testing.assert_close(one, other)


def test_with_orthonormal_weights_the_shipped_updates_descend_to_first_order():
    built = layer(step_sizes="fixed")
    torch.nn.init.orthogonal_(built.attention.W.weight)
    torch.nn.init.orthogonal_(built.feed_forward.D.weight)
    for sign, part in ((-1, built.attention), (1, built.feed_forward)):
        for seed in range(5):
            x = tokens(seed)
            step = sign * part(x)
            assert ((step * slope(part.energy, x)).sum(dim=(1, 2)) <= 1e-9).all()
            assert part.energy(x + 1e-4 * step).sum() <= part.energy(x).sum() + 1e-9


def test_with_other_weights_descent_is_not_exact_so_it_is_measured():
    built, cosines = layer(), []
    for seed in range(10):
        update, down = -built.attention(tokens(seed)), -slope(built.attention.energy, tokens(seed))
        cosines.append(torch.nn.functional.cosine_similarity(update.flatten(), down.flatten(), dim=0))
    assert 0 < torch.stack(cosines).mean() < 0.99


def test_all_zero_steps_never_learn_the_time_and_zero_last_does():
    """The trap: with every layer of the step network at zero, those before the last get no gradient, ever."""
    moved = {}
    for init in ("zero_last", "zero_all"):
        torch.manual_seed(0)
        model: Any = isthmus.create_model("hyper_set", **FIELDS, step_sizes="X_0", step_init=init, time_frequencies=8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        x = torch.arange(14).reshape(2, 7) % 5
        before = [model.layers[0].steps.time[0].weight.clone(), model.layers[0].steps.last.weight.clone()]
        assert torch.equal(*(state for _, state in zip(range(2), model.states(x), strict=False))), "steps start at zero"
        for _ in range(4):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x).mT, x % 4).backward()
            optimizer.step()
        after = [model.layers[0].steps.time[0].weight, model.layers[0].steps.last.weight]
        moved[init] = [not torch.equal(*pair) for pair in zip(before, after, strict=True)]
    assert moved == {"zero_last": [True, True], "zero_all": [False, True]}


def test_iterations_are_an_argument():
    torch.manual_seed(0)
    model: Any = isthmus.create_model("hyper_set", **FIELDS | {"layers": 2}, step_sizes="fixed").eval()
    x = torch.arange(14).reshape(2, 7) % 5
    longer = isthmus.create_model("hyper_set", **FIELDS | {"layers": 2, "iterations": 9}, step_sizes="fixed").eval()
    longer.load_state_dict(model.state_dict())
    assert torch.equal(model(x, iterations=9), longer(x))
    assert [name for name, _ in model.trajectory(x, 3)] == [*(f"X_{n}" for n in range(7)), "output"]
    with pytest.raises(UserError, match="iterations=0: must be at least 1"):
        model(x, iterations=0)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"num_heads": 5}, "num_heads=5 does not divide d=12"),
        ({"iterations": 0}, "iterations=0"),
        ({"d": 9, "num_heads": 3}, "d=9 is odd"),
        ({"input_shape": (3, 8, 8)}, "neither an image"),
        ({"output_shape": (6, 4)}, "6 positions, but the input has 7"),
        ({"vocabulary": 0, "input_shape": (3, 9, 9), "patch": 4}, "patch=4 does not divide an image of 9×9"),
    ],
)
def test_what_does_not_fit_is_one_line(fields, said):
    with pytest.raises(UserError, match=said) as error:
        isthmus.create_model("hyper_set", **FIELDS | fields)
    assert "\n" not in str(error.value)
