"""What grows: the latency of a call by the size of its argument and result, calls a second by the number of actors.

python tests/benchmarks/scaling.py [--peer ray] [--seconds S]     prints tables and one JSON line

Without --peer: parl_lite, and a bare pyzmq echo of as many bytes beside it. With it: another system, by the same measure.
"""

from __future__ import annotations

import json
import statistics
import time

import click
import numpy as np
from floors import echo, seconds_of
from systems import SYSTEMS

_SIZES = (64, 1024, 16 * 1024, 256 * 1024, 1024 * 1024, 8 * 1024 * 1024, 64 * 1024 * 1024)
_N_ACTORS = (1, 2, 4, 8, 16)
_WINDOW = 32


def latency(work, seconds: float) -> float:
    """Return the median microseconds of `work(n)` for one call, of several rounds in about so many seconds."""
    once = seconds_of(work, 3) / 3
    n = max(1, min(500, int(seconds / 7 / once)))
    return statistics.median(seconds_of(work, n) / n for _ in range(7)) * 1e6


def measure_latency(system, seconds: float) -> dict[int, float]:
    actor = system.actor()
    found = {}
    for size in _SIZES:
        value = np.ones(size, np.uint8)

        def there_and_back(n: int, value=value) -> None:
            for _ in range(n):
                system.same(actor, value)

        found[size] = round(latency(there_and_back, seconds), 1)
    system.end_actor(actor)
    return found


def floor_of_latency(seconds: float) -> dict[int, float]:
    found = {}
    with echo() as dealer:
        for size in _SIZES:
            value = bytes(size)

            def there_and_back(n: int, value=value) -> None:
                for _ in range(n):
                    dealer.send(value)
                    dealer.recv()

            found[size] = round(latency(there_and_back, seconds), 1)
    return found


def measure_throughput(system, seconds: float) -> dict[int, float]:
    """Return calls a second of one client to n actors, each with so many calls under way."""
    found = {}
    for n_actors in _N_ACTORS:
        actors = [system.actor() for _ in range(n_actors)]
        calls = [[system.start(actor) for _ in range(_WINDOW)] for actor in actors]
        for under_way in calls:
            system.wait_for(under_way)
        n, begin = 0, time.perf_counter()
        calls = [[system.start(actor) for _ in range(_WINDOW)] for actor in actors]
        while time.perf_counter() < begin + seconds:
            for actor, under_way in zip(actors, calls, strict=True):
                system.wait_for(under_way)
                n += len(under_way)
                under_way[:] = [system.start(actor) for _ in range(_WINDOW)]
        for under_way in calls:
            system.wait_for(under_way)
            n += len(under_way)
        found[n_actors] = round(n / (time.perf_counter() - begin))
        for actor in actors:
            system.end_actor(actor)
    return found


def measure_basics(system, seconds: float) -> dict[str, float]:
    """Return what a blocking call without argument costs, and the first call of a new actor."""
    actor = system.actor()

    def call(n: int) -> None:
        for _ in range(n):
            system.nothing(actor)

    call(200)
    blocking = latency(call, seconds)
    first = []
    for _ in range(5):
        begin = time.perf_counter()
        other = system.actor()
        system.nothing(other)
        first.append(time.perf_counter() - begin)
        system.end_actor(other)
        time.sleep(0.3)
    system.end_actor(actor)
    return {"blocking_us": round(blocking, 1), "first_call_ms": round(statistics.median(first) * 1e3, 1)}


@click.command()
@click.option("--peer", default="parl_lite", type=click.Choice(list(SYSTEMS)), help="Which system.")
@click.option("--seconds", default=2.0, help="Seconds for each figure.")
def main(peer: str, seconds: float) -> None:
    """Measure and print."""
    system = SYSTEMS[peer](max(_N_ACTORS) + 1)
    try:
        figures = measure_basics(system, seconds)
        by_size = measure_latency(system, seconds)
        by_actors = measure_throughput(system, seconds)
    finally:
        system.end()
    floor = floor_of_latency(seconds) if peer == "parl_lite" else {}
    print(f"{peer}: blocking {figures['blocking_us']} us, first call of a new actor {figures['first_call_ms']} ms")
    print(f"{'bytes there and back':>24}{'us':>12}{'bare pyzmq':>12}")
    for size, us in by_size.items():
        print(f"{size:24,}{us:12.1f}{floor.get(size, float('nan')):12.1f}")
    print(f"{'actors':>24}{'calls/s':>12}")
    for n_actors, rate in by_actors.items():
        print(f"{n_actors:24}{rate:12,}")
    figures |= {"latency_us": by_size, "floor_us": floor, "calls_per_s": by_actors}
    print(json.dumps({"benchmark": "scaling", "system": peer, **figures}))


if __name__ == "__main__":
    main()
