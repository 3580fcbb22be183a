"""A fresh interpreter that has imported what jobs need and forks them: the one place of the library that forks.

    worker ──request: one packet of JSON, with the descriptors of the job's output and of its first words──▶ zygote
           ◀──reply: {"job": ..., "pid": ...} or {"job": ..., "error": ...}──

Single-threaded, without sockets of ZeroMQ. It forks twice, so that the job becomes a child of the worker (a subreaper), which
then hears of its end at once, with its exit code. Jobs share the zygote's pages: a hundred do not cost a hundred times torch.

When nothing is asked for a moment it forks a *spare*: a process that has begun to be a job and is handed the next request.
So the first of the next jobs need not wait for a fork, which copies the page tables of all that was imported.
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
from collections.abc import Callable
from typing import Any, NoReturn

from parl_lite import hostos

OURS = "numpy", "parl_lite.cluster.job_process"
PRELOAD_VARIABLE = "PARL_LITE_PRELOAD"
"""Modules, with commas, that jobs share besides; "torch,gymnasium" when it is not set."""
_LARGEST_REQUEST = 256 * 1024
_A_MOMENT = 0.05


def main() -> None:
    """Serve requests on the socket that is standard input, until the worker, whose pid is the argument, closes it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hostos.die_with_parent(int(sys.argv[1]))  # at once, even in the middle of an import
    requests = socket.socket(fileno=0)
    for module in (*OURS, *os.environ.get(PRELOAD_VARIABLE, "torch,gymnasium").split(",")):
        _preload(module)
    _warm_up()
    gc.collect()
    gc.freeze()  # a collection in a job would touch, and so copy, every shared page
    Zygote(requests, int(sys.argv[1])).serve()


class Zygote:
    """Serves requests, one after the other."""

    def __init__(self, requests: socket.socket, worker: int) -> None:
        self._requests = requests
        self._worker = worker
        self._spare: Spare | None = None

    def serve(self) -> None:
        """Serve until the worker closes the socket."""
        while True:
            if self._spare is None and not hostos.readable(self._requests.fileno(), _A_MOMENT):
                self._spare = self._fork_spare()
            data, fds, _, _ = socket.recv_fds(self._requests, _LARGEST_REQUEST, 2)
            if not data:
                return
            self._requests.send(json.dumps(self._answer(data, *fds)).encode())
            for fd in fds:
                os.close(fd)

    def _answer(self, data: bytes, output: int, first_words: int) -> dict[str, Any]:
        job = json.loads(data)["job"]
        spare, self._spare = self._spare, None
        if spare is not None and spare.give(data, output, first_words):
            return {"job": job, "pid": spare.pid}
        try:
            return {"job": job, "pid": _fork(lambda: self._be_job(json.loads(data), output, first_words))}
        except OSError as error:
            return {"job": job, "error": f"cannot fork: {error}"}

    def _be_job(self, request: dict[str, Any], output: int, first_words: int) -> NoReturn:
        self._leave_requests()
        _become_job(request, output, first_words)

    def _leave_requests(self) -> None:
        """Put nothing in the place of the socket, which is standard input: what a job opens first must not come there."""
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, self._requests.detach())
        os.close(null)

    def _fork_spare(self) -> Spare | None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        def wait_for_request() -> NoReturn:
            self._leave_requests()
            ours.close()
            _become_next_job(theirs, self._worker)

        try:
            spare = Spare(_fork(wait_for_request), ours)
        except OSError:  # no room for one more process: the next request will say so
            ours.close()
            return None
        finally:
            theirs.close()
        return spare


class Spare:
    """A process that waits to be a job, and the socket to hand it a request."""

    def __init__(self, pid: int, requests: socket.socket) -> None:
        self.pid = pid
        self._requests = requests

    def give(self, data: bytes, output: int, first_words: int) -> bool:
        """Hand it the request; False when it is gone."""
        try:
            socket.send_fds(self._requests, [data], [output, first_words])
        except OSError:
            return False
        finally:
            self._requests.close()
        return True


def _warm_up() -> None:
    """Do once what every job does first, so that what that leaves behind is shared, too."""
    payload = sys.modules["parl_lite.payload"]
    encoder, decoder = payload.Encoder(), payload.Decoder()
    plain: Any = ((1, "text", None, [2.0], {"name": True}, _warm_up), {})
    for value in (plain, ({"obs": sys.modules["numpy"].zeros(4)},)):
        for _ in range(2):
            decoder.decode(bytearray(encoder.encode(value)))


def _preload(module: str) -> None:
    try:
        if module.strip():
            importlib.import_module(module.strip())
    except Exception as error:
        if not isinstance(error, ModuleNotFoundError):
            print(f"parl_lite zygote: {module} cannot be imported: {error!r}", file=sys.stderr, flush=True)


def _fork(be: Callable[[], NoReturn]) -> int:
    """Fork a process that is no child of this one, and does no more than `be`; return its pid."""
    told, tell = os.pipe()
    gate, keep_shut = os.pipe()
    middle = os.fork()
    if middle == 0:
        between = os.getpid()
        child = os.fork()
        if child == 0:
            os.close(keep_shut)
            os.read(gate, 1)  # until the process between is gone...
            while os.getppid() == between:
                time.sleep(0.0005)  # ... for good: the kernel closes its files a moment before it gives us to the worker
            for fd in (gate, told, tell):
                os.close(fd)
            try:
                be()
            finally:
                os._exit(1)
        os.write(tell, child.to_bytes(8, "little"))
        os._exit(0)
    for fd in (tell, gate, keep_shut):
        os.close(fd)
    with open(told, "rb") as pipe:
        pid = int.from_bytes(pipe.read(8), "little")
    os.waitpid(middle, 0)
    if pid == 0:
        raise OSError("no process could be made")
    return pid


def _become_next_job(requests: socket.socket, worker: int) -> NoReturn:
    """Begin to be a job, and be the one that is asked for next; end when nobody asks any more."""
    code = 1
    try:
        hostos.die_with_parent(worker)
        beginning = sys.modules["parl_lite.cluster.job_process"].begin()
        data, fds, _, _ = socket.recv_fds(requests, _LARGEST_REQUEST, 2)
        requests.close()
        if data:
            output, first_words = fds
            _become_job(json.loads(data), output, first_words, beginning)
        code = 0
    finally:
        os._exit(code)


def _become_job(request: dict[str, Any], output: int, first_words: int, beginning: Any = None) -> NoReturn:
    """Run the job; never returns."""
    code = 1
    try:
        os.setsid()
        for number in (1, 2):
            os.dup2(output, number)
        os.close(output)
        job = sys.modules["parl_lite.cluster.job_process"]
        code = job.run(request, first_words, beginning)
    except BaseException:
        traceback.print_exc()  # into the job's log: its worker tells only the exit code
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
