"""A fresh interpreter that has imported what jobs need and forks them: the one place of the library that forks.

    worker ──request: one packet of JSON, with the descriptors of the job's output and of its first words──▶ zygote
           ◀──reply: {"job": ..., "pid": ...} or {"job": ..., "error": ...}──

Single-threaded, without sockets of ZeroMQ. It forks twice, so that the job becomes a child of the worker (a subreaper), which
then hears of its end at once, with its exit code. Jobs share the zygote's pages: a hundred do not cost a hundred times torch.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from typing import Any

from parl_lite import hostos

OURS = "numpy", "parl_lite.cluster.job"
PRELOAD_VARIABLE = "PARL_LITE_PRELOAD"
"""Modules, with commas, that jobs share besides; "torch,gymnasium" when it is not set."""
_LARGEST_REQUEST = 256 * 1024


def main() -> None:
    """Serve requests on the socket that is standard input, until the worker, whose pid is the argument, closes it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hostos.die_with_parent(int(sys.argv[1]))  # at once, even in the middle of an import
    requests = socket.socket(fileno=0)
    for module in (*OURS, *os.environ.get(PRELOAD_VARIABLE, "torch,gymnasium").split(",")):
        _preload(module)
    gc.collect()
    gc.freeze()  # a collection in a job would touch, and so copy, every shared page
    while True:
        data, fds, _, _ = socket.recv_fds(requests, _LARGEST_REQUEST, 2)
        if not data:
            return
        request = json.loads(data)
        try:
            reply = {"job": request["job"], "pid": _fork_job(request, requests, *fds)}
        except OSError as error:
            reply = {"job": request["job"], "error": f"cannot fork: {error}"}
        for fd in fds:
            os.close(fd)
        requests.send(json.dumps(reply).encode())


def _preload(module: str) -> None:
    try:
        if module.strip():
            importlib.import_module(module.strip())
    except Exception as error:
        if not isinstance(error, ModuleNotFoundError):
            print(f"parl_lite zygote: {module} cannot be imported: {error!r}", file=sys.stderr, flush=True)


def _fork_job(request: dict[str, Any], requests: socket.socket, output: int, first_words: int) -> int:
    """Fork a job that is no child of this process; return its pid."""
    told, tell = os.pipe()
    gate, keep_shut = os.pipe()
    middle = os.fork()
    if middle == 0:
        between = os.getpid()
        job = os.fork()
        if job == 0:
            os.close(keep_shut)
            os.read(gate, 1)  # until the process between is gone...
            while os.getppid() == between:
                time.sleep(0.0005)  # ... for good: the kernel closes its files a moment before it gives us to the worker
            for fd in (gate, told, tell):
                os.close(fd)
            requests.close()
            _become_job(request, output, first_words)
        os.write(tell, job.to_bytes(8, "little"))
        os._exit(0)
    for fd in (tell, gate, keep_shut):
        os.close(fd)
    with open(told, "rb") as pipe:
        pid = int.from_bytes(pipe.read(8), "little")
    os.waitpid(middle, 0)
    if pid == 0:
        raise OSError("no process could be made")
    return pid


def _become_job(request: dict[str, Any], output: int, first_words: int) -> None:
    """Run the job; never returns."""
    code = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        for fd, number in ((null, 0), (output, 1), (output, 2)):
            os.dup2(fd, number)
        os.close(null)
        os.close(output)
        job = sys.modules["parl_lite.cluster.job"]
        code = job.run(request, first_words)
    except BaseException:
        traceback.print_exc()  # into the job's log: its worker tells only the exit code
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
