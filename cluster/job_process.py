"""The process of a job, from its first breath to its exit code: streams, signals, addresses. Knows no request and no call.

It is forked by the zygote, which may let it begin before anybody wants it; or started as a program where there is none.
"""

from __future__ import annotations

import atexit
import faulthandler
import io
import json
import os
import signal
import sys
import traceback
from dataclasses import dataclass
from types import FrameType
from typing import Any

import zmq

from parl_lite import hostos, launch
from parl_lite.errors import ParlError
from parl_lite.refs import live_at
from parl_lite.security import ClusterKey, Gatekeeper
from parl_lite.settings import Settings
from parl_lite.sockets import bind_ipc, bind_tcp, data_router

from . import randomness, threads
from .doors import Doors, files_of
from .job import Job
from .job_code import JobCode

_LINGER_MS = 500


@dataclass(frozen=True)
class Beginning:
    """What a process has as soon as it will be a job, whichever."""

    settings: Settings
    context: zmq.Context[zmq.Socket[bytes]]
    router: zmq.Socket[bytes]


def begin() -> Beginning:
    """Do what takes a while and needs no request."""
    randomness.renew()
    settings = Settings.from_environment()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    return Beginning(settings, context, data_router(context, settings))


def run(request: dict[str, Any], first_words: int, beginning: Beginning | None = None) -> int:
    """Be the job that a worker asked for; return the exit code."""
    hostos.die_with_parent(request["worker_pid"])
    _prepare_process(request)
    begun = beginning or begin()
    settings, context, router = begun.settings, begun.context, begun.router
    key = ClusterKey.from_environment() if request["host"] else None
    gatekeeper = Gatekeeper(context, key) if key is not None else None
    try:
        addresses = _bind(router, request, key)
    except (ParlError, zmq.ZMQError, OSError) as error:
        os.write(first_words, json.dumps({"error": str(error)}).encode() + b"\n")
        return 1
    doors = Doors(router, files_of(request["folder"], request["job"])[1])
    job = Job(doors, request["name"], JobCode(request["folder"], settings.max_project_size), request["stores"])
    live_at(request["stores"])
    os.write(first_words, json.dumps({"pid": os.getpid(), "addresses": addresses}).encode() + b"\n")
    os.close(first_words)
    exit_code = _served(job)
    doors.close()
    router.close(_LINGER_MS)  # answers under way still leave
    if gatekeeper is not None:
        gatekeeper.close()
    context.term()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    return exit_code


def _served(job: Job) -> int:
    try:
        try:
            job.serve()
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            job.end()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return (ended.code or 0) & 0xFF
        print(ended.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    return 1


def _bind(router: zmq.Socket[bytes], request: dict[str, Any], key: ClusterKey | None) -> list[str]:
    addresses = [bind_ipc(router, files_of(request["folder"], request["job"])[0])]
    host = request["host"]
    if host:
        port = bind_tcp(router, request["interface"], range(*request["ports"]) if request["ports"] else (), key)
        addresses.append(f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}")
    return addresses


def _prepare_process(request: dict[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's; it ends its actors in order
    signal.signal(signal.SIGTERM, _asked_to_end)
    # like python -u: a crash loses nothing that was printed
    for name, number in (("stdout", 1), ("stderr", 2)):
        raw = io.FileIO(number, "w", closefd=False)
        setattr(sys, name, io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True))
    hostos.unbuffer_c_output()
    faulthandler.enable(file=2)
    os.environ.update(request["environment"])
    launch.restore_environment()
    sys.argv = [""]
    if request["n_threads"]:
        threads.limit(request["n_threads"])


def _asked_to_end(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


def main() -> None:
    """Be a job where there is no zygote: python -m parl_lite.cluster.job_process REQUEST FD."""
    os._exit(run(json.loads(sys.argv[1]), int(sys.argv[2])))


if __name__ == "__main__":
    main()
