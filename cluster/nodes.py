"""Which nodes of standing clusters run on this machine: one small JSON file in the folder of each. Knows no protocol.

    runtime folder/m1a2b3c4d/node.json    {"role": "master", "address": "127.0.0.1:8010", "pid": 4242, ...}

The file goes with the folder, and that is swept when nobody lives in it. A pid may be another process's by now: a node
counts as alive only while the process of that pid was started as this role in this folder, whose name is random.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from parl_lite import folders, hostos

from . import addresses

_FILE = "node.json"


@dataclass(frozen=True)
class Registration:
    """A node as it registered itself."""

    role: str
    """master or worker."""
    address: str
    """HOST:PORT of the master."""
    pid: int
    started: float
    """When it registered, in seconds since 1970."""
    cluster: str
    folder: Path

    def alive(self) -> bool:
        """Return whether this node's process runs."""
        try:
            command = psutil.Process(self.pid).cmdline()
        except psutil.Error:
            return False
        return f"parl_lite.cluster.{self.role}" in command and str(self.folder) in command


@dataclass(frozen=True)
class Cluster:
    """The nodes of one cluster that run on this machine."""

    name: str
    address: str
    """HOST:PORT at which this machine reaches the master."""
    nodes: tuple[Registration, ...]

    @property
    def port(self) -> int:
        """Return the master's port."""
        return addresses.split(self.address)[1]

    @property
    def has_its_master_here(self) -> bool:
        """Return whether the master runs on this machine (or ran, if it is dead)."""
        is_registered = any(node.role == "master" for node in self.nodes)
        return is_registered or addresses.is_of_this_machine(addresses.split(self.address)[0])


def register(folder: Path, role: str, address: str, cluster: str) -> None:
    """Register this process as the node that lives in `folder`; a second time replaces the first."""
    facts = {"role": role, "address": address, "pid": os.getpid(), "started": time.time(), "cluster": cluster}
    draft = folder / f"{_FILE}.new"
    draft.write_text(json.dumps(facts))
    draft.replace(folder / _FILE)


def registrations() -> list[Registration]:
    """Return all nodes of this machine whose folders are still there, dead ones too, oldest first."""
    found = [_read(path) for path in hostos.runtime_folder().glob(f"*/{_FILE}")]
    return sorted((one for one in found if one is not None), key=lambda one: one.started)


def clusters() -> list[Cluster]:
    """Return the clusters of which a node runs on this machine, oldest first."""
    groups: dict[str, list[Registration]] = {}
    for node in registrations():
        if node.alive():
            groups.setdefault(node.cluster, []).append(node)
    return [Cluster(name, _address_from_here(group), tuple(group)) for name, group in groups.items()]


def sweep() -> None:
    """Remove the folders of nodes that are gone."""
    for lock in hostos.runtime_folder().glob("*/lock"):
        folders.remove_if_empty_of_life(lock.parent)


def _address_from_here(group: list[Registration]) -> str:
    host, port = addresses.split(group[0].address)
    return addresses.join(addresses.reachable(host), port)


def _read(path: Path) -> Registration | None:
    try:
        facts = json.loads(path.read_text())
        return Registration(**facts, folder=path.parent)
    except (OSError, ValueError, TypeError):
        return None  # it is just being removed, or it is of another version
