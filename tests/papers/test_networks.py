"""Who is compared with whom."""

from __future__ import annotations

from isthmus.papers.engine.networks import best, meetings, rival
from tests.papers.networks import around, network


def test_a_rival_is_the_best_of_the_other_shape_that_is_hardly_larger():
    wide = network("hourglass", 10, 4, 1, [20.0], params=1_000_000)
    small = network("conventional", 5, 8, 1, [19.0], params=500_000)
    equal = network("conventional", 5, 9, 1, [19.5], params=1_020_000)
    large = network("conventional", 5, 9, 2, [30.0], params=1_020_001)
    others = [wide, small, equal, large, network("hourglass", 10, 4, 2, [40.0], params=1)]
    assert rival(wide, others) is equal
    assert rival(small, others[:1]) is None


def test_a_rival_is_chosen_by_validation_and_not_by_test_data():
    wide = network("hourglass", 10, 4, 1, [20.0])
    lucky = network("conventional", 5, 8, 1, [25.0], chosen_by=18.0)
    chosen = network("conventional", 5, 9, 1, [19.0], chosen_by=19.0)
    assert rival(wide, [lucky, chosen]) is chosen


def test_a_rival_shares_the_settings_that_are_varied():
    wide = network("hourglass", 10, 4, 1, [20.0], norm="rms")
    others = [network("conventional", 5, 8, 1, [value], norm=norm) for value, norm in ((22.0, "none"), (21.0, "rms"))]
    assert rival(wide, others, ["norm"]) is others[1]


def test_of_equals_the_smallest_is_best():
    equals = [network("hourglass", 10, 4, depth, [20.0], params=depth) for depth in (3, 1, 2)]
    assert best(equals).params == 1


def test_two_shapes_meet_where_both_have_networks():
    """Budgets 2, 3 and 4; at 1 there is no conventional network, and beyond 4 no Hourglass was tried."""
    wide = [network("hourglass", 10, 4, p, around(q), params=p) for p, q in ((1, 10), (3, 12), (4, 11))]
    square = [network("conventional", 5, 8, p, around(q), params=p) for p, q in ((2, 11), (4, 13), (9, 20))]
    found = meetings(wide, square)
    assert [(item.budget, item.first.params, item.second.params) for item in found] == [(2, 1, 2), (3, 3, 2), (4, 3, 4)]
    assert [item.interval.decision for item in found] == ["behind", "ahead", "behind"]
    assert meetings(wide, []) == meetings(wide, square[2:]) == []


def test_a_pair_that_meets_at_several_budgets_is_one():
    wide = [network("hourglass", 10, 4, p, [10.0], params=p, chosen_by=10.0) for p in (1, 2, 3)]
    square = [network("conventional", 5, 8, p, [9.0 - p], params=p) for p in (1, 2, 3)]
    assert len(meetings(wide, square)) == 1
