"""Values that change with the number of steps. Plain Python; both are saved and restored with the agent that holds them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any


class LinearDecayScheduler:
    """start_value, falling in a straight line to 0 at max_steps, and 0 from there on."""

    def __init__(self, start_value: float, max_steps: int) -> None:
        if max_steps <= 0:
            raise ValueError(f"max_steps={max_steps} is not above 0")
        self.start_value = start_value
        self.max_steps = max_steps
        self.cur_step = 0

    def step(self, step_num: int = 1) -> float:
        """Go on by `step_num` steps; return the value there."""
        self.cur_step = min(self.cur_step + _at_least_one(step_num), self.max_steps)
        return self.start_value * (1.0 - self.cur_step / self.max_steps)

    def state_dict(self) -> dict[str, Any]:
        """Return where it stands."""
        return {"cur_step": self.cur_step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.cur_step = state["cur_step"]


class PiecewiseScheduler:
    """The value of the last pair whose step was reached.

    Args:
        scheduler_list: pairs (step, value), steps rising; the first value holds from the start.
    """

    def __init__(self, scheduler_list: Sequence[tuple[int, float]]) -> None:
        steps = [step for step, _ in scheduler_list]
        if not steps or any(later <= earlier for earlier, later in pairwise(steps)):
            raise ValueError(f"scheduler_list={list(scheduler_list)} is not a list of (step, value) with rising steps")
        self.scheduler_list = [(int(step), value) for step, value in scheduler_list]
        self.cur_step = 0

    @property
    def cur_value(self) -> float:
        """The value at `cur_step`."""
        reached = [value for step, value in self.scheduler_list if step <= self.cur_step]
        return reached[-1] if reached else self.scheduler_list[0][1]

    def step(self, step_num: int = 1) -> float:
        """Go on by `step_num` steps; return the value there."""
        self.cur_step += _at_least_one(step_num)
        return self.cur_value

    def state_dict(self) -> dict[str, Any]:
        """Return where it stands."""
        return {"cur_step": self.cur_step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.cur_step = state["cur_step"]


def _at_least_one(step_num: int) -> int:
    if step_num < 1:
        raise ValueError(f"step_num={step_num} is not at least 1")
    return int(step_num)
