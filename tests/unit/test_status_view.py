"""The master's report as people see it."""

from __future__ import annotations

import io

from rich.console import Console

from parl_lite.cluster.master_state import MasterState
from parl_lite.cluster.status_view import headline, view
from parl_lite.machine import Received
from parl_lite.messages import JobEnded, JobReady, JoinClient, JoinWorker, Needs, Place, Versions, WantJob
from parl_lite.settings import Settings

VERSIONS = Versions(1, "9.9.9", "3.11", "2")


def master(*events: tuple[bytes, object]) -> MasterState:
    state = MasterState("c1", "ab", VERSIONS, "0.0.0.0:8010", Settings())
    for peer, message in events:
        state.handle(Received(peer, message), 0.0)  # type: ignore[arg-type]
    return state


def shown(state: MasterState, now: float = 0.0) -> str:
    console = Console(file=io.StringIO(), width=200)
    for part in view(state.report(now), "10.0.0.1:8010"):
        console.print(part)
    return console.file.getvalue()  # type: ignore[attr-defined]


WORKER = (b"w", JoinWorker(VERSIONS, Place("node1", 70, "boot"), 2, ("0", "1"), 2**34, ()))
CLIENT = (b"c", JoinClient(VERSIONS, Place("node2", 80, "boot"), (), (), False))


def test_an_empty_cluster_says_how_a_worker_joins() -> None:
    text = shown(master())
    assert "0 of 0 CPUs and 0 of 0 GPUs in use, 0 workers, 0 jobs, 0 clients, 0 wishes waiting" in text
    assert "No worker has joined: add this machine with `parl-lite connect 10.0.0.1:8010`" in text


def test_the_headline_counts_in_the_right_number() -> None:
    state = master(WORKER, CLIENT, (b"c", WantJob(1, "Actor", Needs(1, 1, None))))
    assert headline(state.report(0.0), "10.0.0.1:8010") == (
        "Cluster c1 at 10.0.0.1:8010, parl_lite 9.9.9: 1 of 2 CPUs and 1 of 2 GPUs in use, "
        "1 worker, 1 job, 1 client, 0 wishes waiting."
    )


def test_workers_jobs_wishes_and_deaths_have_a_table_each() -> None:
    state = master(
        WORKER,
        CLIENT,
        (b"c", WantJob(1, "[bold]Odd", Needs(1, 1, None))),
        (b"w", JobReady("ab.1", 71, ("ipc:///x",), "/log")),
        (b"c", WantJob(2, "Brief", Needs(1, 0, None))),
        (b"w", JobReady("ab.2", 72, ("ipc:///y",), "/log")),
        (b"w", JobEnded("ab.2", 72, None, 9, "was killed by SIGKILL", False, "", "/log")),
        (b"c", WantJob(3, "Large", Needs(2, 0, None))),
    )
    lines = [" ".join(line.split()) for line in shown(state, now=4.0).splitlines()]
    assert "node1 70 works 1/2 1/2 (0) 16.0 GiB 1 9.9.9, Python 3.11, numpy 2" in lines
    assert "[bold]Odd ab.1 node1 71 running 1 0" in lines
    assert "Large 4.0 s it needs 2 CPUs; 1 of 2 CPUs are free, and 0 wishes came before" in lines
    assert "Brief ab.2 node1 72 its process was killed by SIGKILL" in lines


def test_a_worker_that_cannot_be_reached_is_told() -> None:
    state = master(WORKER)
    state.workers[b"w"].absent_until = 3.0
    assert "out of reach" in shown(state)
