"""What the wiring `replay` remembers with: buffers from settings, one in this process or several as actors. Knows no actors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

import parl_lite
from parl_lite.agents.atari import atari_game
from parl_lite.agents.replay import (
    PrioritizedSampler,
    RateLimiter,
    ReplayBuffer,
    ReplayClient,
    ReplayShard,
    Sample,
    SequenceReplay,
    TransitionReplay,
    Wait,
    importance_weights,
)
from parl_lite.agents.seeds import sequence_of

SHARD_RANK = 2**28
"""Rank of the random streams of the first shard, above those of all actors."""

Shard = parl_lite.remote_class(ReplayShard)
"""A shard as an actor."""


class LocalReplay:
    """A shard in this process, with the face of a ReplayClient; but it never waits.

    Attributes:
        beta: exponent of the importance weights.
    """

    n_lost = 0

    def __init__(self, shard: ReplayShard, batch_size: int) -> None:
        self.shard, self.batch_size, self.beta = shard, batch_size, 0.4

    def insert(self, rollout: Mapping[str, Any], source: int, number: int) -> bool:
        """Store a rollout; return whether that was possible, or is to be tried again when more was sampled."""
        return not isinstance(self.shard.insert(rollout, source, number), Wait)

    def sample(self) -> dict[str, Any] | None:
        """Return a batch, None if rollouts are due first."""
        answer = self.shard.sample(self.batch_size)
        if not isinstance(answer, Sample):
            return None
        if "weight" in answer.batch:
            answer.batch["weight"] = importance_weights(answer.probability, 1, self.beta)  # their number cancels
        return answer.batch

    def update_priorities(self, index: Any, priority: Any) -> None:
        """Give items new priorities (N,)."""
        self.shard.update_priorities(index, priority)

    def figures(self) -> dict[str, Any]:
        """Return how it is doing, as `ReplayShard.figures`."""
        return self.shard.figures()

    def save(self, folder: str) -> None:
        """Write it to `folder`/shard-0."""
        self.shard.save(f"{folder}/shard-0")

    def close(self) -> None:
        """Do nothing."""


def local_replay(settings: Any, extra: tuple[str, ...], seed: int, saved: str | None) -> LocalReplay:
    """Return the memory in this process; goes on from `saved`, a folder."""
    shard = ReplayShard(partial(make_buffer, settings, extra, seed, 0), limiter_of(settings), saved and f"{saved}/shard-0")
    return LocalReplay(shard, settings.batch_size)


def replay_client(settings: Any, extra: tuple[str, ...], seed: int, saved: Callable[[], str | None]) -> ReplayClient:
    """Return the memory in shards of its own; shards, new ones too, go on from the folder that `saved` tells, if one is there."""

    def make_shard(number: int) -> Any:
        folder = saved()
        make = partial(make_buffer, settings, extra, seed, number)
        return Shard(make, limiter_of(settings), None if folder is None else f"{folder}/shard-{number}")

    how = {"batch_size": settings.batch_size, "prefetch": settings.prefetch, "seed": seed}
    return ReplayClient(make_shard, settings.n_shards, **how)


def make_buffer(settings: Any, extra: tuple[str, ...], seed: int, number: int) -> ReplayBuffer:
    """Return the buffer of one shard; of sequences, where the settings have a length for them."""
    capacity = settings.replay_capacity // max(1, settings.n_shards) + 2
    sampler = PrioritizedSampler(settings.priority_exponent) if settings.priority_exponent else None
    stream: np.random.SeedSequence = sequence_of(seed, SHARD_RANK + number)
    how: dict[str, Any] = {"sampler": sampler, "extra": extra, "seed": stream, "frame_stack": frame_stack_of(settings)}
    if not hasattr(settings, "sequence_length"):
        return TransitionReplay(capacity, n_step=settings.n_step, gamma=settings.gamma, **how)
    length, mix = settings.burn_in + settings.sequence_length, settings.priority_mix
    return SequenceReplay(capacity, length=length, burn_in=settings.burn_in, period=period_of(settings), eta=mix, **how)


def limiter_of(settings: Any) -> RateLimiter:
    """Return the limiter of one shard: exact where one process does everything in turn."""
    n_shards = max(1, settings.n_shards)
    min_size = max(1, settings.learning_starts // (n_shards * period_of(settings)))
    slack = None if settings.n_actors else 0.0
    return RateLimiter(settings.samples_per_insert or None, min_size, slack)


def period_of(settings: Any) -> int:
    """Return how many steps bring one item."""
    return settings.sequence_length - settings.overlap if hasattr(settings, "sequence_length") else 1


def frame_stack_of(settings: Any) -> int:
    """Return how many frames an observation has that are also in those before; 0 where there is nothing to share."""
    return settings.frame_stack if atari_game(settings.env) is not None and settings.frame_stack > 1 else 0
