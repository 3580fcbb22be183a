"""Replay against the plainest thing that moves the same bytes: a prioritized sample against memcpy, a shard against its goals.

python tests/benchmarks/replay.py [--rounds N] [--seconds S]     prints tables and one JSON line

Sample: 512 transitions of stacked frames 84 x 84 x 4 in bytes from 100,000 rows, priorities and weights included; beside it
numpy's copy of as many bytes: in one piece, in one piece from rows of the buffer as they lie, and observation by observation,
as any buffer must.

Shard: one actor process holds the replay, one writes rollouts of 50 steps of 8 environments, this process draws batches of
512; for observations of 4 numbers and for stacked frames. Items a second, both at the same time.
"""

from __future__ import annotations

import json
import statistics
import time
from functools import partial

import click
import numpy as np
from floors import seconds_of

import parl_lite
from parl_lite.agents.replay import PrioritizedSampler, RateLimiter, ReplayClient, ReplayShard, ReplayWriter, TransitionReplay

_BATCH = 512
_STACK = (4, 84, 84)


def make_rollout(shape: tuple[int, ...], dtype, seed: int, n_steps: int = 50, n_envs: int = 8) -> dict:
    """Return a rollout of which the observations, if stacks, share their frames as those of games do."""
    random = np.random.default_rng(seed)
    frames = random.integers(0, 255, (n_steps + 4, n_envs, *shape[-2:])).astype(dtype)
    obs = frames[: n_steps + 1] if len(shape) < 3 else np.stack([frames[k : k + n_steps + 1] for k in range(4)], axis=2)
    none = np.zeros((n_steps, n_envs), bool)
    columns = {"obs": obs.reshape(n_steps + 1, n_envs, *shape), "action": np.zeros(none.shape, np.int64)}
    return {**columns, "reward": np.ones(none.shape, np.float32), "terminated": none, "truncated": none}


def make_buffer(capacity: int) -> TransitionReplay:
    return TransitionReplay(capacity, sampler=PrioritizedSampler(), n_step=3, frame_stack=4, min_size=_BATCH)


def make_shard(capacity: int):
    limiter = RateLimiter(samples_per_insert=1.0, min_size=2 * _BATCH, error_buffer=4 * _BATCH)
    return parl_lite.remote_class(ReplayShard)(partial(make_buffer, capacity), limiter)


@parl_lite.remote_class
class Writer:
    """Inserts the same few rollouts again and again."""

    def __init__(self, shards, shape, dtype):
        self.writer = ReplayWriter(shards, 0, frame_stack=4 if len(shape) == 3 else 0)
        self.rollouts = [make_rollout(shape, dtype, seed) for seed in range(4)]

    def run(self, n_least: int, until: float) -> int:
        """Return how many steps were inserted until a time of the clock; at least so many rollouts."""
        n = 0
        while n < n_least or time.time() < until:
            try:
                self.writer.write(self.rollouts[n % 4], timeout=max(1.0, until - time.time()))
            except TimeoutError:
                break
            n += 1
        return n * self.rollouts[0]["reward"].size


def measure_sample(rounds: int) -> dict[str, float]:
    """Return median milliseconds of a sample and of the copies, in turns."""
    buffer, random = make_buffer(100_000), np.random.default_rng(0)
    for seed in range(245):
        buffer.add(make_rollout(_STACK, np.uint8, seed % 5))
    source = np.ones((2, _BATCH, *_STACK), np.uint8)
    target, order = np.zeros_like(source), random.permutation(2 * _BATCH)
    frames = buffer.store.obs["obs"].arrays["frame"]

    def sample(n_threads, _):
        buffer.store.n_threads = n_threads
        batch = buffer.sample(_BATCH)
        assert batch["obs"].nbytes + batch["next_obs"].nbytes == source.nbytes

    def copy(_):
        np.copyto(target, source)

    def copy_rows(_):
        start = random.integers(0, len(frames) - 8 * _BATCH)
        np.copyto(target.reshape(8 * _BATCH, 84, 84), frames[start : start + 8 * _BATCH])

    def copy_pieces(_):
        np.take(source.reshape(2 * _BATCH, -1), order, axis=0, out=target.reshape(2 * _BATCH, -1), mode="clip")

    works = {"sample, one thread": partial(sample, 1), "sample, two threads": partial(sample, 2)}
    works |= {"memcpy": copy, "memcpy of rows": copy_rows, "memcpy by obs": copy_pieces}
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work(0)
    for _ in range(rounds):
        for name, work in works.items():
            times[name].append(seconds_of(work, 1))
    found = {name: statistics.median(values) * 1e3 for name, values in times.items()}
    pairs = zip(times["sample, two threads"], times["memcpy"], strict=True)
    return {**found, "ratio": statistics.median(mine / bare for mine, bare in pairs)}


def measure_shard(shape: tuple[int, ...], dtype, seconds: float) -> dict[str, float]:
    """Return items inserted and sampled a second through one shard."""
    with ReplayClient(lambda _: make_shard(20_000), 1, batch_size=_BATCH, prefetch=2) as client:
        writer = Writer(client.shards, shape, dtype)
        writer.run(6, 0.0)
        client.sample(timeout=20)
        begin, n, elapsed = time.perf_counter(), 0, 1.0
        inserting = writer.futures.run(0, time.time() + seconds)
        while not inserting.done():
            try:
                batch = client.sample(timeout=0.5)
            except TimeoutError:  # the writer has ended, and samples are as far ahead as they may be
                continue
            client.update_priorities(batch["index"], np.ones(_BATCH))
            n += _BATCH
            elapsed = time.perf_counter() - begin
        return {"inserted": inserting.result() / seconds, "sampled": n / elapsed}


@click.command()
@click.option("--rounds", default=101, help="Samples, and copies.")
@click.option("--seconds", default=3.0, help="Seconds for each kind of observation.")
def main(rounds: int, seconds: float) -> None:
    """Measure and print."""
    sample = measure_sample(rounds)
    print(f"a sample of {_BATCH} transitions of 84 x 84 x 4 bytes, ms")
    for name, value in sample.items():
        print(f"{name:20}{value:10.2f}")
    parl_lite.connect(n_cpu=2)
    kinds = {"4 numbers": ((4,), np.float32), "84 x 84 x 4 bytes": (_STACK, np.uint8)}
    shards = {name: measure_shard(*kind, seconds) for name, kind in kinds.items()}
    parl_lite.disconnect()
    print(f"\n{'one shard, items/s':20}{'inserted':>12}{'sampled':>12}")
    for name, figures in shards.items():
        print(f"{name:20}{figures['inserted']:12,.0f}{figures['sampled']:12,.0f}")
    rounded = {name: {key: round(value) for key, value in figures.items()} for name, figures in shards.items()}
    print(json.dumps({"benchmark": "replay", "sample": {k: round(v, 3) for k, v in sample.items()}, "shard": rounded}))


if __name__ == "__main__":
    main()
