"""Numbers that change over a run: constant, linear, piecewise linear. Knows nothing else.

A schedule is called with the steps so far and returns the number. They are frozen, so they can be settings.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

Schedule = Callable[[float], float]


@dataclass(frozen=True)
class Constant:
    """Always `value`."""

    value: float

    def __call__(self, step: float) -> float:
        return self.value


@dataclass(frozen=True)
class Linear:
    """From `start` to `end` within `steps`, then `end`; zero steps give `end` at once."""

    start: float
    end: float
    steps: float

    def __call__(self, step: float) -> float:
        if step >= self.steps:
            return self.end
        return self.start + max(0.0, step / self.steps) * (self.end - self.start)


@dataclass(frozen=True)
class Piecewise:
    """Linear between `points` (step, value), constant before the first and after the last; steps must not fall.

    Two points of the same step make a jump, to the second value.
    """

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        steps = [step for step, _ in self.points]
        if not steps or steps != sorted(steps):
            raise ValueError(f"a schedule needs points in the order of their steps, these are {self.points}")

    def __call__(self, step: float) -> float:
        place = bisect_right([at for at, _ in self.points], step)
        if place == 0 or place == len(self.points):
            return self.points[max(0, place - 1)][1]
        (before, low), (after, high) = self.points[place - 1 : place + 1]
        return low + (step - before) / (after - before) * (high - low)
