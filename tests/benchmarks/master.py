"""A master with 1,000 workers and 10,000 slots: registration, wishes a second, cost of a message, status, idleness.

python tests/benchmarks/master.py [--workers N] [--slots N] [--curve]     prints a table and one JSON line

The peers are simulated (crowd.py): real sockets over tcp, all in this process, which takes a core of its own, so that
wishes a second are those of the master and this process together. The cost of a message is what the master's process
used, its threads of ZeroMQ included, over the messages that it read and wrote.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import click
import psutil
from crowd import Crowd, master

from parl_lite.security import ClusterKey
from parl_lite.settings import Settings


@contextmanager
def measured(pid: int, crowd: Crowd):
    """Yield a dict that has afterwards: seconds, cpu (seconds of the process), messages."""
    process, figures = psutil.Process(pid), {}
    begin, n_messages, cpu = time.perf_counter(), crowd.n_messages, cpu_of(process)
    yield figures
    figures |= {"seconds": time.perf_counter() - begin, "cpu": cpu_of(process) - cpu, "messages": crowd.n_messages - n_messages}


def cpu_of(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def granted_in_order(crowd: Crowd) -> bool:
    """Return whether jobs were named in the order in which each client wished for them, without a gap or a job twice."""
    numbers = []
    for client in crowd.clients:
        mine = [int(job.rpartition(".")[2]) for _, job in sorted(client.granted)]
        if mine != sorted(mine):
            return False
        numbers += mine
    return sorted(numbers) == list(range(1, len(numbers) + 1))


def fill(crowd: Crowd, n_slots: int) -> None:
    """Wish for a job for each slot, and wait for all."""
    share = n_slots // len(crowd.clients)
    for client in crowd.clients:
        client.want(range(share))
    crowd.run(lambda: all(len(client.granted) == share for client in crowd.clients))


def hand_over(crowd: Crowd, n_slots: int) -> None:
    """With all slots taken, wish for as many more and release those that are held: each wish waits for a slot."""
    share = n_slots // len(crowd.clients)
    for client in crowd.clients:
        held = [job for _, job in client.granted]
        client.want(range(share, 2 * share))
        client.release(held)
    crowd.run(lambda: all(len(client.granted) == 2 * share for client in crowd.clients))


def time_of_status(crowd: Crowd) -> float:
    client = crowd.clients[0]
    begin = time.perf_counter()
    client.ask_status()
    crowd.run(lambda: bool(client.status))
    seconds = time.perf_counter() - begin
    assert json.loads(client.status)["free_cpu"] == 0
    return seconds


def idle_share(crowd: Crowd, pid: int, seconds: float) -> float:
    """Return which share of a core the master uses while nothing happens; heartbeats and probes go on."""
    end = time.monotonic() + seconds
    with measured(pid, crowd) as figures:
        while time.monotonic() < end:
            crowd.turn(end - time.monotonic())
    return figures["cpu"] / figures["seconds"]


def measure(n_workers: int, n_cpu: int, n_clients: int, key: ClusterKey | None, idle_seconds: float) -> dict[str, Any]:
    """Return the figures."""
    settings = Settings()
    with master(settings, key) as (address, pid):
        crowd = Crowd(address, settings, key)
        try:
            return _measure(crowd, pid, (n_workers, n_cpu, n_clients), idle_seconds)
        finally:
            crowd.close()


def _measure(crowd: Crowd, pid: int, size: tuple[int, int, int], idle_seconds: float) -> dict[str, Any]:
    n_slots = size[0] * size[1]
    with measured(pid, crowd) as joining:
        crowd.join(*size)
    with measured(pid, crowd) as filling:
        fill(crowd, n_slots)
    status = time_of_status(crowd)
    idle = idle_share(crowd, pid, idle_seconds)
    with measured(pid, crowd) as handing_over:
        hand_over(crowd, n_slots)
    assert granted_in_order(crowd), "wishes were not granted in order"
    return {
        "workers": size[0],
        "slots": n_slots,
        "join_s": round(joining["seconds"], 2),
        "wishes_per_s": round(n_slots / filling["seconds"]),
        "wishes_per_core_s": round(n_slots / filling["cpu"]),
        "message_us": round(filling["cpu"] / filling["messages"] * 1e6, 1),
        "waiting_wishes_per_s": round(n_slots / handing_over["seconds"]),
        "waiting_message_us": round(handing_over["cpu"] / handing_over["messages"] * 1e6, 1),
        "status_s": round(status, 3),
        "idle_share": round(idle, 4),
        "memory_mb": round(psutil.Process(pid).memory_info().rss / 2**20),
    }


ROWS: list[tuple[str, str, str, Callable[[Any], str]]] = [
    ("join_s", "all joined", "", "{} s".format),
    ("wishes_per_s", "wishes granted a second, slots free", ">= 2,000", "{:,}".format),
    ("wishes_per_core_s", "the same, a second of the master's processor time", "", "{:,}".format),
    ("waiting_wishes_per_s", "wishes granted a second, each waits for a slot", "", "{:,}".format),
    ("message_us", "the master's cost of a message, slots free", "", "{} us".format),
    ("waiting_message_us", "the same, each wish waits", "", "{} us".format),
    ("status_s", "status", "< 1 s", "{} s".format),
    ("idle_share", "idle, share of a core", "< 5 %", "{:.1%}".format),
    ("memory_mb", "memory of the master", "", "{} MB".format),
]


@click.command()
@click.option("--workers", default=1000, help="Simulated workers.")
@click.option("--slots", default=10, help="Slots of each.")
@click.option("--clients", default=10, help="Simulated clients.")
@click.option("--idle-seconds", default=10.0, help="How long to watch the idle master.")
@click.option("--curve", is_flag=True, help="With a key, as a cluster over several machines has.")
def main(workers: int, slots: int, clients: int, idle_seconds: float, curve: bool) -> None:
    """Measure and print."""
    figures = measure(workers, slots, clients, ClusterKey.new() if curve else None, idle_seconds)
    print(f"{workers:,} workers with {slots} slots, {clients} clients{', with a key' if curve else ''}")
    for name, text, goal, form in ROWS:
        print(f"  {text:50}{form(figures[name]):>12}{goal:>12}")
    print(json.dumps({"benchmark": "master", "curve": curve, **figures}))


if __name__ == "__main__":
    main()
