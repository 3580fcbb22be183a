"""Statistics of the last few values. Knows numpy only."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np


class WindowStat:
    """Mean, least and largest of the last `window_size` values; None before the first."""

    def __init__(self, window_size: int) -> None:
        self.items: deque[Any] = deque(maxlen=window_size)
        self.count = 0

    def add(self, obj: Any) -> None:
        """Take in a number, or an array or tensor that holds one."""
        self.items.append(obj)
        self.count += 1

    @property
    def mean(self) -> float | None:
        """Their mean."""
        return self._of(np.mean)

    @property
    def min(self) -> float | None:
        """The least of them."""
        return self._of(np.min)

    @property
    def max(self) -> float | None:
        """The largest of them."""
        return self._of(np.max)

    def _of(self, statistic: Callable[[list[float]], Any]) -> float | None:
        return float(statistic([float(item) for item in self.items])) if self.items else None
