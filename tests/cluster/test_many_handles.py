"""Many handles in one process: few descriptors each, and more of them than the usual soft limit of files has room for."""

from __future__ import annotations

import os

from conftest import until
from patients import Patient

N_HANDLES = 300

SCRIPT = f"""
import resource
import sys
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
import parl_lite
from patients import Patient

parl_lite.connect(n_cpu=2, log_to_driver=False)
actor, other = Patient(), Patient()
handles = [other.echo(actor) for _ in range({N_HANDLES})]
futures = [handle.futures.echo(i) for i, handle in enumerate(handles)]
assert parl_lite.get(futures) == list(range({N_HANDLES}))
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 1024)
parl_lite.disconnect()
"""


def n_open() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_more_handles_work_than_the_soft_limit_of_files_has_room_for(run_script, nothing_left) -> None:
    done = run_script(SCRIPT)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_handle_takes_five_descriptors_here_and_gives_them_back(cluster) -> None:
    actor, other = Patient(), Patient()
    assert other.echo(actor).echo(1) == 1  # what the first needs besides is there
    before = n_open()
    handles = [other.echo(actor) for _ in range(20)]
    assert [handle.echo(i) for i, handle in enumerate(handles)] == list(range(20))
    assert n_open() - before <= 5 * 20
    del handles
    until(lambda: n_open() - before <= 5, 10, "all are closed")


def test_an_actor_has_a_constant_number_of_descriptors(cluster) -> None:
    actors = [Patient() for _ in range(2)]
    counts = [len(os.listdir(f"/proc/{actor.pid()}/fd")) for actor in actors]
    for actor in actors:
        for i in range(100):
            actor.echo(i)
    assert [len(os.listdir(f"/proc/{actor.pid()}/fd")) for actor in actors] == counts
    assert max(counts) <= 24
