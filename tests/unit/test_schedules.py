"""Schedules by hand."""

from __future__ import annotations

import pytest

from parl_lite.agents.schedules import Constant, Linear, Piecewise


def test_a_constant_does_not_change():
    assert [Constant(0.5)(step) for step in (0, 1e9)] == [0.5, 0.5]


def test_a_line_ends_where_it_should_and_stays_there():
    assert [Linear(1.0, 0.2, 100)(step) for step in (-1, 0, 25, 100, 1000)] == pytest.approx([1.0, 1.0, 0.8, 0.2, 0.2])
    assert Linear(1.0, 0.2, 0)(0) == 0.2


def test_pieces_are_lines_between_points():
    schedule = Piecewise(((10, 1.0), (20, 2.0), (40, 0.0)))
    assert [schedule(step) for step in (0, 10, 15, 20, 30, 40, 99)] == [1, 1, 1.5, 2, 1, 0, 0]


def test_two_points_of_one_step_make_a_jump():
    schedule = Piecewise(((0, 5.0), (10, 5.0), (10, 3.0)))
    assert [schedule(step) for step in (9, 10, 11)] == [5, 3, 3]
    assert Piecewise(((7, 4.0),))(0) == 4.0


@pytest.mark.parametrize("points", [(), ((2, 0.0), (1, 0.0))])
def test_points_out_of_order_are_refused(points):
    with pytest.raises(ValueError, match="in the order of their steps"):
        Piecewise(points)
