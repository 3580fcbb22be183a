"""A master among many simulated peers: real sockets, no jobs. Order and books, no times; those are in benchmarks/master.py."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from parl_lite.settings import Settings

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import crowd as crowds
import master as benchmark

N_WORKERS, N_CPU, N_CLIENTS = 50, 10, 5
N_SLOTS = N_WORKERS * N_CPU


@pytest.fixture
def crowd(nothing_left: Path) -> Iterator[crowds.Crowd]:
    """Fifty workers of ten slots, and five clients, that have joined a master of their own."""
    with crowds.master(Settings()) as (address, _):
        crowd = crowds.Crowd(address, Settings())
        crowd.join(N_WORKERS, N_CPU, N_CLIENTS)
        yield crowd
        crowd.close()


def status_of(crowd: crowds.Crowd) -> dict:
    client = crowd.clients[0]
    client.ask_status()
    crowd.run(lambda: bool(client.status))
    return json.loads(client.status)


def test_as_many_wishes_as_slots_are_granted_in_order_and_fill_every_worker(crowd: crowds.Crowd) -> None:
    benchmark.fill(crowd, N_SLOTS)
    assert benchmark.granted_in_order(crowd)
    report = status_of(crowd)
    assert (report["n_cpu"], report["free_cpu"], report["n_wishes"]) == (N_SLOTS, 0, 0)
    assert [len(worker["jobs"]) for worker in report["workers"]] == [N_CPU] * N_WORKERS


def test_wishes_that_wait_get_the_slots_that_are_released_in_order(crowd: crowds.Crowd) -> None:
    benchmark.fill(crowd, N_SLOTS)
    benchmark.hand_over(crowd, N_SLOTS)
    assert benchmark.granted_in_order(crowd)
    report = status_of(crowd)
    held = Counter(job["job"] for worker in report["workers"] for job in worker["jobs"])
    last = {job for client in crowd.clients for wish, job in client.granted if wish >= N_SLOTS // N_CLIENTS}
    assert held == Counter(last)
    assert (report["free_cpu"], report["n_wishes"], report["deaths"]) == (0, 0, [])


def test_when_workers_vanish_their_jobs_are_lost_and_the_books_are_right(crowd: crowds.Crowd) -> None:
    benchmark.fill(crowd, N_SLOTS)
    gone = crowd.workers[::2]
    crowd.disconnect(gone)
    crowd.run(lambda: sum(len(client.lost) for client in crowd.clients) == len(gone) * N_CPU)
    report = status_of(crowd)
    assert (len(report["workers"]), report["free_cpu"]) == (N_WORKERS - len(gone), 0)
    held = {job["job"] for worker in report["workers"] for job in worker["jobs"]}
    lost = [job for client in crowd.clients for job in client.lost]
    granted = {job for client in crowd.clients for _, job in client.granted}
    assert len(lost) == len(set(lost)) and held == granted - set(lost)
