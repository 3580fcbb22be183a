"""How long a block of code takes. Knows a clock and WindowStat."""

from __future__ import annotations

import time
from types import TracebackType

from parl_lite.utils.window_stat import WindowStat


class TimeStat:
    """Measure a `with` block; mean, least and largest of the last `window_size` times, in seconds; None before the first."""

    def __init__(self, window_size: int = 1) -> None:
        self.time_samples = WindowStat(window_size)
        self._start = 0.0

    def __enter__(self) -> TimeStat:
        self._start = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.time_samples.add(time.perf_counter() - self._start)

    @property
    def mean(self) -> float | None:
        """Their mean."""
        return self.time_samples.mean

    @property
    def min(self) -> float | None:
        """The least of them."""
        return self.time_samples.min

    @property
    def max(self) -> float | None:
        """The largest of them."""
        return self.time_samples.max
