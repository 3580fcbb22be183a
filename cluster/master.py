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

from parl_lite.cluster.master_state import MasterState
from parl_lite.cluster.node import Announcement, common_options, end_on_signals, end_with_parent, log_to_stderr
from parl_lite.errors import ParlError
from parl_lite.folders import move_in, remove_if_empty_of_life
from parl_lite.loop import Loop
from parl_lite.settings import Settings
from parl_lite.sockets import bind_ipc, bind_tcp, control_router
from parl_lite.versions import own_versions

_LINGER_MS = 1000


@click.command()
@click.option("--address", required=True, help="Where to listen: ipc://PATH or HOST:PORT.")
@common_options
def main(address: str, parent: int | None, ready_fd: int | None) -> None:
    """Run a master until it is told to end."""
    log_to_stderr()
    announcement = Announcement(ready_fd)
    settings = Settings.from_environment()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    context.set(zmq.MAX_SOCKETS, 65535)
    router = control_router(context, settings)
    try:
        bound = _bind(router, address)
    except (ParlError, zmq.ZMQError, OSError) as error:
        announcement.fails(str(error))
        context.destroy(0)
        sys.exit(1)
    code = _run(router, bound, settings, announcement, parent)
    context.term()
    _clean_up(address)
    sys.exit(code)


def _run(
    router: zmq.Socket[bytes], bound: str, settings: Settings, announcement: Announcement, parent: int | None
) -> int:
    state = MasterState(secrets.token_hex(4), secrets.token_hex(3), own_versions(), bound, settings)
    loop = Loop(router, state, _nothing_else, settings)
    end_on_signals(loop)
    end_with_parent(loop, parent)
    announcement.works(address=bound, cluster=state.cluster)
    finish = loop.run()
    loop.close(_LINGER_MS)  # the last words to clients and workers still go out
    return finish.code


def _bind(router: zmq.Socket[bytes], address: str) -> str:
    if address.startswith("ipc://"):
        path = address.removeprefix("ipc://")
        move_in(Path(path).parent)
        return bind_ipc(router, path)
    host, _, port = address.rpartition(":")
    return f"{host}:{bind_tcp(router, host.strip('[]'), [int(port)])}"


def _clean_up(address: str) -> None:
    if address.startswith("ipc://"):
        path = Path(address.removeprefix("ipc://"))
        path.unlink(missing_ok=True)
        os.closerange(3, 1024)  # the lock among them
        remove_if_empty_of_life(path.parent)


def _nothing_else(action: Any) -> None:
    raise AssertionError(f"unhandled: {action!r}")


if __name__ == "__main__":
    main()
