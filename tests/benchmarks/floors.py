"""Bare peers to measure against: an echo in a process of its own, by pyzmq or a Unix socket, without anything of ours."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import zmq

ECHO = """
import sys, zmq
router = zmq.Context().socket(zmq.ROUTER)
if len(sys.argv) > 2:
    router.curve_server, router.curve_publickey, router.curve_secretkey = True, sys.argv[2].encode(), sys.argv[3].encode()
router.bind(sys.argv[1])
print(router.getsockopt_string(zmq.LAST_ENDPOINT).rstrip(chr(0)), flush=True)
while True:
    peer = router.recv()
    frame = router.recv()
    router.send(peer, zmq.SNDMORE)
    router.send(frame)
"""


@contextmanager
def echo(transport: str = "ipc", keys: tuple[bytes, bytes] | None = None) -> Iterator[zmq.Socket[bytes]]:
    """Yield a DEALER connected to a bare ROUTER that echoes, over ipc or tcp; with CURVE if there are keys of the ROUTER."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"ipc://{Path(folder) / 'echo'}" if transport == "ipc" else "tcp://127.0.0.1:*"
        command = [sys.executable, "-c", ECHO, address, *(key.decode() for key in keys or ())]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        context = zmq.Context()
        dealer = context.socket(zmq.DEALER)
        dealer.set(zmq.SNDHWM, 0)
        dealer.set(zmq.RCVHWM, 0)
        if keys is not None:
            dealer.curve_serverkey = keys[0]
            dealer.curve_publickey, dealer.curve_secretkey = zmq.curve_keypair()
        dealer.connect(process.stdout.readline().strip())
        dealer.send(b"hello")
        dealer.recv()
        try:
            yield dealer
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
            context.destroy(0)


UNIX_ECHO = """
import socket, sys
with socket.socket(fileno=int(sys.argv[1])) as end:
    while message := end.recv(4096):
        end.send(message)
"""


@contextmanager
def unix_echo() -> Iterator[socket.socket]:
    """Yield a Unix socket that keeps the boundaries of messages, whose other end echoes."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen([sys.executable, "-c", UNIX_ECHO, str(there.fileno())], pass_fds=[there.fileno()])
    there.close()
    try:
        yield here
    finally:
        here.close()
        process.wait()


def seconds_of(work, n: int) -> float:
    """Return the seconds of one pass of `work(n)`."""
    begin = time.perf_counter()
    work(n)
    return time.perf_counter() - begin
