"""The worker's process: one machine of the cluster. One DEALER to the master, one WorkerState, the jobs as children.

master ◀──control── DEALER ◀─▶ Loop ◀─▶ WorkerState
                                │  ▲
                         pids, pipes │ StartChild, EndChild
                                ▼
                    Children ──▶ zygote ─fork▶ jobs
"""

from __future__ import annotations

import os
import secrets
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import psutil
import zmq

from parl_lite import hostos, keys
from parl_lite.errors import ParlError
from parl_lite.folders import move_in, remove_if_empty_of_life
from parl_lite.loop import Loop
from parl_lite.messages import Place
from parl_lite.security import ClusterKey, Gatekeeper
from parl_lite.settings import Settings
from parl_lite.sockets import bind_ipc, bind_tcp, connect, control_dealer, data_router, parse_address
from parl_lite.versions import own_versions

from . import addresses, gpus, nodes
from .children import Children, Surroundings
from .node import Announcement, common_options, end_on_signals, end_with_parent, is_ipc, log_to_stderr
from .object_store import ObjectStore
from .worker_state import EndChild, Joined, MeasureChild, StartChild, WorkerState

_LINGER_MS = 1000
_PIECES_UNDER_WAY = 4


@click.command()
@click.argument("address")
@click.option("--folder", required=True, type=click.Path(path_type=Path), help="Private folder of this worker.")
@click.option("--n-cpu", type=int, default=None, help="Slots to offer; all cores by default.")
@click.option("--gpu", default=None, help="GPU ids to offer, with commas.")
@click.option("--advertise", default=None, help="Own IP address that others reach this machine at.")
@click.option("--ports", default=None, help="A-B: listen on these ports only.")
@common_options
def main(
    address: str,
    folder: Path,
    n_cpu: int | None,
    gpu: str | None,
    advertise: str | None,
    ports: str | None,
    key_file: Path | None,
    parent: int | None,
    ready_fd: int | None,
) -> None:
    """Offer this machine to the master at ADDRESS until told to end."""
    log_to_stderr()
    hostos.raise_descriptor_limit()  # the jobs inherit it
    announcement = Announcement(ready_fd)
    try:
        settings = Settings.from_environment()
        master = parse_address(address)
        lock = move_in(folder)
        port_range = addresses.port_range(ports) if ports is not None else None
        key = ClusterKey.from_file(key_file) if key_file is not None and not is_ipc(master) else None
        kept = _keep_key(key, folder, master)
        host = advertise or _own_host(master)
        surroundings = Surroundings(str(folder), host, addresses.interface_of(host), port_range, master, kept)
        devices = gpus.behind_mask([one for one in (gpu or "").split(",") if one], os.environ.get(gpus.VARIABLE))
    except (ParlError, ValueError, OSError) as error:
        announcement.fails(str(error))
        sys.exit(1)
    worker = Worker(surroundings, key, n_cpu or n_usable_cpus(), devices, announcement, settings)
    code = worker.run(parent)
    os.close(lock)
    remove_if_empty_of_life(folder)
    sys.exit(code)


class Worker:
    """Puts the machine, its loop and the children together."""

    def __init__(
        self,
        surroundings: Surroundings,
        key: ClusterKey | None,
        n_cpu: int,
        devices: tuple[str, ...],
        announcement: Announcement,
        settings: Settings,
    ) -> None:
        self._announcement = announcement
        self._surroundings = surroundings
        self._n_cpu = n_cpu
        self._devices = devices
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        log_folder = Path(surroundings.folder, "logs")
        log_folder.mkdir(mode=0o700, exist_ok=True)
        place = Place(hostos.host_name(), os.getpid(), hostos.boot_id())
        memory = psutil.virtual_memory().total
        self._state = WorkerState(own_versions(), place, n_cpu, devices, memory, str(log_folder), settings)
        identity = secrets.token_bytes(8).replace(b"\0", b"\1")
        dealer = control_dealer(self._context, settings, identity)
        self._loop = Loop(dealer, self._state, self._perform, settings)
        self._gatekeeper = Gatekeeper(self._context, key) if key is not None and surroundings.host else None
        router, stores = _open_store(self._context, surroundings, key, settings)
        self._store = ObjectStore(router, self._loop)
        surroundings = replace(surroundings, stores=stores)
        self._children = Children(self._loop, surroundings, settings)
        connect(dealer, surroundings.master, key)

    def run(self, parent: int | None) -> int:
        """Run until told to end; return the exit code."""
        end_on_signals(self._loop)
        end_with_parent(self._loop, parent)
        finish = self._loop.run()
        if finish.code:
            self._announcement.fails(finish.reason)
        self._children.close()
        self._store.close()
        self._loop.close(_LINGER_MS)
        if self._gatekeeper is not None:
            self._gatekeeper.close()
        self._context.term()
        return finish.code

    def _perform(self, action: Any) -> None:
        match action:
            case StartChild():
                self._children.start(action)
            case EndChild():
                self._children.end(action)
            case MeasureChild(job):
                self._children.measure(job)
            case Joined(cluster):
                self._joined(cluster)
            case _:
                raise AssertionError(f"unhandled: {action!r}")

    def _joined(self, cluster: str) -> None:
        master = self._surroundings.master
        if not is_ipc(master):
            nodes.register(Path(self._surroundings.folder), "worker", master.removeprefix("tcp://"), cluster)
        self._announcement.works(cluster=cluster, n_cpu=self._n_cpu, gpus=self._devices)


def _open_store(
    context: zmq.Context[zmq.Socket[bytes]], surroundings: Surroundings, key: ClusterKey | None, settings: Settings
) -> tuple[zmq.Socket[bytes], tuple[str, ...]]:
    """Return the socket of the object store, and its addresses."""
    router = data_router(context, settings)
    router.set(zmq.RCVHWM, _PIECES_UNDER_WAY)
    stores = [bind_ipc(router, str(Path(surroundings.folder, "objects")))]
    if surroundings.host:
        ports = range(*surroundings.ports) if surroundings.ports else ()
        port = bind_tcp(router, surroundings.interface, ports, key)
        host = surroundings.host
        stores.append(f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}")
    return router, tuple(stores)


def n_usable_cpus() -> int:
    """Return how many cores this process may use (affinity, as containers and Slurm set it)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _keep_key(key: ClusterKey | None, folder: Path, master: str) -> str:
    """Keep the key in our folder, for jobs and for clients of this user; return the path, "" without a key."""
    if key is None:
        return ""
    path = keys.key_file(folder, addresses.split(master)[1])
    key.write(path)
    return str(path)


def _own_host(master: str) -> str:
    """Return the address of the interface that leads to the master, "" when the master is on this machine only."""
    return "" if is_ipc(master) else hostos.address_towards(*addresses.split(master))


if __name__ == "__main__":
    main()
