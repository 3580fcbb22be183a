"""Deaths: of a job, a worker, the master, the client, at any moment. No hang, a typed error, nothing left, slots back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import psutil
import pytest
from conftest import PATIENCE, alive, until
from patients import Patient

import parl_lite
from parl_lite import ActorLostError, client


def free_cpus() -> int:
    return parl_lite.cluster_info()["free_cpu"]


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("how", ["killed while a call is under way", "killed while idle", "exits in a method"])
def test_a_dead_job_is_a_typed_error_and_its_slot_is_free(cluster, how):
    actor = Patient()
    pid = actor.pid()
    if how == "exits in a method":
        future = actor.futures.die()
    elif how == "killed while idle":
        kill(pid)
        future = None
    else:
        future = actor.futures.sleep(1000)
        kill(pid)
    if future is not None:
        with pytest.raises(ActorLostError, match=str(pid)) as caught:
            future.result(timeout=PATIENCE)
        assert caught.value.pid == pid
        assert (caught.value.signal, caught.value.exit_code) in [(signal.SIGKILL, None), (None, 7)]
    with pytest.raises(ActorLostError):
        actor.echo(1)
    until(lambda: free_cpus() == 4, 5, "all slots are free")
    assert Patient().echo(1) == 1


def test_a_constructor_that_kills_its_process_is_a_typed_error(cluster):
    with pytest.raises(ActorLostError, match="exit code 3"):
        Patient(die=True)
    until(lambda: free_cpus() == 4, 5, "all slots are free")


def test_a_blocking_call_ends_when_the_job_is_killed_from_elsewhere(cluster):
    actor = Patient()
    timer = threading.Timer(0.2, kill, [actor.pid()])
    timer.start()
    with pytest.raises(ActorLostError, match="SIGKILL"):
        actor.sleep(1000)


def test_results_that_came_before_the_death_are_not_lost(cluster, tmp_path):
    actor = Patient()
    pid = actor.pid()
    futures = [actor.futures.echo(i) for i in range(50)]
    actor.futures.touch(str(tmp_path / "answered"))
    until((tmp_path / "answered").exists, 5, "all are answered, though nobody has looked")
    until(lambda: psutil.Process(pid).status() == psutil.STATUS_SLEEPING, 5, "the answers have left")
    kill(pid)
    until(lambda: not alive(pid), 5, "it is gone")
    assert [future.result() for future in futures] == list(range(50))
    with pytest.raises(ActorLostError):
        actor.echo(1)


def test_system_exit_ends_the_actor_with_its_code(cluster):
    actor = Patient()
    with pytest.raises(ActorLostError, match="exit code 5") as caught:
        actor.leave(5)
    assert caught.value.exit_code == 5


def test_what_a_job_started_dies_with_it(cluster):
    actor = Patient()
    children = [actor.start_child(), actor.start_daemon()]
    assert all(map(alive, children))
    kill(actor.pid())
    until(lambda: not any(map(alive, children)), 5, "the children of a killed job ended")
    worker = psutil.Process(parl_lite.cluster_info()["workers"][0]["pid"])
    until(
        lambda: not any(child.status() == psutil.STATUS_ZOMBIE for child in worker.children(recursive=True)),
        5,
        "no zombies are left",
    )


def test_a_released_actor_ends_and_its_children_too(cluster):
    actor = Patient()
    pids = [actor.pid(), actor.start_child()]
    del actor
    until(lambda: not any(map(alive, pids)), 5, "the released actor ended")


def test_a_slot_is_handed_over_at_once_twenty_times(nothing_left):
    parl_lite.disconnect()
    parl_lite.connect(n_cpu=1)
    pids = set()
    for i in range(20):
        actor = Patient()
        pids.add(actor.pid())
        assert actor.echo(i) == i
        del actor
    assert len(pids) == 20
    parl_lite.disconnect()


def test_no_room_is_an_explained_error_and_never_any_room_at_once(nothing_left, monkeypatch):
    monkeypatch.setenv("PARL_LITE_NOTICE_INTERVAL", "0.1")
    parl_lite.disconnect()
    parl_lite.connect(n_cpu=1)
    first = Patient()
    client.current().timeout = 1.5
    with pytest.raises(parl_lite.ResourceError, match="0 of 1 CPUs are free"):
        Patient()
    large = parl_lite.remote_class(n_cpu=64)(Patient._original)
    with pytest.raises(parl_lite.ResourceError, match=r"64 CPUs.*largest.*1 CPU"):
        large()
    assert first.echo(1) == 1
    parl_lite.disconnect()


def test_a_killed_worker_loses_its_actors_and_nothing_is_left(fresh_cluster):
    actor = Patient()
    pids = [actor.pid(), actor.start_child()]
    future = actor.futures.sleep(1000)
    kill(parl_lite.cluster_info()["workers"][0]["pid"])
    with pytest.raises(ActorLostError):
        future.result(timeout=PATIENCE)
    until(lambda: not alive(pids[0]), 5, "the jobs of a killed worker ended")
    until(lambda: parl_lite.cluster_info()["n_cpu"] == 0, 10, "its CPUs left the total")
    kill(pids[1]) if alive(pids[1]) else None


def test_a_killed_master_is_an_error_for_those_who_need_it_and_actors_go_on(fresh_cluster):
    actor = Patient()
    master = client.current()._cluster._nodes[0].process.pid
    kill(master)
    assert actor.echo(1) == 1
    client.current().timeout = 2.0
    with pytest.raises(parl_lite.ResourceError, match="does not answer"):
        Patient()
    assert actor.echo(2) == 2


SCRIPT = """
import os, subprocess, sys, time
import parl_lite

@parl_lite.remote_class
class Actor:
    def pids(self):
        self.child = subprocess.Popen(["sleep", "1000"])
        return [os.getpid(), self.child.pid]
    def sleep(self, seconds):
        print("asleep", flush=True)
        try:
            time.sleep(seconds)
        finally:
            print("cleaned up", flush=True)

parl_lite.connect(n_cpu=2)
actors = [Actor(), Actor()]
print(*[pid for actor in actors for pid in actor.pids()], flush=True)
"""


def start_script(text: str) -> tuple[subprocess.Popen[str], list[int]]:
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return process, [int(word) for word in process.stdout.readline().split()]


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()


def test_a_killed_client_leaves_nothing(nothing_left):
    process, pids = start_script(SCRIPT + "time.sleep(1000)")
    assert len(pids) == 4 and all(map(alive, pids))
    process.kill()
    finish(process)
    until(lambda: not any(map(alive, pids)), 10, "everything of a killed client ended")


def test_a_script_that_never_disconnects_ends_well(nothing_left):
    process, pids = start_script(SCRIPT)
    _, errors = finish(process)
    assert process.returncode == 0 and errors == ""
    until(lambda: not any(map(alive, pids)), 5, "everything of an ended client ended")


def test_ctrl_c_interrupts_a_blocking_call_and_the_actor_cleans_up(nothing_left):
    process, pids = start_script(SCRIPT + "actors[0].sleep(1000)")
    assert "asleep" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, errors = finish(process)
    assert process.returncode != 0 and "KeyboardInterrupt" in errors
    assert "cleaned up" in out
    assert "Exception ignored" not in errors
    until(lambda: not any(map(alive, pids)), 5, "the jobs ended")


def test_a_client_whose_cluster_is_killed_still_ends(nothing_left):
    text = SCRIPT + (
        "from parl_lite import client\n"
        "for node in client.current()._cluster._nodes: node.process.kill()\n"
        "try: actors[0].sleep(1000)\n"
        "except parl_lite.ActorLostError as error: print('lost')\n"
    )
    process, pids = start_script(text)
    out, errors = finish(process)
    assert process.returncode == 0 and "lost" in out and "Exception ignored" not in errors
    until(lambda: not any(map(alive, pids[::2])), 5, "the jobs ended")
    for pid in pids:
        if alive(pid):
            kill(pid)
