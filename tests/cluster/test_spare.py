"""A zygote with nothing to do keeps one process ready to be the next job; whatever becomes of it, the next job begins."""

from __future__ import annotations

import os
import random
import signal

import psutil
from conftest import until
from patients import Patient

import parl_lite
from parl_lite import hostos


@parl_lite.remote_class
class Dice:
    """Throws, and looks at its own descriptors."""

    def throw(self) -> float:
        return random.random()

    def standard_input(self) -> str:
        return os.readlink("/proc/self/fd/0")

    def pid(self) -> int:
        return os.getpid()


def zygote() -> psutil.Process:
    """Return the zygote of the cluster of this process: spares have its command, too, but its session."""
    worker = psutil.Process(parl_lite.cluster_info()["workers"][0]["pid"])
    return next(one for one in worker.children() if is_zygote(one))


def is_zygote(process: psutil.Process) -> bool:
    try:
        return "parl_lite.cluster.zygote" in process.cmdline() and os.getsid(process.pid) == process.pid
    except (psutil.Error, ProcessLookupError):
        return False  # it has ended, and its parent has not looked yet


def spares() -> list[int]:
    """Return processes of the zygote's session beside it: children of the worker that wait to be jobs."""
    leader = zygote().pid
    return [pid for pid in hostos.session_members(leader) if pid != leader]


def one_spare() -> int:
    until(lambda: len(spares()) == 1, 20, "a spare is there")
    return spares()[0]


def test_the_next_job_is_the_spare_and_another_takes_its_place(cluster) -> None:
    for _ in range(2):
        spare = one_spare()
        actor = Dice()
        assert actor.pid() == spare
        assert actor.standard_input() == "/dev/null"
        actor.destroy()


def test_actors_made_at_once_do_not_wait_for_spares(cluster) -> None:
    one_spare()
    actors = [Dice() for _ in range(3)]
    assert len({actor.pid() for actor in actors}) == 3
    assert len({actor.throw() for actor in actors}) == 3


def test_a_spare_that_was_killed_is_not_missed(cluster) -> None:
    spare = one_spare()
    os.kill(spare, signal.SIGKILL)
    until(lambda: not hostos.process_alive(spare), 10, "it is gone")
    patient = Patient()
    assert patient.echo(1) == 1 and patient.pid() != spare
    patient.destroy()
    assert Patient().echo(2) == 2


def test_a_spare_ends_with_its_zygote(cluster) -> None:
    spare, leader = one_spare(), zygote()
    leader.kill()
    until(lambda: not hostos.process_alive(spare), 10, "the spare is gone, too")
    assert Patient().echo(1) == 1
    assert zygote().pid != leader.pid
