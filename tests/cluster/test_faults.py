"""Each role killed and frozen while calls are under way: a value or a typed error, and every slot comes back.

Times are short here (a peer that is silent for two seconds is dead), so that what is promised is seen soon.
"""

from __future__ import annotations

import gc
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import alive, processes_of_ours, until
from daemons import StandingCluster, Surroundings, freeze, kill, n_descriptors, thaw
from patients import Patient, Printer

import parl_lite
from parl_lite import ActorLostError, ResourceError

LIVENESS = 2.0
SHORT = {
    "LIVENESS_TIMEOUT": LIVENESS,
    "HEARTBEAT_INTERVAL": 0.3,
    "REJOIN_GRACE": 1,
    "JOB_GRACE": 1,
    "NOTICE_INTERVAL": 0.5,
}
PATIENCE = 30.0


@parl_lite.remote_class
class Deaf:
    """Does not let go of the GIL."""

    def hold_the_gil(self, seconds: float) -> str:
        import ctypes

        ctypes.PyDLL(None).usleep(int(seconds * 1e6))
        return "done"

    def match(self, n: int) -> bool:
        """Run a regular expression that takes 2**n steps, in C."""
        return re.match(r"(a|a)*$", "a" * n + "b") is None


@parl_lite.remote_class(max_restarts=3)
class Phoenix:
    """Is built anew when it was lost."""

    def __init__(self, value: int) -> None:
        self.value = value

    def where(self) -> tuple[int, int, int]:
        return self.value, os.getpid(), os.getppid()


@pytest.fixture(autouse=True, scope="module")
def short_times(nothing_left: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SHORT.items():
            patch.setenv(f"PARL_LITE_{name}", str(value))
        yield


@pytest.fixture(scope="module")
def standing(short_times: None) -> Iterator[StandingCluster]:
    """A master and two workers with two slots each, for all tests of the module; each leaves it as it found it."""
    cluster = StandingCluster()
    try:
        cluster.start_master()
        for _ in range(2):
            cluster.start_worker(2)
        yield cluster
    finally:
        parl_lite.disconnect()
        cluster.end()


@pytest.fixture
def town(standing: StandingCluster) -> Iterator[StandingCluster]:
    """The cluster, and this process as its client; afterwards it has two workers and four free slots again."""
    parl_lite.disconnect()
    parl_lite.connect(standing.address, log_to_driver=False)
    yield standing
    gc.collect()  # an error that was raised here holds this test's frame, and with it the handles
    while len(standing.workers) < 2:
        standing.start_worker(2)
    until(lambda: slots() == (4, 4), PATIENCE, "all slots are free and count once")
    parl_lite.disconnect()


def slots() -> tuple[int, int]:
    """Return (free, all) slots of the cluster."""
    info = parl_lite.cluster_info()
    return info["free_cpu"], info["n_cpu"]


def worker_of(town: StandingCluster, actor) -> int:
    """Return the pid of the worker on whose machine an actor is."""
    pid = actor.pid()
    [found] = [worker for worker in parl_lite.cluster_info()["workers"] if pid in [job["pid"] for job in worker["jobs"]]]
    return found["pid"]


def node_of(town: StandingCluster, pid: int):
    return next(worker for worker in town.workers if worker.process.pid == pid)


# --- jobs -------------------------------------------------------------------------------------------------


def test_a_killed_job_is_known_with_its_signal_and_others_go_on(town):
    lost, other = Patient(), Patient()
    pid = lost.pid()
    futures = [lost.futures.sleep(1000), other.futures.sleep(0.2)]
    kill(pid)
    with pytest.raises(ActorLostError, match=f"{pid} is lost.*SIGKILL"):
        futures[0].result(PATIENCE)
    assert futures[1].result(PATIENCE) == "slept"


def test_a_frozen_job_is_an_error_and_its_slot_comes_back_though_it_stays_frozen(town):
    actor = Patient()
    pid = actor.pid()
    freeze(pid)
    with pytest.raises(ActorLostError, match="the connection to its process broke"):
        actor.futures.echo(1).result(PATIENCE)
    until(lambda: not alive(pid), PATIENCE, "the frozen job is ended")


def test_a_job_that_is_frozen_for_a_moment_is_not_given_up(town):
    actor = Patient()
    pid = actor.pid()
    freeze(pid)
    future = actor.futures.echo("here")
    with pytest.raises(TimeoutError):
        future.result(0.3)
    thaw(pid)
    assert future.result(PATIENCE) == "here"


@pytest.mark.parametrize("how", ["in a sleep of C", "in a regular expression"])
def test_an_actor_that_holds_the_gil_for_three_timeouts_is_alive(town, how):
    actor = Deaf()
    sleeps = how == "in a sleep of C"
    future = actor.futures.hold_the_gil(3 * LIVENESS) if sleeps else actor.futures.match(26)
    assert future.result(120) in ("done", True)
    assert [death for death in parl_lite.cluster_info()["deaths"] if death["actor"] == "Deaf"] == []


def test_a_constructor_that_holds_the_gil_is_waited_for(town):
    class Slow(Deaf._original):
        def __init__(self) -> None:
            self.hold_the_gil(1.5 * LIVENESS)

    assert parl_lite.remote_class(Slow)().match(1) is True


# --- workers ----------------------------------------------------------------------------------------------


def test_a_killed_worker_loses_its_actors_and_only_those(town):
    actors = [Patient() for _ in range(4)]
    pid = worker_of(town, actors[0])
    at_home = [worker_of(town, actor) == pid for actor in actors]
    assert at_home.count(True) == 2
    jobs = [actor.pid() for actor in actors]
    futures = [actor.futures.sleep(1.0) for actor in actors]
    town.kill(node_of(town, pid))
    for future, gone in zip(futures, at_home, strict=True):
        if gone:
            with pytest.raises(ActorLostError):
                future.result(PATIENCE)
        else:
            assert future.result(PATIENCE) == "slept"
    until(lambda: not any(map(alive, (job for job, gone in zip(jobs, at_home, strict=True) if gone))), 5, "its jobs ended")
    until(lambda: slots()[1] == 2, PATIENCE, "its slots left the total")


def test_a_frozen_worker_loses_its_actors_and_joins_again_once_when_it_thaws(town):
    actor = Patient()
    pid, job = worker_of(town, actor), actor.pid()
    freeze(pid)
    until(lambda: slots()[1] == 2, LIVENESS + PATIENCE, "the frozen worker is out")
    with pytest.raises(ActorLostError, match="out of reach"):
        actor.futures.sleep(1000).result(PATIENCE)
    thaw(pid)
    until(lambda: slots() == (4, 4), PATIENCE, "it is here again, once")
    until(lambda: not alive(job), PATIENCE, "the lost actor's process, which nobody owns, has ended")


def test_a_worker_that_is_frozen_for_a_moment_loses_nothing(town):
    actor = Patient()
    pid = worker_of(town, actor)
    freeze(pid)
    assert actor.echo(1) == 1  # the worker is not on the way
    thaw(pid)
    assert Patient().echo(2) == actor.echo(2)
    assert slots()[1] == 4


def test_a_lost_actor_with_restarts_is_built_on_another_worker(town):
    actor = Phoenix(42)
    _, job, worker = actor.where()
    node = next(node for node in town.workers if node.process.pid == worker)
    town.kill(node)
    until(lambda: slots()[1] == 2, PATIENCE, "its worker is out")
    until(lambda: not alive(job), 5, "its process ended")
    value, again, elsewhere = actor.where()
    assert (value, again != job, elsewhere) == (42, True, town.workers[0].process.pid)


def test_a_worker_leaves_in_order_and_comes_back(town):
    actors = [Patient() for _ in range(4)]
    pid = worker_of(town, actors[0])
    leavers = [actor for actor in actors if worker_of(town, actor) == pid]
    futures = [actor.futures.sleep(1000) for actor in leavers]
    town.end_worker(node_of(town, pid))
    for future in futures:
        with pytest.raises(ActorLostError):
            future.result(PATIENCE)
    assert slots() == (0, 2)
    assert [actor.echo(1) for actor in actors if actor not in leavers] == [1, 1]
    town.start_worker(2)
    assert Patient().echo(3) == 3
    assert slots()[1] == 4


# --- the master -------------------------------------------------------------------------------------------


def test_a_master_that_starts_anew_on_its_port_learns_everything(town):
    actors = [Patient() for _ in range(4)]
    pids = [actor.pid() for actor in actors]
    under_way = actors[0].futures.sleep(1.0)
    town.kill(town.master)
    assert actors[1].echo("while it is away") == "while it is away"
    town.start_master()
    until(lambda: slots()[1] == 4, PATIENCE, "both workers are here again, once")
    assert under_way.result(PATIENCE) == "slept"
    assert slots()[0] == 0
    assert [actor.pid() for actor in actors] == pids
    del actors, under_way
    until(lambda: slots() == (4, 4), PATIENCE, "released actors free their slots at the new master")
    assert Patient().echo(1) == 1


def test_a_wish_that_waits_is_granted_by_the_master_that_follows(town):
    import threading

    actors = [Patient() for _ in range(4)]
    made = []
    thread = threading.Thread(target=lambda: made.append(Patient().echo("granted")))
    thread.start()
    until(lambda: parl_lite.cluster_info()["wishes"], PATIENCE, "the wish waits")
    town.kill(town.master)
    town.start_master()
    until(lambda: slots()[1] == 4, PATIENCE, "both workers are here again")
    actors.pop().destroy()
    thread.join(PATIENCE)
    assert made == ["granted"]


def test_the_slots_of_a_client_that_died_while_the_master_was_away_come_back(town, start_script):
    process = start_script("actors = [Patient(), Patient()]\nsay([actor.pid() for actor in actors])\nhear()\n")
    pids = [int(word) for word in re.findall(r"\d+", process.stdout.readline())]
    town.kill(town.master)
    process.kill()
    process.communicate()
    town.start_master()
    until(lambda: slots() == (4, 4), PATIENCE, "the slots of the dead client are free")
    assert not any(map(alive, pids))


def test_a_frozen_master_stops_no_actor_and_grants_when_it_thaws(town):
    actor = Patient()
    freeze(town.master.process.pid)
    with pytest.raises(parl_lite.NotConnectedError):
        parl_lite.cluster_info()  # it waits for the liveness timeout
    assert actor.echo(1) == 1
    thaw(town.master.process.pid)
    assert Patient().echo(2) == 2
    assert actor.echo(3) == 3
    until(lambda: slots()[1] == 4, PATIENCE, "both workers are here, once")


# --- clients ----------------------------------------------------------------------------------------------

HEAD = """
import os, sys
sys.path.insert(0, {here!r})
import parl_lite
from patients import Patient

def say(text):
    print(text, flush=True)

def hear():
    return sys.stdin.readline().strip()

parl_lite.connect({address!r}, log_to_driver=False)
"""


@pytest.fixture
def start_script(town: StandingCluster) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Run lines as another client of the cluster; ended when the test ends."""
    started = []

    def start(lines: str, errors: int | None = None) -> subprocess.Popen[str]:
        script = HEAD.format(here=str(Path(__file__).parent), address=town.address) + lines
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
        started.append(subprocess.Popen([sys.executable, "-c", script], text=True, **pipes))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_client_killed_with_calls_under_way_leaves_nothing(town, start_script):
    process = start_script("a = Patient()\nfutures = [a.futures.sleep(1000)] * 3\nsay(slots := 1)\nhear()\n")
    assert process.stdout.readline() == "1\n"
    assert slots()[0] == 3
    process.kill()
    process.communicate()
    until(lambda: slots() == (4, 4), PATIENCE, "its slot is free")


def test_a_frozen_client_loses_its_actors_learns_it_and_can_go_on(town, start_script):
    text = (
        "actor = Patient()\n"
        "say(actor.pid())\n"
        "hear()\n"
        "try:\n"
        "    say(actor.echo(1))\n"
        "except parl_lite.ActorLostError:\n"
        "    say('lost')\n"
        "say(Patient().echo('again'))\n"
        "hear()\n"
    )
    process = start_script(text)
    pid = int(process.stdout.readline())
    freeze(process.pid)
    until(lambda: slots() == (4, 4), PATIENCE, "the slot of the frozen client is free")
    assert not alive(pid)
    thaw(process.pid)
    process.stdin.write("go on\n")
    process.stdin.flush()
    assert process.stdout.readline() == "lost\n"
    assert process.stdout.readline() == "again\n"
    process.communicate("end\n")
    assert process.returncode == 0


# --- resources that run out -------------------------------------------------------------------------------


def test_a_full_disk_ends_no_job(town):
    actor = Printer()
    for worker in town.workers:  # "File too large" stands for "No space left on device": both are an OSError of write
        soft, hard = resource.prlimit(worker.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(worker.process.pid, resource.RLIMIT_FSIZE, (10_000, hard))
    actor.flood(5000)
    path = actor.log_path()
    actor.say("and goes on")
    assert path.startswith("pipe:")
    assert Printer().log_path().startswith("pipe:")
    for worker in town.workers:
        resource.prlimit(worker.process.pid, resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def tiny_disk(nothing_left: Path) -> Iterator[Surroundings]:
    """Return surroundings whose TMPDIR is a disk of 256 kB."""
    folder = nothing_left / "disk"
    folder.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tiny", folder], capture_output=True
    )
    if not mounted or mounted.returncode:
        pytest.skip("needs the right to mount (root)")
    yield Surroundings(folder=folder)
    subprocess.run(["umount", "--lazy", folder], check=True)
    folder.rmdir()


def test_a_full_disk_of_a_machine_ends_no_job_there(town, tiny_disk):
    for worker in list(town.workers):
        town.end_worker(worker)
    worker = town.start_worker(2, tiny_disk)
    actor = Printer()
    for _ in range(4):
        actor.flood(5000)
    assert Printer().log_path().startswith("pipe:")  # new ones start, too
    actor.say("it goes on")
    assert shutil.disk_usage(tiny_disk.folder).free < 4096
    del actor
    town.end_worker(worker)


def test_a_client_without_descriptors_gets_an_error_and_goes_on(town, start_script):
    text = (
        "import resource\n"
        "n_open = len(os.listdir('/proc/self/fd'))\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (n_open + 20, 10_000))\n"
        "actors = []\n"
        "try:\n"
        "    while True: actors.append(Patient())\n"
        "except parl_lite.ParlError as error:\n"
        "    say(f'{type(error).__name__}: {error}')\n"
        "say([actor.echo(1) for actor in actors])\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (1000, 10_000))\n"
        "say(Patient().echo('more'))\n"
        "hear()\n"
    )
    process = start_script(text)
    assert re.match(r"ResourceError: .*open files.*ulimit -n", process.stdout.readline())
    assert re.match(r"\[1(, 1)*\]", process.stdout.readline())
    assert process.stdout.readline() == "more\n"
    process.communicate("end\n")
    assert process.returncode == 0


def test_a_worker_without_descriptors_gives_an_error_and_goes_on(town):
    workers = [worker.process.pid for worker in town.workers]
    before = {pid: resource.prlimit(pid, resource.RLIMIT_NOFILE) for pid in workers}
    refused = []
    for spare in range(0, 40, 3):
        for pid in workers:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (n_descriptors(pid) + spare, before[pid][1]))
        try:
            assert Patient().echo(1) == 1
        except ResourceError as error:
            assert re.search("too many open files, this process may have .* raise the limit", str(error))
            refused.append(spare)
    assert refused[0] == 0
    assert 39 not in refused
    for pid in workers:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before[pid])
    assert Patient().echo(1) == 1
    assert all(map(alive, workers))


def test_a_master_without_descriptors_lets_nobody_new_in_and_goes_on(town, start_script, monkeypatch):
    actor = Patient()
    master = town.master.process.pid
    before = resource.prlimit(master, resource.RLIMIT_NOFILE)
    resource.prlimit(master, resource.RLIMIT_NOFILE, (n_descriptors(master), before[1]))
    process = start_script("say('in')\nhear()\n", errors=subprocess.PIPE)
    assert "NotConnectedError" in process.stderr.read()
    assert (Patient().echo(1), actor.echo(2)) == (1, 2)
    resource.prlimit(master, resource.RLIMIT_NOFILE, before)
    assert start_script("say('in')\nhear()\n").stdout.readline() == "in\n"


@pytest.mark.slow(reason="half a minute of processes that start")
def test_a_hundred_actors_live_with_1024_descriptors_in_each_process(town):
    worker = town.start_worker(100)
    limited = [os.getpid(), town.master.process.pid, worker.process.pid]
    before = [resource.prlimit(pid, resource.RLIMIT_NOFILE) for pid in limited]
    for pid in limited:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (1024, before[0][1]))
    actors = [Patient() for _ in range(100)]
    futures = [actor.futures.echo(i) for i, actor in enumerate(actors)]
    assert [future.result(PATIENCE) for future in futures] == list(range(100))
    assert all(n_descriptors(pid) < 700 for pid in limited)
    for pid, limit in zip(limited, before, strict=True):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)
    del actors, futures
    town.end_worker(worker)


def rounds_do_not_grow(town: StandingCluster, n_rounds: int) -> None:
    pids = [os.getpid(), town.master.process.pid, *(worker.process.pid for worker in town.workers)]
    for i in range(10):
        assert Patient().echo(i) == i
    until(lambda: slots() == (4, 4), PATIENCE, "all are gone")
    before = [n_descriptors(pid) for pid in pids]
    for i in range(n_rounds):
        actor = Patient()
        assert actor.echo(i) == i
        actor.destroy()
    until(lambda: slots() == (4, 4), PATIENCE, "all are gone")
    until(lambda: all(n_descriptors(pid) <= n + 2 for pid, n in zip(pids, before, strict=True)), 10, "no descriptor is left")


def test_sixty_actors_one_after_the_other_leave_no_descriptor(town):
    rounds_do_not_grow(town, 60)


@pytest.mark.slow(reason="half a minute of processes that start")
def test_three_hundred_actors_one_after_the_other_leave_no_descriptor(town):
    rounds_do_not_grow(town, 300)


def test_no_process_is_left_over(town):
    here = processes_of_ours()
    leaders = [command for pid, command in here.items() if os.getsid(pid) == pid]  # a zygote's spare is of its session
    roles = [re.search(r"parl_lite\.cluster\.(\w+)", command).group(1) for command in leaders]
    assert sorted(roles) == ["master", "worker", "worker", "zygote", "zygote"]
