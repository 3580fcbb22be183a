"""When something is due, for things that are named: the first is found at once, however many there are. Pure; time comes in."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable, KeysView
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)

_FEW = 64


class Timetable(Generic[KeyT]):
    """Keys and the time of each. Setting one costs O(log n): an entry that no longer counts stays until it is the first."""

    def __init__(self) -> None:
        self._times: dict[KeyT, float] = {}
        self._heap: list[tuple[float, int, KeyT]] = []
        self._numbers = itertools.count()  # of two entries of one time, the older comes first

    def __len__(self) -> int:
        return len(self._times)

    def keys(self) -> KeysView[KeyT]:
        """Return what has a time."""
        return self._times.keys()

    def set(self, key: KeyT, when: float | None) -> None:
        """Let a key be due at a time instead of any other; None: never."""
        if when is None:
            self._times.pop(key, None)
        elif self._times.get(key) != when:
            self._times[key] = when
            heapq.heappush(self._heap, (when, next(self._numbers), key))
            if len(self._heap) > 2 * len(self._times) + _FEW:
                self._heap = [entry for entry in self._heap if self._counts(entry)]
                heapq.heapify(self._heap)

    def first(self) -> float | None:
        """Return when the first key is due, None without keys."""
        while self._heap and not self._counts(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop(self, now: float) -> KeyT | None:
        """Take out the first key that is due, and return it; None when none is."""
        first = self.first()
        if first is None or first > now:
            return None
        key = heapq.heappop(self._heap)[2]
        del self._times[key]
        return key

    def _counts(self, entry: tuple[float, int, KeyT]) -> bool:
        return self._times.get(entry[2]) == entry[0]
