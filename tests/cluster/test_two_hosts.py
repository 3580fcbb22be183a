"""A cluster with a key on two machines, and a client on a third: code and files travel, cables are pulled."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from conftest import until
from daemons import StandingCluster, kill
from hosts import Console, Host, Network, RemoteFailure, why_impossible

from parl_lite import hostos
from parl_lite.launch import python_command
from parl_lite.security import ClusterKey

pytestmark = pytest.mark.skipif(bool(why_impossible()), reason=why_impossible() or "possible here")

PATIENCE = 40.0
SHORT = {"LIVENESS_TIMEOUT": 3, "HEARTBEAT_INTERVAL": 0.3, "REJOIN_GRACE": 1, "JOB_GRACE": 1, "NOTICE_INTERVAL": 0.5}

SCRIPT = """
import os
import numpy as np
import parl_lite
from parl_lite.proxy import _channel
from tools.words import word

@parl_lite.remote_class
class Actor:
    def __init__(self, other=None):
        self.other = other

    def where(self):
        import socket
        return socket.gethostname()

    def pid(self):
        return os.getpid()

    def word(self):
        return word()

    def read(self, path):
        with open(path) as file:
            return file.read()

    def folder(self):
        return os.getcwd()

    def double(self, value):
        return value * 2

    def sleep(self, seconds):
        import time
        time.sleep(seconds)
        return "slept"

    def ask_other(self):
        return self.other.where()

def addresses(actor):
    return _channel(actor)._line.address

def slots():
    info = parl_lite.cluster_info()
    return [info["free_cpu"], info["n_cpu"]]
"""


@pytest.fixture(scope="module")
def network(nothing_left: Path) -> Iterator[Network]:
    network = Network(["alpha", "beta", "gamma"], nothing_left)
    yield network
    try:
        until(lambda: not any(host.processes() for host in network.hosts.values()), 10, "everything on the machines ended")
    finally:
        left = network.close()
    files = [str(path) for path in nothing_left.glob("*/parl_lite-*/*") if path.name != ".making"]
    assert (left, files) == ([], [])


@pytest.fixture(scope="module")
def cluster(network: Network) -> Iterator[StandingCluster]:
    """A master and a worker on alpha, a worker on beta, two slots each."""
    alpha, beta = network.hosts["alpha"], network.hosts["beta"]
    cluster = StandingCluster(ClusterKey.new(), f"{alpha.address}:8010")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SHORT.items():
            patch.setenv(f"PARL_LITE_{name}", str(value))
        try:
            cluster.start_master(alpha.surroundings())
            cluster.start_worker(2, alpha.surroundings())
            cluster.start_worker(2, beta.surroundings(), ["--advertise", beta.address, "--ports", "20000-20020"])
            yield cluster
        finally:
            cluster.end()


@pytest.fixture
def client(network: Network, cluster: StandingCluster) -> Iterator[Console]:
    """A connected script on gamma, in a project that nobody else has; afterwards all slots are free."""
    gamma = network.hosts["gamma"]
    project = gamma.folder / "project"
    (project / "tools").mkdir(parents=True, exist_ok=True)
    (project / "tools" / "words.py").write_text("def word():\n    return 'travelled'\n")
    (project / "tools" / "__init__.py").write_text("")
    (project / "level.yaml").write_text("height: 3\n")
    (project / "main.py").write_text(SCRIPT)
    assert cluster.key is not None
    cluster.key.write(project / "key")
    console = Console(gamma, project / "main.py", {"PARL_LITE_KEY_FILE": str(project / "key")})
    try:
        console(f"parl_lite.connect({cluster.address!r}, ['level.yaml'], log_to_driver=False)")
        yield console
        for host in network.hosts.values():
            host.heal()
        console("actors = future = None; import gc; gc.collect()")
        until(lambda: console("slots()") == [4, 4], PATIENCE, "all slots are free, and count once")
        assert console.close() == 0
    finally:
        console.kill()


def actors_on_both(client: Console) -> None:
    """Let `here` be an actor on alpha and `there` one on beta; all slots are taken."""
    client("actors = {actor.where(): actor for actor in [Actor() for _ in range(4)]}")
    assert client("sorted(actors)") == ["alpha", "beta"]


def answer(client: Console, source: str) -> str:
    """Return the value of an expression as text, or the type of its error."""
    try:
        return str(client(source))
    except RemoteFailure as failure:
        return str(failure).partition(":")[0]


def test_actors_live_on_both_machines_and_are_called_by_tcp(client, network):
    actors_on_both(client)
    for name in ("alpha", "beta"):
        assert client(f"addresses(actors[{name!r}])").startswith(f"tcp://{network.hosts[name].address}:")
        assert client(f"int(actors[{name!r}].double(np.arange(1_000_000)).sum())") == 999_999 * 1_000_000
    assert 20000 <= int(client("addresses(actors['beta'])").rpartition(":")[2]) <= 20020


def test_code_and_files_travel_to_machines_that_have_neither(client, network):
    actors_on_both(client)
    for name in ("alpha", "beta"):
        assert client(f"actors[{name!r}].word()") == "travelled"
        assert client(f"actors[{name!r}].read('level.yaml')") == "height: 3\n"
        assert client(f"actors[{name!r}].folder()").startswith(str(network.hosts[name].folder))


def test_an_actor_on_one_machine_calls_one_on_the_other(client):
    actors_on_both(client)
    client("actors = [actors['alpha'], actors['beta']]")  # the other two go
    client("askers = [Actor(other) for other in actors]")
    assert client("[asker.ask_other() for asker in askers]") == ["alpha", "beta"]
    assert sorted(client("[asker.where() for asker in askers]")) == ["alpha", "beta"]
    client("del askers")


def test_a_machine_without_the_key_is_refused(network, cluster):
    gamma = network.hosts["gamma"]
    script = gamma.folder / "stranger.py"
    script.write_text("import parl_lite\n")
    console = Console(gamma, script, {})
    try:
        assert answer(console, f"parl_lite.connect({cluster.address!r})") == "AuthenticationError"
        assert answer(console, f"parl_lite.connect({cluster.address!r}, key='k' * 40)") == "AuthenticationError"
        assert console.close() == 0
    finally:
        console.kill()


@pytest.mark.parametrize("name", ["alpha", "beta", "gamma"])
def test_a_cable_that_is_pulled_for_a_moment_disturbs_no_call(client, network, name):
    actors_on_both(client)
    client("futures = [actor.futures.sleep(0.5) for actor in actors.values()]")
    network.hosts[name].cut()
    client("futures += [actor.futures.where() for actor in actors.values()]")
    assert answer(client, "parl_lite.wait(futures, timeout=1.0, return_when='ALL_COMPLETED') and None") == "None"
    network.hosts[name].heal()
    assert client("[future.result(30) for future in futures][:2]") == ["slept", "slept"]
    assert client("sorted(future.result(30) for future in futures[2:])") == ["alpha", "beta"]
    assert client("parl_lite.cluster_info()['n_cpu']") == 4
    client("del futures")


def test_a_machine_that_is_cut_off_loses_its_actors_and_joins_again_when_it_is_back(client, network):
    actors_on_both(client)
    pids = {name: client(f"actors[{name!r}].pid()") for name in ("alpha", "beta")}
    client("futures = [actors[name].futures.sleep(1.0) for name in ('beta', 'alpha')]")
    network.hosts["beta"].cut()
    assert answer(client, "futures[0].result(40)") == "ActorLostError"
    assert client("futures[1].result(40)") == "slept"
    until(lambda: client("slots()[1]") == 2, PATIENCE, "its slots left the total")
    assert client("actors['alpha'].where()") == "alpha"
    network.hosts["beta"].heal()
    until(lambda: client("slots()[1]") == 4, PATIENCE, "it is back, once")
    until(lambda: not hostos.process_alive(pids["beta"]), PATIENCE, "the lost actor, which nobody owns, has ended")
    assert client("actors['alpha'].pid()") == pids["alpha"]
    client("del futures; actors.clear()")
    actors_on_both(client)


def test_a_client_that_is_cut_off_loses_its_actors_and_can_make_new_ones(client, network):
    actors_on_both(client)
    pids = client("[actor.pid() for actor in actors.values()]")
    client("future = actors['beta'].futures.sleep(1000)")
    network.hosts["gamma"].cut()
    assert answer(client, "future.result(40)") == "ActorLostError"
    until(lambda: not any(map(hostos.process_alive, pids)), PATIENCE, "its actors ended")
    network.hosts["gamma"].heal()
    assert answer(client, "actors['alpha'].where()") == "ActorLostError"
    client("actors.clear()")
    actors_on_both(client)


def test_a_master_that_is_cut_off_is_joined_again_and_actors_elsewhere_go_on(client, network):
    actors_on_both(client)
    pid = client("actors['beta'].pid()")
    network.hosts["alpha"].cut()
    assert answer(client, "actors['alpha'].futures.where().result(40)") == "ActorLostError"
    assert answer(client, "parl_lite.cluster_info()") == "NotConnectedError"
    assert client("actors['beta'].pid()") == pid
    network.hosts["alpha"].heal()
    until(lambda: answer(client, "slots()[1]") == "4", PATIENCE, "both workers are there, once")
    client("actors.clear()")
    actors_on_both(client)


# --- the command line -------------------------------------------------------------------------------------


def command(host: Host, *arguments: str, key: str = "") -> subprocess.CompletedProcess[str]:
    """Run parl-lite on a machine."""
    where = host.surroundings()
    line = [*where.through, *python_command("parl_lite.cluster"), *arguments]
    environment = {**where.environment(), **({"PARL_LITE_KEY": key} if key else {})}
    return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=200)


def done(host: Host, *arguments: str, key: str = "") -> str:
    """Run a command that must succeed; return what it printed."""
    result = command(host, *arguments, key=key)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def nodes_on(host: Host, address: str) -> list[int]:
    """Return the processes on a machine that belong to the cluster at an address."""
    found = []
    for pid in host.processes():
        with suppress(psutil.Error):  # it ended meanwhile
            if address in psutil.Process(pid).cmdline():
                found.append(pid)
    return found


def test_the_command_line_makes_such_a_cluster_and_replaces_its_master(network):
    alpha, beta, gamma = network.hosts.values()
    address, key = f"{alpha.address}:8020", ClusterKey.new()
    for host in (alpha, beta):
        key.write(host.folder / "key")
    start = ["start", "--host", alpha.address, "--port", "8020", "--n-cpu", "0", "--key-file", str(alpha.folder / "key")]
    assert address in done(alpha, *start)
    options = ["--n-cpu", "1", "--advertise", beta.address, "--key-file", str(beta.folder / "key")]
    done(beta, "connect", address, *options)

    def hosts_of_workers() -> list[str]:
        found = command(gamma, "status", "--address", address, "--json", key=key.text).stdout
        return [worker["host"] for worker in json.loads(found)["workers"]] if found else []

    stranger = command(gamma, "status", "--address", address)
    assert stranger.returncode == 1 and "key" in stranger.stderr
    assert hosts_of_workers() == ["beta"]
    [master] = nodes_on(alpha, address)
    kill(master)
    until(lambda: not hostos.process_alive(master), 5, "the master ended")
    done(alpha, *start)
    until(lambda: hosts_of_workers() == ["beta"], PATIENCE, "the worker joined the master that followed, once")
    done(alpha, "stop", "--port", "8020")
    until(lambda: not nodes_on(beta, address), PATIENCE, "the worker ended with its cluster")
