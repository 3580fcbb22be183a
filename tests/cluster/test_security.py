"""Nobody is let in: wrong keys, no keys, strangers and nonsense, against real sockets of a keyed cluster."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import zmq
from conftest import PATIENCE, until
from patients import Patient

import parl_lite
from parl_lite import folders, sockets, wire
from parl_lite.cluster.ask import ask
from parl_lite.launch import launch
from parl_lite.messages import AskStatus, JobEnded, Status, Welcome
from parl_lite.proxy import _channel
from parl_lite.security import ClusterKey, Gatekeeper
from parl_lite.settings import Settings


@dataclass
class Keyed:
    """A standing cluster with a key: a master and a worker."""

    address: str
    key: ClusterKey
    master_pid: int
    master_log: Path

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])


@pytest.fixture(scope="module")
def keyed(nothing_left: Path) -> Iterator[Keyed]:
    key = ClusterKey.new()
    homes = [folders.make_folder(prefix) for prefix in "mw"]
    key.write(homes[0][0] / "given")
    nodes = []
    address = "127.0.0.1:0"
    for role, (home, lock) in zip(("master", "worker"), homes, strict=True):
        place = ["--address", address] if role == "master" else [address, "--n-cpu", "3"]
        arguments = [*place, "--folder", str(home), "--key-file", str(homes[0][0] / "given")]
        nodes.append(launch(f"parl_lite.cluster.{role}", arguments, home, home / f"{role}.log"))
        address = nodes[-1].await_ready(time.monotonic() + PATIENCE).get("address", address)
        os.close(lock)
    yield Keyed(address, key, nodes[0].process.pid, homes[0][0] / "master.log")
    parl_lite.disconnect()
    for node in reversed(nodes):
        node.end(5.0)


@pytest.fixture
def stranger(keyed: Keyed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Be a user of another machine: nothing of the cluster is found by itself."""
    parl_lite.disconnect()
    monkeypatch.setattr("parl_lite.hostos.runtime_folder", lambda: tmp_path)


@pytest.fixture
def member(keyed: Keyed) -> Iterator[None]:
    parl_lite.disconnect()
    parl_lite.connect(keyed.address, log_to_driver=False)
    yield
    parl_lite.disconnect()


def is_answered(keyed: Keyed, frames: list[bytes], key: ClusterKey | None, seconds: float = 0.5) -> bool:
    """Send frames as one message; return whether any answer came within some seconds."""
    context = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.set(zmq.LINGER, 0)
    sockets.connect(dealer, f"tcp://{keyed.address}", key)
    dealer.send_multipart(frames)
    answered = bool(dealer.poll(1000 * seconds))
    context.destroy(0)
    return answered


def test_a_user_of_this_machine_finds_the_key_by_itself(member):
    assert Patient().echo(1) == 1


def test_the_key_is_kept_in_files_of_mode_0600(keyed, nothing_left):
    kept = list(nothing_left.rglob("key-*"))
    assert len(kept) == 2
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in kept)
    assert all(path.parent.stat().st_mode & 0o777 == 0o700 for path in kept)


def test_another_machine_needs_the_key(keyed, stranger):
    with pytest.raises(parl_lite.AuthenticationError, match=r"needs a key.*parl-lite key"):
        parl_lite.connect(keyed.address)
    with pytest.raises(parl_lite.AuthenticationError, match="refused the key"):
        parl_lite.connect(keyed.address, key="x" * 40)
    with pytest.raises(parl_lite.AuthenticationError, match="at least 16"):
        parl_lite.connect(keyed.address, key="short")


@pytest.mark.parametrize("way", ["argument", "variable", "file"])
def test_the_key_opens_by_argument_variable_and_file(keyed, stranger, monkeypatch, tmp_path, way):
    if way == "variable":
        monkeypatch.setenv("PARL_LITE_KEY", keyed.key.text)
    if way == "file":
        keyed.key.write(tmp_path / "mine")
        monkeypatch.setenv("PARL_LITE_KEY_FILE", str(tmp_path / "mine"))
    parl_lite.connect(keyed.address, key=keyed.key.text if way == "argument" else None, log_to_driver=False)
    assert Patient().echo(way) == way
    parl_lite.disconnect()


def test_a_key_file_that_others_can_read_is_refused(keyed, stranger, monkeypatch, tmp_path):
    keyed.key.write(tmp_path / "mine")
    (tmp_path / "mine").chmod(0o644)
    monkeypatch.setenv("PARL_LITE_KEY_FILE", str(tmp_path / "mine"))
    with pytest.raises(parl_lite.AuthenticationError, match="chmod 600"):
        parl_lite.connect(keyed.address)


def test_a_question_that_is_refused_before_it_is_asked_is_an_error_too(keyed, stranger, monkeypatch):
    def slowly(question):
        threading.Event().wait(0.5)  # the master hangs up meanwhile
        return encode(question)

    encode = wire.encode
    monkeypatch.setattr("parl_lite.cluster.ask.wire.encode", slowly)
    with pytest.raises(parl_lite.AuthenticationError, match="needs a key"):
        ask(f"tcp://{keyed.address}", AskStatus(), Status, 10.0, Settings())


def test_only_the_right_key_gets_an_answer(keyed):
    question = wire.encode(AskStatus())
    assert is_answered(keyed, question, keyed.key, PATIENCE)
    assert not is_answered(keyed, question, None)
    assert not is_answered(keyed, question, ClusterKey.new())


def test_knowing_the_servers_public_key_is_not_enough(keyed):
    context = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.set(zmq.LINGER, 0)
    dealer.set(zmq.CURVE_SERVERKEY, keyed.key._pair("server")[0])
    public, secret = zmq.curve_keypair()
    dealer.set(zmq.CURVE_PUBLICKEY, public)
    dealer.set(zmq.CURVE_SECRETKEY, secret)
    dealer.connect(f"tcp://{keyed.address}")
    dealer.send_multipart(wire.encode(AskStatus()))
    assert not dealer.poll(500)
    context.destroy(0)


def test_an_actors_own_port_refuses_strangers_too(keyed, member):
    actor = Patient()
    [found] = parl_lite.cluster_info()["workers"][0]["jobs"]
    [address] = [text for text in found["addresses"] if text.startswith("tcp://")]
    job = Keyed(address.removeprefix("tcp://"), keyed.key, 0, keyed.master_log)
    assert not is_answered(job, [b"\2" + bytes(15)], None)
    assert actor.echo(1) == 1


def test_an_actor_is_called_over_tcp_with_the_key(keyed, member, monkeypatch):
    monkeypatch.setattr("parl_lite.client.nearest", lambda addresses, *_: addresses[-1])
    actor = Patient()
    assert _channel(actor)._line.address.startswith("tcp://")
    assert actor.echo([1, "two"]) == [1, "two"]


def test_plain_programs_and_random_bytes_disturb_nobody(keyed, member):
    actor = Patient()
    before = psutil.Process(keyed.master_pid).memory_info().rss
    dice = random.Random(0)
    for i in range(60):
        with socket.create_connection(("127.0.0.1", keyed.port), PATIENCE) as connection:
            text = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" if i % 3 == 0 else dice.randbytes(dice.randrange(1, 5000))
            signature = b"\xff\0\0\0\0\0\0\0\1\x7f\3\0CURVE" if i % 3 == 1 else b""
            try:
                connection.sendall(signature + text)
            except OSError:
                pass  # it hung up on us, as it should
    assert actor.echo(1) == 1
    assert parl_lite.cluster_info()["n_cpu"] == 3
    assert psutil.Process(keyed.master_pid).memory_info().rss - before < 50e6


@pytest.mark.parametrize(
    "frames",
    [
        [b"hello"],
        [b"PLT1Nonsense", b"x"],
        [b"PLT1AskStatus", b"not arrow"],
        [b"PLT1JobEnded", wire.encode(JobEnded("j", 1, None, None, "x", False, "", ""))[1][:-40]],
        [b"\x80\4cos\nsystem\n(S'touch /tmp/owned'\ntR.", b""],
        wire.encode(Welcome("I am the master")),
        [b"PLT1AskStatus", bytes(9 * 1024 * 1024)],
    ],
    ids=["text", "unknown kind", "no arrow", "cut", "pickle", "the master's own", "oversize"],
)
def test_a_member_that_sends_nonsense_is_dropped_with_a_reason(keyed, member, frames):
    told = keyed.master_log.read_text().count("is dropped")
    small = sum(map(len, frames)) < Settings().max_control_message
    assert is_answered(keyed, frames, keyed.key, PATIENCE if small else 0.5) == small  # why it is dropped
    assert parl_lite.cluster_info()["n_cpu"] == 3
    if small:
        until(lambda: keyed.master_log.read_text().count("is dropped") > told, 5, "the reason is in the log")


def test_a_stranger_cannot_take_a_clients_name(keyed, member):
    actor = Patient()
    from parl_lite import client

    identity = client.current()._identity
    context = zmq.Context()
    forger = sockets.control_dealer(context, Settings(), identity)
    sockets.connect(forger, f"tcp://{keyed.address}", None)
    forger.set(zmq.SNDTIMEO, 300)
    with pytest.raises(zmq.Again):
        forger.send_multipart(wire.encode(AskStatus()))
    context.destroy(0)
    assert actor.echo(1) == 1 and parl_lite.cluster_info()["clients"][0]["jobs"] == 1


def test_the_master_cannot_unpickle(nothing_left):
    script = (
        "import sys\n"
        "import parl_lite.cluster.master\n"
        "print([name for name in sys.modules if name.startswith(('parl_lite.p', 'parl_lite.remote'))])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=200)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_a_gatekeeper_ends_with_its_context():
    context = zmq.Context()
    keeper = Gatekeeper(context, ClusterKey.new())
    keeper.close()
    context.term()


def test_a_key_is_not_shown():
    key = ClusterKey.new()
    assert key.text not in repr(key)
