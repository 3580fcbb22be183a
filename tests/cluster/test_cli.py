"""The command line with real processes: standing clusters, what they say, what is left of them."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner, Result
from conftest import PATIENCE, alive, processes_of_ours, until

import parl_lite
from parl_lite import hostos
from parl_lite.cluster import nodes
from parl_lite.cluster.cli import main

COMMAND = [sys.executable, "-m", "parl_lite.cluster"]


@parl_lite.remote_class
class Parrot:
    """Repeats."""

    def say(self, text: str) -> str:
        print(text, flush=True)
        return text

    def worker(self) -> int:
        return os.getppid()


# --- commands -----------------------------------------------------------------------------------------------------------


def run(*arguments: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(main, arguments)


def done(*arguments: str) -> str:
    """Run a command that must succeed; return what it printed."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: str) -> str:
    """Run a command that must fail with one sentence on standard error and nothing else; return the sentence."""
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def report(address: str) -> dict[str, Any]:
    return json.loads(done("status", "--address", address, "--json"))


def things() -> tuple[list[Path], dict[int, str]]:
    """Return what clusters of this module have now: folders and processes, but for what zygotes keep ready or have forked."""
    folders = sorted(path for path in hostos.runtime_folder().iterdir() if path.name != ".making")
    processes = processes_of_ours()
    forked = {process.pid for process in psutil.process_iter(["ppid"]) if "zygote" in processes.get(process.info["ppid"], "")}
    return folders, {pid: command for pid, command in processes.items() if pid not in forked}


@contextmanager
def cluster(*options: str) -> Iterator[str]:
    """Start a cluster with one CPU on any port; yield its address, and stop it if it is still there."""
    said = done("start", "--port", "0", *(options or ("--n-cpu", "1")))
    address = re.search(r"runs at (\S+:\d+),", said).group(1)  # type: ignore[union-attr]
    try:
        yield address
    finally:
        run("stop", "--port", port_of(address))


@contextmanager
def connected(address: str, timeout: float = 30.0) -> Iterator[None]:
    parl_lite.connect(address, log_to_driver=False, timeout=timeout)
    try:
        yield
    finally:
        parl_lite.disconnect()


def port_of(address: str) -> str:
    return address.rpartition(":")[2]


@contextmanager
def listener() -> Iterator[int]:
    """A TCP server that is not ours, and says nothing; yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def free_ports(n: int) -> int:
    """Return the first of n neighbouring ports that are free now, none of those that the system gives out by itself."""
    given_out = Path("/proc/sys/net/ipv4/ip_local_port_range")
    end = int(given_out.read_text().split()[0]) if given_out.exists() else 32768
    while True:
        first = random.SystemRandom().randrange(min(10_000, end // 2), end - n)  # tests beside this one draw others
        with ExitStack() as held, suppress(OSError):
            for port in range(first, first + n):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            return first


@pytest.fixture(autouse=True, scope="module")
def all_are_stopped(nothing_left: Path) -> Iterator[None]:
    """Stop, and tell of, clusters that a failed test left running."""
    yield
    left = [cluster.address for cluster in nodes.clusters()]
    for address in left:
        run("stop", "--port", port_of(address))
    assert left == []


@pytest.fixture(scope="module")
def standing(all_are_stopped: None) -> Iterator[str]:
    """A cluster of a master and two workers, the second added by the real command; yield its address."""
    with cluster("--n-cpu", "1") as address:
        added = subprocess.run([*COMMAND, "connect", address, "--n-cpu", "1"], capture_output=True, text=True)
        assert (added.returncode, added.stderr) == (0, "")
        assert f"joined the cluster at {address} with 1 CPU." in added.stdout
        yield address


# --- what works ---------------------------------------------------------------------------------------------------------

SCRIPT = """
import os, sys
import parl_lite as parl

@parl.remote_class
class Actor:
    def worker(self):
        return os.getppid()

parl.connect(*sys.argv[1:])
actors = [Actor() for _ in range(2)]
print(len({actor.worker() for actor in actors}), "workers")
"""


@pytest.mark.parametrize("form", ["environment", "argument"])
def test_the_same_script_runs_on_a_standing_cluster_of_two_workers(
    standing: str, form: str, run_script: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if form == "environment":
        monkeypatch.setenv("PARL_LITE_ADDRESS", standing)
    ended = run_script(SCRIPT, *([standing] if form == "argument" else []))
    assert (ended.stdout, ended.stderr) == ("2 workers\n", "")


def test_status_shows_workers_jobs_wishes_and_versions(standing: str) -> None:
    with connected(standing):
        actors = [Parrot(), Parrot()]
        waiting = threading.Thread(target=lambda: Parrot().say("late"))
        waiting.start()
        until(lambda: report(standing)["n_wishes"] == 1, 10, "the third actor waits")
        shown, told = done("status"), report(standing)
        del actors
        waiting.join()
    jobs = [job for worker in told["workers"] for job in worker["jobs"]]
    assert f"at {standing}, parl_lite {parl_lite.__version__}: 2 of 2 CPUs" in shown
    assert "2 workers, 2 jobs, 1 client, 1 wish waiting" in shown
    assert [str(job["pid"]) in shown and job["job"] in shown for job in jobs] == [True, True]
    assert shown.count(f"{parl_lite.__version__}, Python 3.{sys.version_info[1]}, numpy 2") == 2
    assert "it needs 1 CPU; 0 of 2 CPUs are free, and 0 wishes came before" in shown
    assert [len([text for text in job["addresses"] if text.startswith("tcp://127.0.0.1:")]) for job in jobs] == [1, 1]


def test_status_answers_at_any_moment(standing: str) -> None:
    over = threading.Event()

    def come_and_go() -> None:
        while not over.is_set():
            assert Parrot().say("x") == "x"

    with connected(standing):
        busy = [threading.Thread(target=come_and_go) for _ in range(3)]
        for thread in busy:
            thread.start()
        seen = [report(standing) for _ in range(20)]
        over.set()
        for thread in busy:
            thread.join()
    assert all(worker["free_cpu"] + len(worker["jobs"]) == 1 for told in seen for worker in told["workers"])
    assert [told["n_cpu"] for told in seen] == [2] * 20


def _with(word: str, text: str) -> str:
    return text if word in text else ""


def test_logs_are_found_by_class_and_by_job(standing: str) -> None:
    with connected(standing):
        first = Parrot()
        first.say("from the first")
        until(lambda: "from the first\n" in run("logs", "Parrot").stdout, 10, "its worker wrote it down")
        second = Parrot()
        second.say("from the second")
        everything = until(lambda: _with("from the second\n", run("logs", "Parrot").stdout), 10, "the other, too")
        jobs = [job["job"] for worker in report(standing)["workers"] for job in worker["jobs"]]
        alone = [done("logs", job) for job in jobs]
    assert str(everything).index("from the second") < str(everything).index("from the first")
    assert sorted(alone) == ["from the first\n", "from the second\n"]
    assert "there are logs of" in refused("logs", "Cockatoo")


def test_logs_are_followed_until_the_actor_ends(standing: str) -> None:
    with connected(standing):
        parrot = Parrot()
        parrot.say("one")
        with subprocess.Popen([*COMMAND, "logs", "--follow", "Parrot"], stdout=subprocess.PIPE, text=True) as following:
            assert following.stdout is not None
            assert following.stdout.readline() == "one\n"
            parrot.say("two")
            assert following.stdout.readline() == "two\n"
            parrot.destroy()
            assert following.stdout.read() == ""
    assert following.returncode == 0


def test_the_help_names_every_command() -> None:
    shown = subprocess.run(["parl-lite", "--help"], capture_output=True, text=True, env=_with_our_scripts()).stdout
    assert [name for name in ("start", "connect", "status", "stop", "logs") if f"\n  {name} " not in shown] == []


def _with_our_scripts() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def test_the_spelling_of_parl_is_understood() -> None:
    with cluster("--cpu_num", "3") as address:
        assert report(address)["n_cpu"] == 3


# --- stop ---------------------------------------------------------------------------------------------------------------


def test_stop_ends_its_own_cluster_only_and_leaves_nothing(standing: str) -> None:
    before = things()
    with cluster("--n-cpu", "0") as other:
        both = refused("stop")
        assert standing in both and other in both and "--port" in both
        assert f"Stopped the cluster at {other}: 1 node" in done("stop", "--port", port_of(other))
        assert things() == before
        assert len(report(standing)["workers"]) == 2
        assert "no cluster runs at port" in refused("stop", "--port", port_of(other))
        assert other in done("start", "--port", port_of(other), "--n-cpu", "0")  # the port is free at once


def test_stop_ends_the_jobs_of_clients_which_are_told() -> None:
    with cluster() as address, connected(address):
        parrot = Parrot()
        assert parrot.say("x") == "x"
        done("stop", "--port", port_of(address))
        with pytest.raises(parl_lite.ActorLostError):
            parrot.say("y")


def test_stop_ends_a_frozen_master_by_its_pid(monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster() as address:
        mine = pids(address)
        os.kill(mine["master"], signal.SIGSTOP)
        monkeypatch.setenv("PARL_LITE_LIVENESS_TIMEOUT", "0.5")
        monkeypatch.setenv("PARL_LITE_JOB_GRACE", "0.1")
        assert "Stopped" in done("stop", "--port", port_of(address))
        assert not any(alive(pid) for pid in mine.values())


def test_stop_ends_the_workers_of_a_dead_master() -> None:
    with cluster("--n-cpu", "0") as address:
        done("connect", address, "--n-cpu", "1")
        mine = pids(address)
        kill(mine["master"])
        assert alive(mine["worker"])
        assert "1 node of this machine ended" in done("stop", "--port", port_of(address))
        assert not alive(mine["worker"])


def test_stop_reaches_a_master_that_registered_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster("--n-cpu", "0") as address:
        master = pids(address)["master"]
        monkeypatch.setenv("PARL_LITE_KEY", done("key", "--port", port_of(address)).strip())
        with elsewhere(monkeypatch):
            assert "no cluster runs on this machine" in refused("stop")
            assert "Stopped" in done("stop", "--port", port_of(address))
            assert "no cluster runs at port" in refused("stop", "--port", port_of(address))
        assert hostos.wait_for_end(master, PATIENCE)


@contextmanager
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let commands of this process look into an empty runtime folder."""
    with monkeypatch.context() as patch:
        folder = Path(os.environ["TMPDIR"]) / "elsewhere"
        folder.mkdir(exist_ok=True)
        patch.setenv("TMPDIR", str(folder))
        patch.setattr("tempfile.tempdir", None)
        yield


def test_before_anything_is_started_every_command_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with elsewhere(monkeypatch):
        assert "start one with `parl-lite start`" in refused("status")
        assert "start one with `parl-lite start`" in refused("stop")
        assert "no actor has run here" in refused("logs", "Parrot")
        assert "start one there" in refused("status", "--address", f"127.0.0.1:{free_ports(1)}")


# --- what does not start leaves nothing ---------------------------------------------------------------------------------


def test_a_second_start_on_a_port_is_refused_and_leaves_nothing(standing: str) -> None:
    before = things()
    said = refused("start", "--port", port_of(standing))
    assert f"a cluster runs at {standing} already" in said and "parl-lite stop --port" in said
    assert things() == before
    assert len(report(standing)["workers"]) == 2


def test_a_port_held_by_a_stranger_is_named() -> None:
    before = things()
    with listener() as port:
        said = refused("start", "--port", str(port))
    assert f"port {port} on 127.0.0.1 is in use by another program: choose a free one with --port" in said
    assert things() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["start", "--ports", "20050-20000"], "--ports '20050-20000' is no range of ports: write A-B"),
        (["start", "--ports", "1-99999"], "is no range of ports"),
        (["start", "--port", "http"], "--port 'http' is no port"),
        (["start", "--n-cpu", "-1"], "--n-cpu '-1' is no number of CPUs"),
        (["start", "--gpu", "0,0"], "names a GPU twice"),
        (["start", "--host", "198.51.100.7"], "--host 198.51.100.7 is no address of this machine"),
        (["connect"], "is not an address: write HOST:PORT"),
        (["connect", "nowhere"], "'nowhere' is not an address: write HOST:PORT"),
        (["connect", "127.0.0.1:1", "--n-cpu", "0"], "offers nothing"),
        (["status", "--address", "8010"], "'8010' is not an address"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_sentence(arguments: Sequence[str], said: str) -> None:
    before = things()
    assert said in refused(*arguments)
    assert things() == before


def test_a_bad_setting_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARL_LITE_JOB_GRACE", "soon")
    assert "PARL_LITE_JOB_GRACE='soon' is not a number" in refused("start")


@pytest.mark.parametrize("command", ["connect", "status"])
def test_a_server_that_is_no_master_is_told_from_one(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARL_LITE_LIVENESS_TIMEOUT", "0.5")
    before = things()
    with listener() as port:
        address = f"127.0.0.1:{port}"
        said = refused(command, *(["--address"] if command == "status" else []), address)
    assert f"something listens at {address}, but it did not answer as a parl_lite master" in said
    assert things() == before


def test_connect_to_a_closed_port_says_what_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARL_LITE_LIVENESS_TIMEOUT", "0.5")
    said = refused("connect", f"127.0.0.1:{free_ports(1)}")
    assert "Connection refused" in said and "start one there with `parl-lite start`" in said


def test_a_start_whose_worker_fails_is_no_success(old_python: Callable[[str], None]) -> None:
    before = things()
    old_python("parl_lite.cluster.worker")
    said = refused("start", "--port", "0", "--n-cpu", "1")
    assert f"python 3.{sys.version_info[1]} here and 3.1 there (here is the master)" in said
    assert things() == before


# --- races --------------------------------------------------------------------------------------------------------------


def test_two_clusters_and_their_workers_start_at_the_same_moment() -> None:
    ports = [free_ports(1), free_ports(1)]
    addresses = [f"127.0.0.1:{port}" for port in ports]
    starts = [["start", "--port", str(port), "--n-cpu", "1"] for port in ports]
    connects = [["connect", address, "--n-cpu", "1"] for address in addresses for _ in range(2)]
    try:
        running = [
            subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for arguments in [*connects, *starts]
        ]
        said = [process.communicate(timeout=200) for process in running]
        assert [(process.returncode, errors) for process, (_, errors) in zip(running, said, strict=True)] == [(0, "")] * 6
        assert [report(address)["n_cpu"] for address in addresses] == [3, 3]
    finally:
        for port in ports:
            run("stop", "--port", str(port))


def test_a_client_may_come_before_the_cluster_and_before_its_workers() -> None:
    port = free_ports(1)
    address = f"127.0.0.1:{port}"
    said: list[str] = []

    def use() -> None:
        with connected(address, timeout=200):
            said.append(Parrot().say("at last"))

    early = threading.Thread(target=use)
    early.start()
    try:
        done("start", "--port", str(port), "--n-cpu", "0")
        until(lambda: report(address)["n_wishes"] == 1, 20, "the client's wish waits")
        assert "no worker has joined the cluster yet" in done("status", "--address", address)
        done("connect", address, "--n-cpu", "1")
        early.join()
    finally:
        run("stop", "--port", str(port))
    assert said == ["at last"]


def test_a_client_that_found_nobody_can_try_another_address(standing: str) -> None:
    nobody = f"127.0.0.1:{free_ports(1)}"
    with pytest.raises(parl_lite.NotConnectedError, match=rf"{nobody}.*parl-lite start"):
        parl_lite.connect(nobody, timeout=0.5)
    with connected(standing):
        assert Parrot().say("here") == "here"


# --- ports and addresses ------------------------------------------------------------------------------------------------


def listening_ports(pid: int) -> set[int]:
    """Return the ports at which a process and its descendants listen."""
    root = psutil.Process(pid)
    return {
        connection.laddr.port
        for process in [root, *root.children(recursive=True)]
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }


def test_all_listening_sockets_keep_to_the_range_and_a_full_one_is_told_to_the_client() -> None:
    first = free_ports(4)  # for the master, the worker's objects, and two actors
    options = ["--port", str(first), "--ports", f"{first}-{first + 3}", "--n-cpu", "3"]
    done("start", *options)
    address = f"127.0.0.1:{first}"
    try:
        with connected(address):
            actors = [Parrot(), Parrot()]
            assert [actor.say("x") for actor in actors] == ["x", "x"]
            mine = pids(address)
            ports = listening_ports(mine["master"]) | listening_ports(mine["worker"])
            assert ports == {first, first + 1, first + 2, first + 3}
            with pytest.raises(parl_lite.ResourceError, match=f"no free port on 127.0.0.1: {first}-{first + 3}"):
                Parrot()
    finally:
        done("stop", "--port", str(first))


def test_a_cluster_for_all_networks_registers_addresses_that_others_reach() -> None:
    result = run("start", "--host", "0.0.0.0", "--port", "0", "--n-cpu", "1")
    address = re.search(r"runs at (\S+:\d+),", result.stdout).group(1)  # type: ignore[union-attr]
    try:
        assert "PARL_LITE_KEY" in result.stdout
        with connected(address):
            actor = Parrot()
            [job] = report(address)["workers"][0]["jobs"]
            assert actor.say("x") == "x"
        hosts = {text.removeprefix("tcp://").rpartition(":")[0] for text in job["addresses"] if "tcp" in text}
        assert hosts == {address.rpartition(":")[0]}
        assert not hosts & {"127.0.1.1", "0.0.0.0", "None", ""}
    finally:
        done("stop", "--port", port_of(address))


# --- deaths -------------------------------------------------------------------------------------------------------------


def pids(address: str) -> dict[str, int]:
    """Return {role: pid} of the nodes of a cluster on this machine."""
    return {node.role: node.pid for node in nodes.registrations() if node.address == address}


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    assert hostos.wait_for_end(pid, PATIENCE)


def test_status_shows_that_a_killed_worker_took_its_cpus_and_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARL_LITE_REJOIN_GRACE", "0.3")
    with cluster() as address, connected(address):
        parrot = Parrot()
        job = report(address)["workers"][0]["jobs"][0]["pid"]
        kill(pids(address)["worker"])
        told = until(lambda: next((one for one in [report(address)] if not one["workers"]), None), 10, "it is gone")
        assert (told["n_cpu"], told["free_cpu"]) == (0, 0)  # type: ignore[index]
        assert [(death["actor"], death["pid"]) for death in told["deaths"]] == [("Parrot", job)]  # type: ignore[index]
        assert "No worker has joined: add this machine with" in done("status", "--address", address)
        until(lambda: not alive(job), 10, "its job ended with it")
        with pytest.raises(parl_lite.ActorLostError):
            parrot.say("x")


def test_the_local_worker_and_its_jobs_end_with_a_killed_master() -> None:
    with cluster() as address, connected(address):
        job = Parrot().worker  # keeps the actor
        worker = job()
        mine = pids(address)
        assert worker == mine["worker"]
        jobs = [process.pid for process in psutil.Process(worker).children()]
        kill(mine["master"])
        until(lambda: not any(alive(pid) for pid in [worker, *jobs]), 15, "worker and jobs ended")


# --- the foreground -----------------------------------------------------------------------------------------------------


@contextmanager
def foreground(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a command with --block; yield it and the address it named, when it has said that it works."""
    command = [*COMMAND, *arguments, "--block"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"(?:runs|cluster) at (\S+:\d+)", line):
                break
        else:
            pytest.fail(process.stderr.read())  # type: ignore[union-attr]
        try:
            yield process, found.group(1)
        finally:
            process.kill()


def test_a_signal_ends_a_cluster_in_the_foreground_in_order() -> None:
    before = things()
    with foreground("start", "--port", "0", "--n-cpu", "1") as (process, address):
        with connected(address):
            parrot = Parrot()
            process.terminate()
            said, errors = process.communicate(timeout=PATIENCE)
            with pytest.raises(parl_lite.ActorLostError, match="ended"):
                parrot.say("x")
        assert (process.returncode, errors) == (0, "")
        assert "leaves: received SIGTERM" in said  # the logs
    assert things() == before


def test_ctrl_c_ends_a_worker_in_the_foreground(standing: str) -> None:
    before = things()
    with foreground("connect", standing, "--n-cpu", "1") as (process, _):
        assert len(report(standing)["workers"]) == 3
        process.send_signal(signal.SIGINT)
        assert (process.wait(PATIENCE), process.stderr.read()) == (0, "")  # type: ignore[union-attr]
    assert things() == before
    assert len(report(standing)["workers"]) == 2


def test_a_worker_in_the_foreground_ends_with_its_cluster() -> None:
    with cluster("--n-cpu", "0") as address:
        with foreground("connect", address, "--n-cpu", "1") as (process, named):
            assert named == address
            done("stop", "--port", port_of(address))
            assert process.wait(PATIENCE) == 0


def test_a_node_that_breaks_in_the_foreground_is_an_error() -> None:
    with foreground("start", "--port", "0", "--n-cpu", "1") as (process, address):
        kill(pids(address)["worker"])
        _, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, errors) == (1, "Error: the worker process ended with code -9; what it wrote is above.\n")
        assert not any(alive(pid) for pid in pids(address).values())


# --- versions -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def old_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that lets processes with a word in their command say from now on that they run Python 3.1."""

    def lie(word: str) -> None:
        lines = [
            "import platform, sys",
            f"if any({word!r} in part for part in sys.orig_argv):",
            "    platform.python_version_tuple = lambda: ('3', '1', '0')",
        ]
        (tmp_path / "sitecustomize.py").write_text("\n".join(lines))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return lie


def test_a_worker_of_another_python_is_refused_in_words_that_name_both(standing: str, old_python: Callable[[str], None]) -> None:
    before = things()
    old_python("parl_lite.cluster.worker")
    said = refused("connect", standing)
    assert f"the master and {hostos.host_name()} do not fit together: python 3.{sys.version_info[1]} here and 3.1" in said
    assert things() == before


def test_a_client_of_another_python_is_refused_before_its_classes_travel(
    standing: str, old_python: Callable[[str], None], run_script: Callable[..., Any]
) -> None:
    old_python("script.py")
    ended = run_script(SCRIPT, standing)
    assert ended.returncode == 1
    assert re.search(r"VersionError: the master and .* python 3\.\d+ here and 3\.1 there", ended.stderr)
    told = report(standing)
    assert ([worker["jobs"] for worker in told["workers"]], told["clients"]) == ([[], []], [])


# --- keys -----------------------------------------------------------------------------------------------------------------


def test_the_key_opens_the_cluster_to_another_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with cluster("--n-cpu", "0") as address:
        key = done("key", "--port", port_of(address)).strip()
        with elsewhere(monkeypatch):
            assert "needs a key" in refused("connect", address)
            (tmp_path / "key").write_text(key)
            (tmp_path / "key").chmod(0o644)
            assert "chmod 600" in refused("connect", address, "--key-file", str(tmp_path / "key"))
            (tmp_path / "key").chmod(0o600)
            assert "joined" in done("connect", address, "--n-cpu", "1", "--key-file", str(tmp_path / "key"))
            monkeypatch.setenv("PARL_LITE_KEY", key)
            with connected(address):
                assert Parrot().say("in") == "in"
            monkeypatch.setenv("PARL_LITE_KEY", "x" * 40)
            assert "refused the key" in refused("status", "--address", address)
            monkeypatch.delenv("PARL_LITE_KEY")
            done("stop")


def test_an_insecure_cluster_says_loudly_what_it_opens() -> None:
    result = run("start", "--port", "0", "--n-cpu", "1", "--insecure")
    address = re.search(r"runs at (\S+:\d+),", result.stdout).group(1)  # type: ignore[union-attr]
    try:
        assert "WARNING" in result.stderr and "any program" in result.stderr
        assert "no node with a key" in refused("key", "--port", port_of(address))
        with connected(address):
            assert Parrot().say("open") == "open"
    finally:
        done("stop", "--port", port_of(address))
