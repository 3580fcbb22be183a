"""Large values against memcpy and against a bare pyzmq frame in the same run: arguments, results, put, broadcasts.

python tests/benchmarks/arrays.py [--rounds N]    prints a table and one JSON line; each figure is a median over paired rounds
"""

from __future__ import annotations

import json
import statistics

import click
import numpy as np
from floors import echo, seconds_of

import parl_lite
from parl_lite.proxy import _channel

_LARGE = 100 * 1024 * 1024
_ROLLOUT = 512 * 1024
_WEIGHTS = 8 * 1024 * 1024
_N_ACTORS = 8


@parl_lite.remote_class
class Worker:
    """Gets and gives arrays."""

    def __init__(self) -> None:
        self.arrays: dict[int, np.ndarray] = {}

    def take(self, array):
        """Do nothing with an array."""

    def give(self, size: int):
        """Return an array that is there."""
        if size not in self.arrays:
            self.arrays[size] = np.ones(size, np.uint8)
        return self.arrays[size]

    def take_ref(self, ref):
        """Read one number of each page of a put array, as a copy of it would."""
        array = parl_lite.get(ref)
        return int(array[::4096].sum())

    def nothing(self) -> None:
        """Do nothing."""


@click.command()
@click.option("--rounds", default=7, help="Paired rounds.")
def main(rounds: int) -> None:
    """Measure and print."""
    parl_lite.connect(n_cpu=_N_ACTORS + 1)
    rows: dict[str, list[tuple[float, float]]] = {}
    measure_large(rows, rounds)
    measure_rollouts(rows, rounds)
    measure_broadcast(rows, rounds)
    parl_lite.disconnect()
    report(rows)


def measure_large(rows: dict[str, list[tuple[float, float]]], rounds: int) -> None:
    """100 MB: as an argument, as a result, put, and read through a Ref, each against one memcpy."""
    worker = Worker()
    source = np.random.default_rng(0).integers(0, 255, _LARGE, dtype=np.uint8)
    target = np.zeros_like(source)
    ref = parl_lite.put(source)

    works = {
        "100 MB argument": lambda n: worker.take(source),
        "100 MB result": lambda n: worker.give(_LARGE),
        "100 MB put": lambda n: parl_lite.put(source),
        "100 MB Ref, first read": lambda n: worker.take_ref(ref),
        "100 MB put and read there": lambda n: worker.take_ref(parl_lite.put(source)),
    }

    def floor(n: int) -> None:
        np.copyto(target, source)

    compare(rows, works, floor, rounds, 1)


def measure_rollouts(rows: dict[str, list[tuple[float, float]]], rounds: int) -> None:
    """0.5 MB as an argument and as a result, in two calls, against two bare round trips: the frame there and back, and none."""
    worker = Worker()
    rollout = np.ones(_ROLLOUT, np.uint8)
    channel = _channel(worker)
    lender = channel._lender
    with echo() as dealer:

        def bare(n: int) -> None:
            for _ in range(n):
                dealer.send(rollout, copy=False)
                dealer.recv(copy=False)
                dealer.send(b"next")
                dealer.recv()

        def shared(n: int) -> None:
            channel._lender = lender
            for _ in range(n):
                worker.take(rollout)
                worker.give(_ROLLOUT)

        def by_frames(n: int) -> None:
            channel._lender = None
            for _ in range(n):
                worker.take(rollout)
                worker.give(_ROLLOUT)

        works = {"0.5 MB there and back": shared, "the same by our frames": by_frames}
        compare(rows, works, bare, 3 * rounds, 50)


def measure_broadcast(rows: dict[str, list[tuple[float, float]]], rounds: int) -> None:
    """8 MB of weights to 8 actors, against one memcpy and 8 calls."""
    weights = np.ones(_WEIGHTS // 4, np.float32)
    copy = np.zeros_like(weights)
    with parl_lite.ActorPool(Worker, _N_ACTORS) as pool:
        actors = pool.actors

        def floor(n: int) -> None:
            np.copyto(copy, weights)
            parl_lite.get([actor.futures.nothing() for actor in actors])

        def broadcast(n: int) -> None:
            parl_lite.get(pool.broadcast("take", weights))

        def put(n: int) -> None:
            ref = parl_lite.put(weights)
            parl_lite.get([actor.futures.take(ref) for actor in actors])

        compare(rows, {"8 MB broadcast to 8": broadcast, "8 MB put to 8": put}, floor, 5 * rounds, 1)


def compare(rows, works, floor, rounds: int, n: int) -> None:
    """Measure works and their floor in turns."""
    for work in (*works.values(), floor):
        for _ in range(3):
            work(n)
    for _ in range(rounds):
        bare = seconds_of(floor, n) / n
        for name, work in works.items():
            rows.setdefault(name, []).append((seconds_of(work, n) / n, bare))


def report(rows: dict[str, list[tuple[float, float]]]) -> None:
    """Print a table and a JSON line; the speed is the floor's time over ours, so 1 is as fast as the floor."""
    result = {}
    print(f"{'':28}{'ours, ms':>10}{'floor, ms':>11}{'speed':>8}")
    for name, pairs in rows.items():
        ours, floor = (statistics.median(column) * 1e3 for column in zip(*pairs, strict=True))
        speed = statistics.median(bare / mine for mine, bare in pairs)
        print(f"{name:28}{ours:10.3f}{floor:11.3f}{speed:8.2f}")
        result[name] = {"ms": round(ours, 3), "floor_ms": round(floor, 3), "ratio": round(speed, 3)}
    print(json.dumps({"benchmark": "arrays", **result}))


if __name__ == "__main__":
    main()
