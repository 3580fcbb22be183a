"""put and Ref over two machines: the link carries the bytes once to each, and nothing stays when nobody needs it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import until
from daemons import StandingCluster
from hosts import Console, Host, Network, RemoteFailure, why_impossible

from parl_lite.security import ClusterKey

pytestmark = pytest.mark.skipif(bool(why_impossible()), reason=why_impossible() or "possible here")

PATIENCE = 30.0
SIZE = 24_000_000
SHORT = {"LIVENESS_TIMEOUT": 3, "HEARTBEAT_INTERVAL": 0.3, "REJOIN_GRACE": 1, "JOB_GRACE": 1}

SCRIPT = """
import gc
import numpy as np
import parl_lite

@parl_lite.remote_class
class Actor:
    def __init__(self):
        self.ref = None

    def where(self):
        import socket
        return socket.gethostname()

    def hold(self, ref):
        self.ref = ref
        return self.sum()

    def sum(self):
        return int(parl_lite.get(self.ref)["w"].sum())

    def let_go(self):
        self.ref = None

    def take(self, *arrays):
        return int(arrays[0]["w"][0])

    def give(self):
        return self.ref

    def give_to(self, other):
        return other.hold(self.ref)

    def put(self):
        return parl_lite.put(np.ones(100000))

def weights(number):
    return {"w": np.full(SIZE, number, np.uint8), "name": "w"}
""".replace("SIZE", str(SIZE))


@pytest.fixture(scope="module")
def network(nothing_left: Path) -> Iterator[Network]:
    network = Network(["alpha", "beta"], nothing_left)
    yield network
    try:
        until(lambda: not any(host.processes() for host in network.hosts.values()), 10, "everything on the machines ended")
    finally:
        left = network.close()
    assert left == []


@pytest.fixture(scope="module")
def cluster(network: Network) -> Iterator[StandingCluster]:
    """A master on alpha, where the client is; a worker on beta with three slots, one on alpha with one."""
    alpha, beta = network.hosts["alpha"], network.hosts["beta"]
    cluster = StandingCluster(ClusterKey.new(), f"{alpha.address}:8010")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SHORT.items():
            patch.setenv(f"PARL_LITE_{name}", str(value))
        try:
            cluster.start_master(alpha.surroundings())
            cluster.start_worker(1, alpha.surroundings())
            cluster.start_worker(3, beta.surroundings(), ["--ports", "20000-20020"])
            yield cluster
        finally:
            cluster.end()


@pytest.fixture
def client(network: Network, cluster: StandingCluster) -> Iterator[Console]:
    """A connected script on alpha, with four actors: `here` on alpha, `there` a list on beta."""
    alpha = network.hosts["alpha"]
    project = alpha.folder / "project"
    project.mkdir(exist_ok=True)
    (project / "main.py").write_text(SCRIPT)
    assert cluster.key is not None
    cluster.key.write(project / "key")
    console = Console(alpha, project / "main.py", {"PARL_LITE_KEY_FILE": str(project / "key")})
    try:
        console(f"parl_lite.connect({cluster.address!r}, log_to_driver=False)")
        console("actors = [Actor() for _ in range(4)]")
        console("there = [actor for actor in actors if actor.where() == 'beta']")
        console("[here] = [actor for actor in actors if actor.where() == 'alpha']")
        assert console("len(there)") == 3
        yield console
    finally:
        console.kill()
        until(lambda: stored_on(network.hosts["beta"]) == 0, PATIENCE, "the store is empty when the client is gone")


def received(host: Host) -> int:
    """Return how many bytes have come in over a machine's cable."""
    return int(
        subprocess.run(
            ["ip", "netns", "exec", host.namespace, "cat", "/proc/net/dev"], capture_output=True, text=True, check=True
        )
        .stdout.split("eth0:")[1]
        .split()[0]
    )


def stored_on(host: Host) -> int:
    """Return how many bytes of shared memory the worker of a machine has open."""
    total = 0
    for pid in host.processes():
        try:
            if b"parl_lite.cluster.worker" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                continue
            for link in Path(f"/proc/{pid}/fd").iterdir():
                total += link.stat().st_size if "memfd:parl_lite" in str(link.readlink()) else 0
        except OSError:
            continue
    return total


def test_the_link_carries_a_put_value_once_however_many_actors_get_it(network: Network, client: Console) -> None:
    beta = network.hosts["beta"]
    before = received(beta)
    client("ref = parl_lite.put(weights(1))")
    assert client("[actor.hold(ref) for actor in [*there, here]]") == [SIZE] * 4
    assert client("[actor.sum() for actor in there]") == [SIZE] * 3
    carried = received(beta) - before
    assert SIZE < carried < 1.3 * SIZE
    assert SIZE < stored_on(beta) < 1.3 * SIZE
    client("ref = None; gc.collect()")
    until(lambda: stored_on(beta) == 0, PATIENCE, "the worker let go of what nobody can send any more")
    assert client("[actor.sum() for actor in there]") == [SIZE] * 3, "the holders still have it"
    assert client("parl_lite.get(here.give())['w'].sum().item()") == SIZE


def test_a_ref_from_the_other_machine_is_known_at_home(client: Console) -> None:
    client("ref = parl_lite.put(weights(2))")
    assert client("there[0].hold(ref)") == 2 * SIZE
    assert client("there[0].give() is ref")
    client("ref = None; gc.collect()")
    with pytest.raises(RemoteFailure, match="SerializationError"):
        client("there[0].give()")
    assert client("there[0].sum()") == 2 * SIZE


def test_actors_hand_it_on_between_machines_and_within_one(network: Network, client: Console) -> None:
    beta = network.hosts["beta"]
    before = received(beta)
    client("ref = parl_lite.put(weights(3))")
    assert client("here.hold(ref)") == 3 * SIZE
    assert client("here.give_to(there[0])") == 3 * SIZE
    assert client("there[1].hold(ref)") == 3 * SIZE
    client("ref = None; here.let_go(); gc.collect()")
    assert client("there[0].give_to(there[2])") == 3 * SIZE
    assert received(beta) - before < 1.3 * SIZE


def test_calls_made_at_once_wait_for_the_bytes(client: Console) -> None:
    client("futures = [actor.futures.hold(parl_lite.put(weights(number))) for number, actor in enumerate(there)]")
    client("gc.collect()")
    assert client("[future.result() for future in futures]") == [0, SIZE, 2 * SIZE]


def test_a_pool_broadcasts_once_to_each_machine(network: Network, client: Console) -> None:
    beta = network.hosts["beta"]
    client("actors = here = there = None; gc.collect()")
    client("pool = parl_lite.ActorPool(Actor, 4)")
    before = received(beta)
    for version in (1, 2):
        client(f"futures = pool.broadcast('take', weights({version}))")
        assert client("[future.result() for future in futures]") == [version] * 4
    assert 2 * SIZE < received(beta) - before < 2.6 * SIZE
    client("pool.close()")


def test_a_killed_holder_and_a_killed_client_leave_nothing(network: Network, client: Console) -> None:
    beta = network.hosts["beta"]
    client("ref = parl_lite.put(weights(1))")
    client("there[0].hold(ref); there[0].destroy()")
    assert client("there[1].hold(ref)") == SIZE
    assert stored_on(beta) > SIZE
    client.kill()
    until(lambda: stored_on(beta) == 0, PATIENCE, "the worker let go of what the client had put")


def test_a_cut_cable_is_a_typed_error(network: Network, client: Console) -> None:
    alpha = network.hosts["beta"]
    client("ref = parl_lite.put(weights(1))")
    alpha.cut()
    try:
        with pytest.raises(RemoteFailure, match=r"ActorLostError|SerializationError"):
            client("there[0].hold(ref)")
    finally:
        alpha.heal()
