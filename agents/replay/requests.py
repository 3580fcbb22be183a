"""Batches under way to several shards: who gives how much. Knows no calls; `client.py` makes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from parl_lite.errors import ActorLostError

from .actor import Sample
from .uniform import Array


@dataclass(eq=False)
class Shard:
    """One shard, from when it was made until it is lost."""

    number: int
    """Its place, from 0."""
    key: int
    """Never used again: an index of a lost shard must not hit another."""
    actor: Any
    total: float = 0.0
    size: int = 0
    proven: bool = False
    """Whether it ever answered."""


@dataclass(eq=False)
class Part:
    """The part of a batch that one shard gives; n = 0 only asks for its mass."""

    shard: Shard
    n: int
    future: Any
    """None: it is to be asked again, since it answered with Wait."""
    sample: Sample | None = None


@dataclass(eq=False)
class Request:
    """A batch under way."""

    parts: list[Part]
    shares: dict[Shard, float]
    """q of each shard; they sum to 1."""


class Lost:
    """Stands for the future of a call that could not be made."""

    def __init__(self, loss: ActorLostError) -> None:
        self._loss = loss

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        raise self._loss


def allot(n: int, shares: Array, offset: float) -> Array:
    """Return whole numbers (S,) that sum to `n` and are n * shares (S,) on average over `offset` in [0, 1).

    Points at offset, offset + 1, ... are laid over the running sum of n * shares; each share gets those in it.
    """
    borders = np.cumsum(shares) * n
    borders[-1] = n
    below = np.clip(np.ceil(borders - offset), 0, n).astype(np.int64)
    return np.diff(below, prepend=0)
