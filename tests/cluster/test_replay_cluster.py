"""Replay on real actors: kills of a shard and of an actor while rollouts are on their way, saves, and back-pressure."""

from __future__ import annotations

import os
import signal
from functools import partial

import numpy as np
import pytest
from conftest import until

import parl_lite
from parl_lite.agents.replay import (
    PrioritizedSampler,
    RateLimiter,
    Receipt,
    ReplayClient,
    ReplayShard,
    ReplayWriter,
    TransitionReplay,
    Wait,
)


@parl_lite.remote_class
class Shard(ReplayShard):
    """A shard that can be watched and killed."""

    def pid(self) -> int:
        return os.getpid()

    def rows(self) -> list[tuple[float, int]]:
        """Return (actor, count) of all rows there are, in order."""
        buffer = self.buffer
        obs = buffer._read(np.flatnonzero(buffer.sampler.present))["obs"]
        return sorted((float(actor), int(count)) for actor, count in obs)


@parl_lite.remote_class
class Actor:
    """Counts, and writes rollouts of 10 steps of which each observation is (rank, count)."""

    def __init__(self, shards, rank: int) -> None:
        self.rank, self.count = rank, 0
        self.writer = ReplayWriter(shards, rank)

    def pid(self) -> int:
        return os.getpid()

    def set_shards(self, shards) -> None:
        self.writer.set_shards(shards)

    def run(self, n_rollouts: int, timeout: float = 60.0) -> int:
        """Write rollouts; return how many steps were made in all."""
        for _ in range(n_rollouts):
            self.writer.write(rollout(self.rank, self.count), timeout)
            self.count += 10
        return self.count


def rollout(rank: int, count: int) -> dict:
    obs = np.stack([np.full(11, rank), np.arange(count, count + 11)], axis=-1).astype(np.float32)
    none = np.zeros((10, 1), bool)
    flags = {"terminated": none, "truncated": none}
    columns = {"obs": obs[:, None], "action": np.zeros((10, 1), np.int64), "reward": np.ones((10, 1), np.float32)}
    return {**columns, **flags, "priority": np.full((10, 1), 1.0 + rank)}


def make_buffer(seed: int = 0) -> TransitionReplay:
    return TransitionReplay(5000, sampler=PrioritizedSampler(alpha=1.0), n_step=3, seed=seed)


def make_shard(number: int, folder=None, limiter=None) -> Shard:
    return Shard(partial(make_buffer, number), limiter, None if folder is None else f"{folder}/shard-{number}")


def test_a_batch_of_two_shards_is_learned_from_and_its_priorities_go_back(cluster):
    with ReplayClient(make_shard, 2, batch_size=64) as client:
        actors = [Actor(client.shards, rank) for rank in range(2)]
        assert [future.result() for future in [actor.futures.run(5) for actor in actors]] == [50, 50]
        batch = client.sample(timeout=60)
        assert batch["obs"].shape == (64, 2)
        assert set(batch["obs"][:, 0].tolist()) == {0.0, 1.0}
        client.update_priorities(batch["index"], np.full(64, 5.0))
        figures = client.figures()
        assert (figures["inserted"], figures["size"], figures["sources"], figures["shards"]) == (100, 100, 2, 2)
        assert figures["consumed"] >= 64
        assert figures["total"] > 150


def test_an_answer_is_a_type_of_its_own_on_this_side_too(cluster):
    shard = make_shard(0, limiter=RateLimiter(1.0, min_size=10, error_buffer=10.0))
    assert shard.sample(4) == Wait("too few items")
    assert type(shard.sample(4)) is Wait
    assert type(shard.insert(rollout(0, 0), 0, 0)) is Receipt
    assert shard.insert(rollout(0, 10), 0, 1) == Receipt(10, go_on=False)
    assert type(shard.insert(rollout(0, 20), 0, 2)) is Wait
    shard.destroy()


def test_a_killed_shard_goes_on_from_its_save_and_nothing_is_there_twice(cluster, tmp_path):
    with ReplayClient(partial(make_shard, folder=tmp_path), 1, batch_size=16) as client:
        actor = Actor(client.shards, 3)
        actor.run(4)
        client.save(str(tmp_path))
        actor.run(2)
        os.kill(client.shards[0].pid(), signal.SIGKILL)
        running = actor.futures.run(3, timeout=0.1)  # finds no shard until it is told of the new one
        while client.n_lost == 0:
            client.sample(timeout=60)
        with pytest.raises(parl_lite.RemoteError, match="no shard: all are lost"):
            running.result()
        actor.set_shards(client.shards)
        actor.run(2)
        rows = client.shards[0].rows()
        assert rows == sorted({(3.0, count) for count in [*range(40), *range(60, 80)]})
        assert client.insert(rollout(3, 0), 3, 0).n_items == 0  # sent again: it is there
        assert client.sample(timeout=60)["weight"].shape == (16,)


def test_the_learner_goes_on_with_one_shard_when_the_other_is_killed(cluster):
    with ReplayClient(make_shard, 2, batch_size=16, recreate=False) as client:
        actors = [Actor(client.shards, rank) for rank in range(2)]
        for future in [actor.futures.run(3) for actor in actors]:
            future.result()
        client.sample(timeout=60)
        os.kill(client.shards[0].pid(), signal.SIGKILL)
        for future in [actor.futures.run(3) for actor in actors]:
            future.result()  # the writer of actor 0 goes to the other shard by itself
        for _ in range(8):
            batch = client.sample(timeout=60)
        assert (client.n_lost, len(client.shards)) == (1, 1)
        assert set(batch["obs"][:, 0].tolist()) <= {0.0, 1.0}
        rows = client.shards[0].rows()
        assert rows == [(0.0, count) for count in range(30, 60)] + [(1.0, count) for count in range(60)]


def test_a_killed_actor_leaves_whole_rollouts_only(cluster):
    with ReplayClient(make_shard, 1, batch_size=16) as client:
        actor, other = Actor(client.shards, 0), Actor(client.shards, 1)
        pid = actor.pid()
        running = actor.futures.run(100_000)
        other.run(2)
        until(lambda: client.figures()["inserted"] > 100, 20, "the actor has written")
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(parl_lite.ActorLostError):
            running.result()
        other.run(2)
        rows = client.shards[0].rows()
        counts = [count for rank, count in rows if rank == 0]
        assert len(rows) == len(set(rows))
        assert counts == list(range(counts[0], counts[0] + len(counts)))
        assert (counts[-1] + 1) % 10 == 0
        assert [count for rank, count in rows if rank == 1] == list(range(40))
        client.sample(timeout=60)


def test_actors_wait_for_a_learner_that_is_slow(cluster):
    limiter = RateLimiter(samples_per_insert=2.0, min_size=50, error_buffer=60.0)
    with ReplayClient(partial(make_shard, limiter=limiter), 1, batch_size=20) as client:
        actor = Actor(client.shards, 0)
        running = actor.futures.run(30)
        for _ in range(12):
            client.sample(timeout=60)
            figures = client.figures()
            assert 40 <= figures["surplus"] <= 160
        assert not running.done()
        assert figures["inserted"] < 300
        while not running.done():
            client.sample(timeout=60)
        assert running.result() == 300
        assert client.figures()["insert_waits"] <= 1  # what is sent is mostly taken; the rest are small calls
