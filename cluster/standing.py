"""Starts and ends standing nodes: masters and workers that outlive the command that started them. Not their code."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from parl_lite import folders, hostos
from parl_lite.errors import ParlError
from parl_lite.launch import Node, launch
from parl_lite.messages import StopCluster, StopNode
from parl_lite.security import ClusterKey
from parl_lite.settings import Settings

from . import addresses
from .ask import ask, somebody_listens
from .nodes import Cluster

_HANDED_KEY = "key"
_START_TIMEOUT = 60.0
_STOP_TIMEOUT = 5.0
_EXIT_TIME = 5.0
"""A node that has ended its jobs may take so long to go."""


@dataclass(frozen=True)
class Offer:
    """What a worker gives to its cluster; None: what the worker finds out itself."""

    n_cpu: int | None
    gpus: tuple[str, ...]
    ports: str | None
    advertise: str | None

    def arguments(self) -> list[str]:
        """Return the worker's command line options."""
        given = {
            "--n-cpu": self.n_cpu,
            "--gpu": ",".join(self.gpus),
            "--ports": self.ports,
            "--advertise": self.advertise,
        }
        return [text for name, value in given.items() if value for text in (name, str(value))]


@dataclass(frozen=True)
class Standing:
    """A node that was seen working."""

    node: Node
    folder: Path
    said: dict[str, Any]

    def end(self, settings: Settings) -> None:
        """End it in order, and leave nothing of it."""
        _end(self.node, self.folder, settings)


# --- starting ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Manner:
    """How a node is started."""

    foreground: bool
    """It writes to our output."""
    key: ClusterKey | None
    """The cluster's key, None for a cluster that is open to everybody."""
    settings: Settings


def start_master(address: str, manner: Manner) -> Standing:
    """Start a master that listens on HOST:PORT (port 0: any); raises ParlError, with nothing of it left.

    In the foreground it ends with this process.
    """
    return _start("master", ["--address", address], os.getpid() if manner.foreground else None, manner)


def start_worker(address: str, offer: Offer, parent: int | None, manner: Manner) -> Standing:
    """Start a worker, seen by the master at HOST:PORT when this returns; raises ParlError, with nothing of it left."""
    return _start("worker", [address, *offer.arguments()], parent, manner)


def _start(role: str, arguments: Sequence[str], parent: int | None, manner: Manner) -> Standing:
    settings = manner.settings
    folder, lock = folders.make_folder(role[0])
    options = ["--folder", str(folder), *([] if parent is None else ["--parent", str(parent)])]
    log_path = None if manner.foreground else folder / f"{role}.log"
    node = None
    try:
        if manner.key is not None:  # by a file: arguments and environments can be looked at
            manner.key.write(folder / _HANDED_KEY)
            options += ["--key-file", str(folder / _HANDED_KEY)]
        node = launch(f"parl_lite.cluster.{role}", [*arguments, *options], folder, log_path)
        said = node.await_ready(time.monotonic() + _START_TIMEOUT)
    except BaseException:
        os.close(lock)
        _end(node, folder, settings)
        raise
    os.close(lock)  # the node lives there now
    (folder / _HANDED_KEY).unlink(missing_ok=True)  # it keeps the key under another name
    return Standing(node, folder, said)


def _end(node: Node | None, folder: Path, settings: Settings) -> None:
    if node is not None:
        node.end(settings.job_grace + _EXIT_TIME)
    folders.remove_if_empty_of_life(folder)


# --- ending ------------------------------------------------------------------------------------------------


def stop(cluster: Cluster, settings: Settings) -> None:
    """End the nodes of a cluster that run on this machine, and the whole cluster if its master does.

    The master is told, and tells all others. One that does not answer (dead, frozen) is ended by its pid, as is what is
    still there after that. Returns when no process and no folder of them is left here.
    """
    if cluster.has_its_master_here and _told(cluster.address, settings):
        deadline = time.monotonic() + settings.job_grace + settings.rejoin_grace + _EXIT_TIME
        for node in cluster.nodes:
            hostos.wait_for_end(node.pid, max(0.0, deadline - time.monotonic()))
    for node in sorted(cluster.nodes, key=lambda node: node.role, reverse=True):  # the workers with their jobs first
        if node.alive():
            _end_by_pid(node.pid, settings)
        folders.remove_if_empty_of_life(node.folder)


def stop_stranger(address: str, settings: Settings) -> None:
    """Stop a cluster whose master did not register here (another TMPDIR, a container); raises ParlError."""
    ask(f"tcp://{address}", StopCluster(), StopNode, _STOP_TIMEOUT, settings)
    deadline = time.monotonic() + settings.job_grace + settings.rejoin_grace + _EXIT_TIME
    pause = threading.Event()
    while somebody_listens(f"tcp://{address}"):
        if time.monotonic() > deadline:
            raise ParlError(f"the master at {address} was told to stop, and still listens: end its process by hand.")
        pause.wait(0.05)


def _end_by_pid(pid: int, settings: Settings) -> None:
    """Ask a node to end; kill one that does not, with all it started."""
    try:
        descendants = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return
    hostos.end_process(pid, settings.job_grace + 1.0)
    for process in descendants:
        with suppress(psutil.NoSuchProcess):  # also when its pid is another process's by now
            process.kill()
    psutil.wait_procs(descendants, _EXIT_TIME)


def _told(address: str, settings: Settings) -> bool:
    if not somebody_listens(f"tcp://{address}"):
        return False
    try:
        ask(f"tcp://{address}", StopCluster(), StopNode, min(_STOP_TIMEOUT, settings.liveness_timeout), settings)
    except ParlError:
        return False
    return True


# --- where to listen ---------------------------------------------------------------------------------------


def warning_about(host: str) -> str:
    """Return what a user must know before a master without a key listens on `host`."""
    who = "every user of this machine" if addresses.is_loopback(host) else f"whoever reaches {addresses.advertised(host)}"
    return f"WARNING: --insecure: {who} can run any program as you on all machines of this cluster, and read its traffic."
