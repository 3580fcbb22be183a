"""Many actors: the first call of a new one, a hundred of them, their memory and descriptors, a thousand handles in one process.

python tests/benchmarks/actors.py [--actors N] [--handles N]     prints a table and one JSON line

The floor of the first call is a bare fork of a process that has imported what a job has, until the child says a byte. The
actors import torch and gymnasium. Memory is the PSS (each shared page counts in parts) of the actors and of the zygote
they were forked from, less that of the zygote alone, over the number of actors.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import time
from pathlib import Path

import click
import psutil

import parl_lite


@parl_lite.remote_class
class Learner:
    """Imports what a learner imports."""

    def __init__(self) -> None:
        import gymnasium
        import torch

        self.modules = gymnasium, torch

    def pid(self) -> int:
        return os.getpid()

    def add(self, number: int) -> int:
        return number + 1

    def same(self, value):
        return value


def pss_of(pid: int) -> int:
    """Return bytes."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024


def n_descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def zygote_of_this_cluster() -> int:
    """Return the process that jobs are forked from."""
    family = psutil.Process().children(recursive=True)
    return next(one.pid for one in family if "parl_lite.cluster.zygote" in " ".join(one.cmdline()))


def seconds_of_first_calls(n: int) -> list[float]:
    """Return how long it takes from the class to the answer of a new actor, one after the other on a warm worker."""
    Learner().pid()
    found = []
    for _ in range(n):
        begin = time.perf_counter()
        actor = Learner()
        actor.add(1)
        found.append(time.perf_counter() - begin)
        actor.destroy()
        time.sleep(0.3)  # its end is no part of the next one's beginning, and what a worker prepares is ready
    return found


def seconds_of_forks(n: int) -> list[float]:
    """Return how long a fork takes until the child, which ends then, has said a byte: with torch and gymnasium here, too."""
    import gymnasium  # noqa: F401
    import torch  # noqa: F401

    gc.collect()
    gc.freeze()
    found = []
    for _ in range(n):
        read, write = os.pipe()
        begin = time.perf_counter()
        child = os.fork()
        if child == 0:
            os.write(write, b"x")
            os._exit(0)
        os.read(read, 1)
        found.append(time.perf_counter() - begin)
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)
    gc.unfreeze()
    return found


def crowd(n: int) -> dict[str, float]:
    """Return the figures of `n` actors that are made at the same time, as `ActorPool` makes them."""
    zygote = zygote_of_this_cluster()
    worker = psutil.Process(zygote).ppid()
    before = {"pss": pss_of(zygote), "worker": n_descriptors(worker), "here": n_descriptors(os.getpid())}
    begin = time.perf_counter()
    with parl_lite.ActorPool(Learner, n) as pool:
        pids = parl_lite.get(pool.broadcast("pid"))
        seconds = time.perf_counter() - begin
        pss = pss_of(zygote) + sum(map(pss_of, pids)) - before["pss"]
        return {
            "n": n,
            "seconds": round(seconds, 2),
            "pss_mb": round(pss / n / 2**20, 1),
            "descriptors_of_actor": statistics.median(map(n_descriptors, pids)),
            "descriptors_of_worker": round((n_descriptors(worker) - before["worker"]) / n, 1),
            "descriptors_of_client": round((n_descriptors(os.getpid()) - before["here"]) / n, 1),
        }


def handles(n: int) -> dict[str, float]:
    """Return the figures of `n` handles of one actor in this process, each with a connection of its own."""
    actor, giver = Learner(), Learner()
    before = n_descriptors(os.getpid())
    begin = time.perf_counter()
    many = [giver.same(actor) for _ in range(n)]
    futures = [handle.futures.add(i) for i, handle in enumerate(many)]
    assert parl_lite.get(futures) == list(range(1, n + 1))
    seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    assert parl_lite.get([handle.futures.add(i) for i, handle in enumerate(many)]) == list(range(1, n + 1))
    again = time.perf_counter() - begin
    descriptors = (n_descriptors(os.getpid()) - before) / n
    return {"n": n, "seconds": round(seconds, 2), "round_s": round(again, 3), "descriptors": round(descriptors, 1)}


@click.command()
@click.option("--actors", "n_actors", default=100, help="How many actors at the same time.")
@click.option("--handles", "n_handles", default=1000, help="How many handles in one process.")
@click.option("--rounds", default=11, help="How many first calls.")
def main(n_actors: int, n_handles: int, rounds: int) -> None:
    """Measure and print."""
    parl_lite.connect(n_cpu=n_actors + 2, log_to_driver=False)
    first = statistics.median(seconds_of_first_calls(rounds))
    many = crowd(n_actors)
    held = handles(n_handles)
    parl_lite.disconnect()
    fork = statistics.median(seconds_of_forks(rounds))
    print(f"first call of a new actor       {first * 1e3:8.1f} ms   goal <= 50, floor (fork) {fork * 1e3:.1f}")
    print(f"{n_actors} actors                      {many['seconds']:8.2f} s    goal <= 3")
    print(f"memory of each                  {many['pss_mb']:8.1f} MB   goal <= 15 (PSS beyond the shared pages)")
    print(f"descriptors of an actor         {many['descriptors_of_actor']:8.0f}")
    print(f"  in its worker, in its client  {many['descriptors_of_worker']:8.1f} {many['descriptors_of_client']:.1f}")
    print(f"{n_handles} handles in one process     {held['seconds']:8.2f} s    then {held['round_s']:.3f} s for a call of each")
    figures = {"first_call_ms": round(first * 1e3, 1), "fork_ms": round(fork * 1e3, 1), "actors": many, "handles": held}
    print(json.dumps({"benchmark": "actors", **figures}))


if __name__ == "__main__":
    main()
