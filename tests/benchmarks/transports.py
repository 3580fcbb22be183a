"""Calls over tcp against a bare pyzmq echo over tcp in the same run, without a key and with one: CURVE against CURVE.

python tests/benchmarks/transports.py [--rounds N]     prints a table and one JSON line; figures are medians over paired rounds
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import click
import zmq
from floors import echo, seconds_of

import parl_lite
from parl_lite import client
from parl_lite.security import ClusterKey

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from daemons import StandingCluster

_PAYLOAD = bytes(64)
_WINDOW = 64


@parl_lite.remote_class
class Answerer:
    """Answers."""

    def nothing(self) -> None:
        """Do nothing."""


def tcp_though_it_is_near(addresses, boot_id, own_boot_id):
    """Choose as a client on another machine would."""
    return next(address for address in addresses if address.startswith("tcp://"))


def measure(key: ClusterKey | None, rounds: int, n_calls: int) -> dict[str, list[tuple[float, float]]]:
    """Return pairs of seconds a call, ours and the floor's, by name."""
    cluster = StandingCluster(key)
    cluster.start_master()
    cluster.start_worker(1)
    parl_lite.connect(cluster.address, key=None if key is None else key.text)
    try:
        with echo("tcp", zmq.curve_keypair() if key is not None else None) as dealer:
            return _pairs(Answerer(), dealer, rounds, n_calls)
    finally:
        parl_lite.disconnect()
        cluster.end()


def _pairs(actor, dealer, rounds: int, n_calls: int) -> dict[str, list[tuple[float, float]]]:
    def ping(n: int) -> None:
        for _ in range(n):
            dealer.send(_PAYLOAD)
            dealer.recv()

    def stream(n: int) -> None:
        for _ in range(_WINDOW):
            dealer.send(_PAYLOAD)
        for _ in range(n - _WINDOW):
            dealer.recv()
            dealer.send(_PAYLOAD)
        for _ in range(_WINDOW):
            dealer.recv()

    def call(n: int) -> None:
        for _ in range(n):
            actor.nothing()

    def pipeline(n: int) -> None:
        futures = [actor.futures.nothing() for _ in range(_WINDOW)]
        for i in range(n - _WINDOW):
            futures[i % _WINDOW].result()
            futures[i % _WINDOW] = actor.futures.nothing()
        for future in futures:
            future.result()

    for work in (ping, stream, call, pipeline):
        work(500)
    pairs: dict[str, list[tuple[float, float]]] = {"blocking": [], "pipelined": []}
    for _ in range(rounds):
        floor = seconds_of(ping, n_calls) / n_calls
        pairs["blocking"].append((seconds_of(call, n_calls) / n_calls, floor))
        floor = seconds_of(stream, 2 * n_calls) / n_calls / 2
        pairs["pipelined"].append((seconds_of(pipeline, 2 * n_calls) / n_calls / 2, floor))
    return pairs


@click.command()
@click.option("--rounds", default=7, help="Paired rounds.")
@click.option("--calls", "n_calls", default=2000, help="Calls a round.")
def main(rounds: int, n_calls: int) -> None:
    """Measure and print."""
    client.nearest = tcp_though_it_is_near
    result = {}
    print(f"{'':24}{'ours, us':>10}{'floor, us':>11}{'ratio':>8}")
    for transport, key in (("tcp", None), ("tcp, CURVE", ClusterKey.new())):
        for name, pairs in measure(key, rounds, n_calls).items():
            ours, floor = (statistics.median(column) * 1e6 for column in zip(*pairs, strict=True))
            ratio = statistics.median(mine / bare for mine, bare in pairs)
            print(f"{f'{transport}, {name}':24}{ours:10.1f}{floor:11.1f}{ratio:8.2f}")
            result[f"{transport}, {name}"] = {"us": round(ours, 1), "floor_us": round(floor, 1), "ratio": round(ratio, 3)}
    print(json.dumps({"benchmark": "transports", **result}))


if __name__ == "__main__":
    main()
