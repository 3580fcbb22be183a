"""The master's process: one ROUTER, one loop, one MasterState. Starts nothing and never unpickles.

workers, clients ──control──▶ ROUTER ─▶ Loop ─▶ MasterState
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import Any

import click
import zmq

from parl_lite import hostos, keys
from parl_lite.errors import ParlError
from parl_lite.folders import move_in, remove_if_empty_of_life
from parl_lite.loop import Loop
from parl_lite.security import ClusterKey, Gatekeeper
from parl_lite.settings import Settings
from parl_lite.sockets import bind_ipc, bind_tcp, control_router
from parl_lite.versions import own_versions

from . import addresses, nodes
from .master_state import MasterState
from .node import Announcement, common_options, end_on_signals, end_with_parent, is_ipc, log_to_stderr

_LINGER_MS = 1000


@click.command()
@click.option("--address", required=True, help="Where to listen: ipc://PATH or HOST:PORT.")
@click.option("--folder", type=click.Path(path_type=Path), help="Private folder of a master that listens on HOST:PORT.")
@common_options
def main(address: str, folder: Path | None, key_file: Path | None, parent: int | None, ready_fd: int | None) -> None:
    """Run a master until it is told to end."""
    log_to_stderr()
    hostos.raise_descriptor_limit()
    announcement = Announcement(ready_fd)
    settings = Settings.from_environment()
    home = _home(address, folder)
    lock = move_in(home)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    context.set(zmq.MAX_SOCKETS, 65535)
    router = control_router(context, settings)
    gatekeeper = None
    try:
        key = ClusterKey.from_file(key_file) if key_file is not None and not is_ipc(address) else None
        gatekeeper = Gatekeeper(context, key) if key is not None else None
        bound = _bind(router, address, key)
        if key is not None:
            key.write(keys.key_file(home, addresses.split(bound)[1]))
    except (ParlError, zmq.ZMQError, OSError) as error:
        announcement.fails(str(error))
        if gatekeeper is not None:
            gatekeeper.close()
        context.destroy(0)
        sys.exit(1)
    state = MasterState(secrets.token_hex(4), secrets.token_hex(3), own_versions(), bound, settings)
    if not is_ipc(address):
        nodes.register(home, "master", bound, state.cluster)
    code = _run(router, state, settings, announcement, parent)
    if gatekeeper is not None:
        gatekeeper.close()
    context.term()
    os.close(lock)
    remove_if_empty_of_life(home)
    sys.exit(code)


def _run(
    router: zmq.Socket[bytes], state: MasterState, settings: Settings, announcement: Announcement, parent: int | None
) -> int:
    loop = Loop(router, state, _nothing_else, settings)
    end_on_signals(loop)
    end_with_parent(loop, parent)
    announcement.works(address=state.address, cluster=state.cluster)
    finish = loop.run()
    loop.close(_LINGER_MS)  # the last words to clients and workers still go out
    return finish.code


def _bind(router: zmq.Socket[bytes], address: str, key: ClusterKey | None) -> str:
    if is_ipc(address):
        return bind_ipc(router, address.removeprefix("ipc://"))
    host, port = addresses.split(address)
    return addresses.join(host, bind_tcp(router, host, [port] if port else [], key))


def _home(address: str, folder: Path | None) -> Path:
    """Return the folder to live in: that of the socket's file, or the one given."""
    if is_ipc(address):
        return Path(address.removeprefix("ipc://")).parent
    if folder is None:
        raise click.UsageError("--folder is needed with HOST:PORT.")
    return folder


def _nothing_else(action: Any) -> None:
    raise AssertionError(f"unhandled: {action!r}")


if __name__ == "__main__":
    main()
