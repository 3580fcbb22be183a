"""Several shards of a replay as one, for a learner. Knows of shards the methods of `ReplayShard`, and how they are lost.

A batch of N items is drawn from all shards in proportion to their masses. The share q of a shard becomes a whole number of
items by systematic sampling, so on average it is N q, exactly. An item with probability p within its shard then has the
probability q p in all, whatever the masses were when the call was made, and from this its importance weight is computed:
shards need not agree on anything.

    learner (this process)                              shards
      sample()             ◀── sample(n), mass(); k batches in flight ──  each gives its part of a batch
      update_priorities()  ──▶ update_priorities(index, priority) ──▶     not waited for

A shard that is lost is made anew by `make_shard`, which may let it go on from its save. Its part of batches under way is
drawn from the others, or anew when it is the only one.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np

import parl_lite
from parl_lite.errors import ActorLostError, ResourceError

from .actor import Sample, Wait
from .batches import join
from .prioritized import importance_weights
from .requests import Lost, Part, Request, Shard, allot
from .uniform import Array

logger = logging.getLogger("parl_lite.agents")

MAX_STILLBORN = 3
"""So many shards in a row may be lost before they answered anything."""

_PAUSE = 0.005
"""Seconds until a shard is asked again that answered with Wait."""

_KEY_SHIFT = 44
"""An index is the serial of a row with the key of its shard above these bits: 17 trillion rows, half a million shards."""


class ReplayClient:
    """Draws batches from shards.

    Args:
        make_shard: makes a remote ReplayShard from its number, 0 to n_shards - 1.
        n_shards: how many.
        batch_size: N.
        prefetch: k, batches asked for before they are needed.
        beta: exponent of the importance weights; may be set to another value at any time.
        recreate: whether a lost shard is made anew; without, the others go on alone.
        seed: of how batches are shared out among shards.

    Attributes:
        n_lost: shards lost so far.
    """

    def __init__(
        self,
        make_shard: Callable[[int], Any],
        n_shards: int,
        *,
        batch_size: int,
        prefetch: int = 2,
        beta: float = 0.4,
        recreate: bool = True,
        seed: int = 0,
    ) -> None:
        self.batch_size, self.beta = batch_size, beta
        self.n_lost = 0
        self._make_shard, self._recreate, self._prefetch = make_shard, recreate, prefetch
        self._random = np.random.default_rng(seed)
        self._pause = threading.Event()
        self._stillborn = 0
        self._next_key = 0
        self._requests: deque[Request] = deque()
        self._updates: deque[tuple[Shard, Any]] = deque()
        self._shards: list[Shard] = []
        try:
            for number in range(n_shards):
                self._shards.append(self._new_shard(number))
        except BaseException:
            self.close()
            raise

    @property
    def shards(self) -> list[Any]:
        """Handles of the shards, for writers; others after a loss, which `n_lost` tells."""
        return [shard.actor for shard in self._shards]

    def insert(self, rollout: Mapping[str, Any], source: int = 0, number: int | None = None) -> Any:
        """Send a rollout to the shard of its source; return its Receipt or Wait. Actors use a ReplayWriter instead."""
        while True:
            shard = self._shards[source % len(self._shards)]
            try:
                return shard.actor.insert(rollout, source, number)
            except ActorLostError as loss:
                self._lose(shard, loss)

    def sample(self, timeout: float | None = None) -> dict[str, Any]:
        """Return the next batch, with `index` for `update_priorities`, and `weight` where the shards are prioritized.

        Waits until the shards have enough, and may give it by their limiters.

        Raises:
            TimeoutError: there is no batch within `timeout` seconds; nothing is lost, ask again.
            RemoteError: a shard raised.
            ActorLostError: no shard is left, or they are lost again and again.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            while len(self._requests) <= self._prefetch:
                self._requests.append(self._new_request())
            request = self._requests[0]
            if self._complete(request):
                self._requests.popleft()
                if request.shares:
                    return self._batch(request)
                self._wait(deadline)  # all shards are empty
            else:
                futures = [part.future for part in request.parts if part.sample is None and part.future is not None]
                self._wait(deadline, [future for future in futures if not future.done()])

    def update_priorities(self, index: Array, priority: Array) -> None:
        """Give items new priorities (N,), without waiting; those of lost shards are left out."""
        index, priority = np.asarray(index), np.asarray(priority)
        keys = index >> _KEY_SHIFT
        for shard in list(self._shards):
            mine = keys == shard.key
            if mine.any():
                future = self._call(shard, "update_priorities", index[mine] - (shard.key << _KEY_SHIFT), priority[mine])
                self._updates.append((shard, future))
        while self._updates and (len(self._updates) > 64 or self._updates[0][1].done()):
            self._result(*self._updates.popleft())

    def figures(self) -> dict[str, Any]:
        """Return how the replay is doing: sums over all shards, and `shards`, `lost` and `next_source`."""
        all_figures = [figures for figures in map(self._figures_of, list(self._shards)) if figures]
        names = ("size", "capacity", "inserted", "consumed", "total", "surplus", "insert_waits", "sample_waits", "sources")
        sums = {name: sum(figures[name] for figures in all_figures) for name in names}
        next_source = max((figures["next_source"] for figures in all_figures), default=0)
        return {**sums, "shards": len(self._shards), "lost": self.n_lost, "next_source": next_source}

    def save(self, folder: str) -> None:
        """Let every shard write itself to `folder`/shard-NUMBER, on its own machine."""
        futures = [shard.actor.futures.save(f"{folder}/shard-{shard.number}") for shard in self._shards]
        for future in futures:
            future.result()

    def close(self) -> None:
        """End the shards; a second time does nothing."""
        shards, self._shards = self._shards, []
        self._requests.clear()
        self._updates.clear()
        for shard in shards:
            shard.actor.destroy()

    def __enter__(self) -> ReplayClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # --- batches under way ---------------------------------------------------------------------------------

    def _new_request(self) -> Request:
        totals = np.array([shard.total for shard in self._shards])
        if not totals.sum() > 0:
            return Request([self._ask(shard, 0) for shard in self._shards], {})
        shares = totals / totals.sum()
        counts = allot(self.batch_size, shares, self._random.random())
        parts = [self._ask(shard, int(n)) for shard, n in zip(self._shards, counts, strict=True)]
        return Request(parts, dict(zip(self._shards, shares.tolist(), strict=True)))

    def _ask(self, shard: Shard, n: int) -> Part:
        return Part(shard, n, self._call(shard, "sample", n) if n else self._call(shard, "mass"))

    def _complete(self, request: Request) -> bool:
        """Take what has come for a batch; ask again for what has to be; return whether all of it is here."""
        for part in list(request.parts):
            if part.sample is not None or part not in request.parts:
                continue
            if part.shard not in self._shards:
                self._replace(request, part.shard)
            elif part.future is None:
                part.future = self._call(part.shard, "sample", part.n)
            elif part.future.done():
                self._receive(request, part)
        return all(part.sample is not None for part in request.parts)

    def _receive(self, request: Request, part: Part) -> None:
        answer = self._result(part.shard, part.future)
        if answer is None:  # lost
            self._replace(request, part.shard)
        elif isinstance(answer, Wait):
            part.future = None
        elif isinstance(answer, Sample):
            part.sample = answer
            part.shard.total, part.shard.size = answer.total, answer.size
        else:
            part.shard.total, part.shard.size = answer
            request.parts.remove(part)

    def _replace(self, request: Request, lost: Shard) -> None:
        """Draw what a lost shard was to give from the others, and let it count for nothing in this batch."""
        n = sum(part.n for part in request.parts if part.shard is lost)
        request.parts = [part for part in request.parts if part.shard is not lost]
        left = {shard: share for shard, share in request.shares.items() if shard is not lost and shard in self._shards}
        total = sum(left.values())
        request.shares = {shard: share / total for shard, share in left.items() if total > 0}
        if not request.shares:
            request.parts.clear()  # nothing to draw from: the batch begins anew
        elif n:
            counts = allot(n, np.array(list(request.shares.values())), self._random.random())
            request.parts += [self._ask(shard, int(k)) for shard, k in zip(request.shares, counts, strict=True) if k]

    def _batch(self, request: Request) -> dict[str, Any]:
        batches, probabilities = [], []
        for part in request.parts:
            assert part.sample is not None
            batch, probability, _, _ = part.sample
            batches.append({**batch, "index": batch["index"] + (part.shard.key << _KEY_SHIFT)})
            probabilities.append(probability * request.shares[part.shard])
        joined = join(batches)
        if "weight" in joined:
            joined["weight"] = importance_weights(np.concatenate(probabilities), 1, self.beta)  # their number cancels
        return joined

    def _wait(self, deadline: float, pending: Sequence[Any] = ()) -> None:
        """Wait a moment, or until one of the futures is done."""
        if time.monotonic() >= deadline:
            sizes = {shard.number: shard.size for shard in self._shards}
            raise TimeoutError(f"the replay gave no batch in time; items by shard: {sizes}")
        if pending:
            parl_lite.wait(pending, _PAUSE, "FIRST_COMPLETED")
        else:
            self._pause.wait(_PAUSE)

    # --- calls and losses ----------------------------------------------------------------------------------

    def _new_shard(self, number: int) -> Shard:
        self._next_key += 1
        return Shard(number, self._next_key - 1, self._make_shard(number))

    def _call(self, shard: Shard, method: str, *arguments: Any) -> Any:
        """Make a call; what is wrong with the shard shows in its result."""
        try:
            return getattr(shard.actor.futures, method)(*arguments)
        except ActorLostError as loss:
            return Lost(loss)

    def _result(self, shard: Shard, future: Any) -> Any:
        """Return the result of a call, or None when its shard is lost."""
        try:
            answer = future.result()
        except ActorLostError as loss:
            self._lose(shard, loss)
            return None
        shard.proven = True
        self._stillborn = 0
        return answer

    def _figures_of(self, shard: Shard) -> dict[str, Any]:
        return self._result(shard, self._call(shard, "figures")) or {}

    def _lose(self, shard: Shard, loss: ActorLostError) -> None:
        """Take note of a lost shard, once, and make another in its place."""
        if shard not in self._shards:
            return
        self.n_lost += 1
        self._stillborn += not shard.proven
        place = self._shards.index(shard)
        if self._stillborn >= MAX_STILLBORN or (len(self._shards) == 1 and not self._recreate):
            raise loss
        logger.warning("replay shard %d is lost: %s", shard.number, loss)
        shard.actor.destroy()
        self._shards[place : place + 1] = self._successors(shard.number) if self._recreate else []

    def _successors(self, number: int) -> list[Shard]:
        """Return a shard made in the place of a lost one, or none where there is no room and others are left."""
        try:
            return [self._new_shard(number)]
        except ResourceError:
            if len(self._shards) == 1:
                raise
            logger.warning("there is no slot for replay shard %d: the others go on", number)
            return []
