"""The wishes that wait, in order, and when each is told why. Pure; knows no workers."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import TypeVar

from parl_lite.messages import Needs

from .records import Wish

Key = tuple[bytes, int]
"""A client and the number it gave the wish."""
OuterT = TypeVar("OuterT")
InnerT = TypeVar("InnerT")

_LOOK_INTERVAL = 0.25
"""Counting how many wishes are before each costs a look at all of them, so that many notices share one look."""


class WishQueue:
    """The wishes by client and number, the first first. Finding those of a client, or of one size, costs no look at the rest."""

    def __init__(self) -> None:
        self.wishes: OrderedDict[Key, Wish] = OrderedDict()
        self._of_client: dict[bytes, dict[int, Wish]] = {}
        self._of_size: dict[tuple[int, int], dict[Key, Wish]] = {}
        self._first_place = self._last_place = 0
        self._look_at = math.inf

    def append(self, wish: Wish) -> None:
        """Let a wish wait behind all others."""
        self._last_place += 1
        wish.place = self._last_place
        self._add(wish)

    def put_first(self, wish: Wish) -> None:
        """Let a wish wait before all others."""
        self.remove(wish.client, wish.wish)
        self._first_place -= 1
        wish.place = self._first_place
        self._add(wish)
        self.wishes.move_to_end((wish.client, wish.wish), last=False)

    def remove(self, client: bytes, number: int) -> Wish | None:
        """Take a wish out and return it; None when it does not wait."""
        wish = self.wishes.pop((client, number), None)
        if wish is not None:
            _discard(self._of_client, client, number)
            _discard(self._of_size, _size(wish.needs), (client, number))
        return wish

    def clear(self) -> None:
        """Take all out."""
        self.wishes.clear()
        self._of_client.clear()
        self._of_size.clear()

    def first(self) -> Wish | None:
        """Return the wish that is next."""
        return next(iter(self.wishes.values()), None)

    def of_client(self, client: bytes) -> list[int]:
        """Return the numbers of a client's wishes."""
        return list(self._of_client.get(client, ()))

    def sizes(self) -> Iterator[Needs]:
        """Yield one example of needs for each number of CPUs and GPUs that is wanted."""
        for wishes in list(self._of_size.values()):
            yield next(iter(wishes.values())).needs

    def of_size(self, needs: Needs) -> list[Wish]:
        """Return the wishes for so many CPUs and GPUs."""
        return list(self._of_size.get(_size(needs), {}).values())

    # --- notices -------------------------------------------------------------------------------------------

    def next_look(self) -> float | None:
        """Return when `notices` may have any."""
        return self._look_at if self.wishes else None

    def notices(self, now: float, interval: float) -> Iterable[tuple[int, Wish]]:
        """Return the wishes that are to be told why they wait, and how many are before each; again after `interval`."""
        if now < self._look_at:
            return []
        found = []
        next_notice = math.inf
        for n_before, wish in enumerate(self.wishes.values()):
            if now >= wish.next_notice:
                wish.next_notice = now + interval
                found.append((n_before, wish))
            if wish.next_notice < next_notice:
                next_notice = wish.next_notice
        self._look_at = max(next_notice, now + _LOOK_INTERVAL)
        return found

    def check(self) -> None:
        """Assert that the order is that of the places, and that the indices agree with it."""
        places = [wish.place for wish in self.wishes.values()]
        assert places == sorted(set(places))
        assert all((wish.client, wish.wish) == key for key, wish in self.wishes.items())
        parts = [*self._of_client.values()], [*self._of_size.values()]
        for some in parts:
            assert all(some), "an empty part was kept"
            assert sorted(wish.place for part in some for wish in part.values()) == places
        assert all(wish.next_notice >= self._look_at - _LOOK_INTERVAL for wish in self.wishes.values())

    # --- within --------------------------------------------------------------------------------------------

    def _add(self, wish: Wish) -> None:
        key = wish.client, wish.wish
        self.wishes[key] = wish
        self._of_client.setdefault(wish.client, {})[wish.wish] = wish
        self._of_size.setdefault(_size(wish.needs), {})[key] = wish
        self._look_at = min(self._look_at, wish.next_notice)


def _size(needs: Needs) -> tuple[int, int]:
    return needs.n_cpu, needs.n_gpu


def _discard(index: dict[OuterT, dict[InnerT, Wish]], outer: OuterT, inner: InnerT) -> None:
    """Take an entry out of a part of an index, and the part with its last entry."""
    part = index[outer]
    del part[inner]
    if not part:
        del index[outer]
