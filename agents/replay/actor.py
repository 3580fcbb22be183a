"""One shard of a replay, as an actor. Knows a buffer and a limiter; nothing of clusters, actors and learners.

It is a plain class: `training.py` makes a remote class of it, tests call it as it is.

    actors   ──insert(rollout, source, number)──▶  ┐                ┌──  sample(n)  ◀── learners
                                                   ├─ limiter, buffer ─┤
    actors   ◀── Receipt, or Wait ───────────────  ┘                └──  Sample, or Wait ──▶

A shard runs one call at a time, so no call ever waits in it for another. One that may not go on yet is answered at once
with `Wait`, and nothing has happened; its caller asks again, an actor by the small call `may_insert`. An insert is all or
nothing. It may be sent again when its answer was lost: what is there already is answered with a Receipt of 0 items.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from parl_lite.errors import ParlError

from .buffer import Batch, ReplayBuffer
from .rate_limiter import RateLimiter
from .uniform import Array


class Wait(NamedTuple):
    """The answer to a call that may not go on yet."""

    reason: str
    """"inserts are ahead", "samples are ahead" or "too few items" """


class Receipt(NamedTuple):
    """The answer to an insert."""

    n_items: int
    """Items that came with it: 0 if the rollout was there already, and where they are not complete yet."""
    go_on: bool
    """Whether another insert of the same size would be taken now."""


class Sample(NamedTuple):
    """A batch of one shard, and what is needed to weigh it against those of others."""

    batch: Batch
    probability: Array
    """(N,) float64, within this shard"""
    total: float
    """the mass of this shard: sum of p^alpha, or the number of items"""
    size: int
    """items of this shard"""


class ReplayShard:
    """A buffer behind a rate limiter.

    Args:
        make_buffer: makes the buffer; picklable, to get to another machine.
        limiter: without, samples and inserts go as fast as they come.
        folder: of a saved shard to go on from, if there is one.
    """

    def __init__(
        self,
        make_buffer: Callable[[], ReplayBuffer],
        limiter: RateLimiter | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self.buffer = make_buffer()
        self.limiter = limiter or RateLimiter(min_size=self.buffer.min_size)
        if not self.buffer.min_size <= self.limiter.min_size <= self.buffer.capacity:
            sizes = f"the buffer's min_size {self.buffer.min_size} and its capacity {self.buffer.capacity}"
            raise ParlError(f"the limiter's min_size is {self.limiter.min_size}: it must lie between {sizes}")
        self.n_waits = {"insert": 0, "sample": 0}
        if folder is not None and os.path.exists(os.path.join(folder, "replay.json")):
            self.restore(folder)

    def may_insert(self, n_steps: int = 1) -> bool:
        """Return whether a rollout of `n_steps` steps, T * B, may be inserted now."""
        return self.limiter.may_insert(self.buffer.n_items_of(n_steps), len(self.buffer))

    def insert(self, rollout: Mapping[str, Any], source: int = 0, number: int | None = None) -> Receipt | Wait:
        """Store a rollout of an actor; see `ReplayBuffer.add`."""
        n_steps = int(np.size(rollout["reward"])) if "reward" in rollout else 1
        if not self.may_insert(n_steps):
            self.n_waits["insert"] += 1
            return Wait("inserts are ahead")
        before = self.buffer.n_inserted
        self.buffer.add(rollout, source, number)
        n_items = self.buffer.n_inserted - before
        self.limiter.inserted += n_items
        return Receipt(n_items, self.may_insert(n_steps))

    def sample(self, n: int) -> Sample | Wait:
        """Return a batch of `n` items."""
        if not self.limiter.may_sample(n, len(self.buffer)):
            self.n_waits["sample"] += 1
            return Wait("too few items" if len(self.buffer) < self.limiter.min_size else "samples are ahead")
        batch, probability = self.buffer.draw(n)
        self.limiter.sampled += n
        return Sample(batch, probability, self.buffer.sampler.total, len(self.buffer))

    def mass(self) -> tuple[float, int]:
        """Return total and size, as they come with a Sample."""
        return self.buffer.sampler.total, len(self.buffer)

    def update_priorities(self, index: Array, priority: Array) -> int:
        """Give items new priorities; return how many were still there."""
        return self.buffer.update_priorities(index, priority)

    def figures(self) -> dict[str, Any]:
        """Return how the shard is doing.

        size, capacity       items that can be drawn, rows there is room for
        inserted, consumed   items that came and that were drawn, in the whole run, saves included
        total                the mass of all items
        surplus              of the limiter: consumed items that inserts make up for and that were not drawn
        insert_waits, sample_waits   calls that were answered with Wait
        sources              actors that have inserted
        """
        buffer = self.buffer
        return {
            "size": len(buffer),
            "capacity": buffer.capacity,
            "inserted": buffer.n_inserted,
            "consumed": buffer.n_drawn,
            "total": buffer.sampler.total,
            "surplus": self.limiter.surplus,
            "insert_waits": self.n_waits["insert"],
            "sample_waits": self.n_waits["sample"],
            "sources": len(buffer.store.sources),
            "next_source": max(buffer.store.sources, default=-1) + 1,
        }

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the shard to a folder of this machine, atomically."""
        limiter = self.limiter
        self.buffer.save(
            folder,
            {
                "inserted": limiter.inserted,
                "sampled": limiter.sampled,
                "largest": [limiter.largest_insert, limiter.largest_sample],
                "n_waits": self.n_waits,
            },
        )

    def restore(self, folder: str | os.PathLike[str]) -> None:
        """Go on from what `save` wrote."""
        facts = self.buffer.restore(folder)
        self.limiter.inserted, self.limiter.sampled = facts["inserted"], facts["sampled"]
        self.limiter.largest_insert, self.limiter.largest_sample = facts["largest"]
        self.n_waits = facts["n_waits"]
