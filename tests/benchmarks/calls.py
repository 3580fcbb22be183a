"""Calls of an actor against a bare pyzmq echo, and a bare Unix socket, in the same run: latency, pipelined calls per second.

python tests/benchmarks/calls.py [--rounds N]     prints a table and one JSON line; each figure is a median over paired rounds
"""

from __future__ import annotations

import json
import statistics

import click
import numpy as np
from floors import echo, seconds_of, unix_echo

import parl_lite

_PAYLOAD = bytes(64)
_WINDOW = 64


@parl_lite.remote_class
class Echo:
    """Answers."""

    def nothing(self) -> None:
        """Do nothing."""

    def same(self, value):
        """Return the argument."""
        return value


@click.command()
@click.option("--rounds", default=7, help="Paired rounds.")
@click.option("--calls", "n_calls", default=3000, help="Calls a round.")
def main(rounds: int, n_calls: int) -> None:
    """Measure and print."""
    parl_lite.connect(n_cpu=1)
    actor = Echo()
    small = np.zeros(16, np.float32)
    rows: dict[str, list[tuple[float, float]]] = {"blocking no-op": [], "blocking, 64 B array": [], "pipelined": []}
    unix: list[float] = []
    with echo() as dealer, unix_echo() as end:

        def ping(n):
            for _ in range(n):
                dealer.send(_PAYLOAD)
                dealer.recv()

        def unix_ping(n):
            for _ in range(n):
                end.send(_PAYLOAD)
                end.recv(4096)

        def stream(n):
            for _ in range(_WINDOW):
                dealer.send(_PAYLOAD)
            for _ in range(n - _WINDOW):
                dealer.recv()
                dealer.send(_PAYLOAD)
            for _ in range(_WINDOW):
                dealer.recv()

        def call(n):
            for _ in range(n):
                actor.nothing()

        def call_with_array(n):
            for _ in range(n):
                actor.same(small)

        def pipeline(n):
            futures = [actor.futures.nothing() for _ in range(_WINDOW)]
            for i in range(n - _WINDOW):
                futures[i % _WINDOW].result()
                futures[i % _WINDOW] = actor.futures.nothing()
            for future in futures:
                future.result()

        for work in (ping, unix_ping, stream, call, call_with_array, pipeline):
            work(500)
        for _ in range(rounds):
            floor = seconds_of(ping, n_calls) / n_calls
            unix.append(seconds_of(unix_ping, n_calls) / n_calls)
            rows["blocking no-op"].append((seconds_of(call, n_calls) / n_calls, floor))
            rows["blocking, 64 B array"].append((seconds_of(call_with_array, n_calls) / n_calls, floor))
            floor = seconds_of(stream, 4 * n_calls) / n_calls / 4
            rows["pipelined"].append((seconds_of(pipeline, 4 * n_calls) / n_calls / 4, floor))
    parl_lite.disconnect()
    _report(rows, statistics.median(unix) * 1e6)


def _report(rows: dict[str, list[tuple[float, float]]], unix_us: float) -> None:
    result: dict[str, dict[str, float]] = {"bare Unix socket": {"us": round(unix_us, 1)}}
    print(f"{'':24}{'ours, us':>10}{'floor, us':>11}{'ratio':>8}")
    for name, pairs in rows.items():
        ours, floor = (statistics.median(column) * 1e6 for column in zip(*pairs, strict=True))
        ratio = statistics.median(mine / bare for mine, bare in pairs)
        print(f"{name:24}{ours:10.1f}{floor:11.1f}{ratio:8.2f}")
        result[name] = {"us": round(ours, 1), "floor_us": round(floor, 1), "ratio": round(ratio, 3)}
    print(f"{'a bare Unix socket':24}{unix_us:10.1f}")
    print(json.dumps({"benchmark": "calls", **result}))


if __name__ == "__main__":
    main()
