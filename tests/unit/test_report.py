"""What a master tells people about wishes that wait, wishes without hope, and the whole cluster."""

from __future__ import annotations

import json
from typing import Any

from builders import VERSIONS, C, W, place

from parl_lite.cluster.records import Client, Job, Wish, Worker
from parl_lite.cluster.report import report, room_of, why_never, why_waiting
from parl_lite.messages import Needs


def worker(n_cpu: int, free_cpu: int, gpus: tuple[str, ...] = (), free_gpus: tuple[str, ...] = ()) -> Worker:
    return Worker(W, VERSIONS, place("w"), n_cpu, free_cpu, gpus, list(free_gpus), 8 << 30)


def wish(number: int, since: float = 90.0) -> Wish:
    return Wish(C, number, "Actor", Needs(1, 0, None), since, since)


# Never


def test_what_fits_on_one_worker_is_possible_however_busy_it_is() -> None:
    assert why_never(Needs(4, 1, None), {(2, 0): 1, (4, 1): 1}) == ""


def test_without_workers_nothing_is_impossible() -> None:
    assert why_never(Needs(99, 9, None), {}) == ""


def test_two_workers_cannot_run_one_job_together() -> None:
    reason = why_never(Needs(4, 1, None), {(3, 1): 1, (3, 0): 1})
    assert reason == (
        "no worker can ever run it: it needs 4 CPUs and 1 GPU on one machine, and the largest of 2 workers has 3 CPUs and 1 GPU"
    )


# Waiting


def test_a_wait_without_workers_is_explained() -> None:
    assert why_waiting(Needs(1, 0, None), 3, room_of([])) == "no worker has joined the cluster yet"


def test_a_wait_for_cpus_is_explained_with_figures_of_all_workers() -> None:
    reason = why_waiting(Needs(2, 0, None), 1, room_of([worker(4, 1, gpus=("0",)), worker(4, 1)]))
    assert reason == "it needs 2 CPUs; 2 of 8 CPUs are free, and 1 wish came before"


def test_a_wait_for_gpus_is_explained_with_those_too() -> None:
    room = room_of([worker(4, 4, gpus=("0", "1")), worker(2, 1, gpus=("0",), free_gpus=("0",))])
    reason = why_waiting(Needs(1, 1, None), 0, room)
    assert reason == "it needs 1 CPU, 1 GPU; 5 of 6 CPUs, 1 of 3 GPUs are free, and 0 wishes came before"


def test_slots_of_a_worker_that_takes_no_jobs_are_not_free() -> None:
    away, draining = worker(4, 4, ("0",), ("0",)), worker(4, 3)
    away.absent_until, draining.draining = 200.0, True
    reason = why_waiting(Needs(1, 1, None), 0, room_of([away, draining]))
    assert reason == "it needs 1 CPU, 1 GPU; 0 of 8 CPUs, 0 of 1 GPUs are free, and 0 wishes came before"


# The cluster


def test_the_report_adds_up_slots_and_can_be_written_as_json() -> None:
    found = report([worker(4, 1, ("0", "1"), ("1",)), worker(2, 2)], [], [], 100.0)
    assert [found[name] for name in ("n_cpu", "free_cpu", "n_gpu", "free_gpu", "n_wishes")] == [6, 3, 2, 1, 0]
    assert json.loads(json.dumps(found)) == found


def test_a_worker_is_reported_with_its_jobs() -> None:
    busy = worker(4, 3, ("0",))
    job = Job("e.1", "Actor", C, 1, Needs(1, 1, None), ("0",), busy, state="running", pid=7, addresses=("tcp://x",))
    busy.jobs["e.1"], busy.absent_until = job, 200.0
    found: Any = report([busy], [], [], 100.0)["workers"]
    jobs = found[0].pop("jobs")
    assert found[0] == {
        "host": "w",
        "pid": 1,
        "connected": False,
        "draining": False,
        "n_cpu": 4,
        "free_cpu": 3,
        "gpus": ["0"],
        "free_gpus": [],
        "memory": 8 << 30,
        "python": "3.11",
        "version": "0.1.0",
        "numpy": "2",
    }
    assert jobs == [
        {
            "job": "e.1",
            "actor": "Actor",
            "pid": 7,
            "state": "running",
            "n_cpu": 1,
            "gpus": ["0"],
            "addresses": ["tcp://x"],
            "log": "",
        }
    ]


def test_a_client_is_reported_with_the_number_of_its_jobs() -> None:
    client = Client(C, place("c", 9), True)
    assert report([], [client], [], 100.0)["clients"] == [{"host": "c", "pid": 9, "jobs": 0}]


def test_wishes_are_reported_with_their_wait_and_reason() -> None:
    assert report([worker(1, 0)], [], [wish(1, since=97.5), wish(2)], 100.0)["wishes"] == [
        {"actor": "Actor", "waited": 2.5, "reason": "it needs 1 CPU; 0 of 1 CPUs are free, and 0 wishes came before"},
        {"actor": "Actor", "waited": 10.0, "reason": "it needs 1 CPU; 0 of 1 CPUs are free, and 1 wish came before"},
    ]


def test_of_many_wishes_only_the_first_hundred_are_listed_and_all_are_counted() -> None:
    found = report([], [], [wish(number) for number in range(1000)], 100.0)
    assert isinstance(found["wishes"], list)
    assert (len(found["wishes"]), found["n_wishes"]) == (100, 1000)
