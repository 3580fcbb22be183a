"""How an actor brings its rollouts to the shards. Knows of shards `insert` and `may_insert`, and how they are lost.

All rollouts of a source go to one shard, so that they go on there from one to the next; when it is lost, to another.
A rollout has the same number whenever it is sent, so what a shard got before it is not stored again. An actor that takes
the place of a lost one is another source: a source never starts to count anew.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from parl_lite.errors import ActorLostError

from .actor import Wait
from .stacks import pack_frames

_PAUSE = 0.005
"""Seconds between two questions whether an insert may go on."""


class ReplayWriter:
    """Sends the rollouts of one source.

    Args:
        shards: handles of ReplayShard actors; may be none for now.
        source: number of this actor, unique in the run, also over its resumptions.
        number: of the next rollout.
        frame_stack: that of the buffers, if they have one: each frame of stacked observations is then sent once.

    Attributes:
        n_waits: how often a shard answered that inserts are ahead.
    """

    def __init__(self, shards: Sequence[Any], source: int, number: int = 0, *, frame_stack: int = 0) -> None:
        self._frame_stack = frame_stack
        self.source, self.number = source, number
        self.n_waits = 0
        self._pause = threading.Event()
        self._must_ask: int | None = None
        self.set_shards(shards)

    def set_shards(self, shards: Sequence[Any]) -> None:
        """Write to these shards from now on, for example after a lost one was made anew."""
        self._shards = list(shards)
        self._must_ask = None

    def offer(self, rollout: Mapping[str, Any]) -> bool:
        """Return whether the rollout was taken; if not, offer the same again before any other.

        Where the answer before said so, a small call asks first, so that a rollout is not sent in vain again and again.
        """
        while self._shards:
            shard = self._shards[self.source % len(self._shards)]
            try:
                if self._must_ask is not None and not shard.may_insert(self._must_ask):
                    return False
                answer = shard.insert(self._packed(rollout), self.source, self.number)
            except ActorLostError:
                self._shards.remove(shard)
                self._must_ask = None
                continue
            n_steps = int(rollout["reward"].size)
            if isinstance(answer, Wait):
                self.n_waits += 1
                self._must_ask = n_steps
                return False
            self._must_ask = None if answer.go_on else n_steps
            self.number += 1
            return True
        return False

    def _packed(self, rollout: Mapping[str, Any]) -> Mapping[str, Any]:
        return pack_frames(rollout, self._frame_stack) if self._frame_stack else rollout

    def write(self, rollout: Mapping[str, Any], timeout: float | None = None) -> None:
        """Send the rollout, and wait until it is taken.

        Raises:
            TimeoutError: it was not within `timeout` seconds; it may be offered again.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.offer(rollout):
            if deadline is not None and time.monotonic() >= deadline:
                where = f"{len(self._shards)} shards" if self._shards else "no shard: all are lost"
                raise TimeoutError(f"rollout {self.number} of source {self.source} was not taken within {timeout} s by {where}")
            self._pause.wait(_PAUSE)
