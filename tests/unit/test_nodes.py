"""The registry of standing nodes: files in folders, and what they say of processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from parl_lite import folders
from parl_lite.cluster import nodes


@pytest.fixture(autouse=True)
def own_runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("parl_lite.hostos._LONGEST_SOCKET_PATH", 300)


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose command looks like a worker's that lives in tmp_path/w1."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", "parl_lite.cluster.worker", str(tmp_path / "w1")]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def registered(role: str, address: str = "127.0.0.1:8010", cluster: str = "c1") -> Path:
    folder, _ = folders.make_folder(role[0])
    nodes.register(folder, role, address, cluster)
    return folder


def test_a_node_registers_in_its_folder_and_goes_with_it() -> None:
    folder, lock = folders.make_folder("w")
    nodes.register(folder, "worker", "10.0.0.1:8010", "c1")
    [found] = nodes.registrations()
    assert (found.role, found.address, found.cluster, found.folder) == ("worker", "10.0.0.1:8010", "c1", folder)
    nodes.sweep()
    assert nodes.registrations() == [found]  # somebody lives there
    os.close(lock)
    nodes.sweep()
    assert nodes.registrations() == []


def test_registering_again_replaces_the_first() -> None:
    folder = registered("worker", cluster="before")
    nodes.register(folder, "worker", "127.0.0.1:8010", "after")
    assert [node.cluster for node in nodes.registrations()] == ["after"]


def test_a_pid_that_is_another_process_by_now_is_no_node() -> None:
    registered("worker")  # with the pid of this process, which is no worker
    assert [node.alive() for node in nodes.registrations()] == [False]
    assert nodes.clusters() == []


def test_a_node_is_alive_while_its_own_process_runs(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    node = nodes.Registration("worker", "127.0.0.1:8010", sleeper.pid, 0.0, "c1", tmp_path / "w1")
    assert node.alive()
    assert not nodes.Registration("worker", "127.0.0.1:8010", sleeper.pid, 0.0, "c1", tmp_path / "w2").alive()
    assert not nodes.Registration("master", "127.0.0.1:8010", sleeper.pid, 0.0, "c1", tmp_path / "w1").alive()
    sleeper.kill()
    sleeper.wait()
    assert not node.alive()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"role": "worker"}', json.dumps({"role": "x", "colour": "blue"})])
def test_a_file_that_is_no_registration_is_passed_over(text: str) -> None:
    (registered("worker") / "node.json").write_text(text)
    assert nodes.registrations() == []


def test_nodes_are_grouped_by_cluster_under_an_address_that_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes.Registration, "alive", lambda self: True)
    for role, address, cluster in [
        ("master", "0.0.0.0:8010", "c1"),
        ("worker", "127.0.0.1:8010", "c1"),
        ("worker", "198.51.100.7:8010", "c2"),
    ]:
        registered(role, address, cluster)
    mine, far = nodes.clusters()
    assert (mine.name, mine.address, mine.port, len(mine.nodes), mine.has_its_master_here) == (
        "c1",
        "127.0.0.1:8010",
        8010,
        2,
        True,
    )
    assert (far.name, far.address, far.has_its_master_here) == ("c2", "198.51.100.7:8010", False)
