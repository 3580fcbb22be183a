"""Bare pyzmq peers to measure against: an echo in a process of its own, over the same transport, without anything of ours."""

from __future__ import annotations

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
router.bind(sys.argv[1])
while True:
    peer = router.recv()
    frame = router.recv()
    router.send(peer, zmq.SNDMORE)
    router.send(frame)
"""


@contextmanager
def echo() -> Iterator[zmq.Socket[bytes]]:
    """Yield a DEALER connected to a bare ROUTER that echoes, over ipc."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"ipc://{Path(folder) / 'echo'}"
        process = subprocess.Popen([sys.executable, "-c", ECHO, address])
        context = zmq.Context()
        dealer = context.socket(zmq.DEALER)
        dealer.set(zmq.SNDHWM, 0)
        dealer.set(zmq.RCVHWM, 0)
        dealer.connect(address)
        dealer.send(b"hello")
        dealer.recv()
        try:
            yield dealer
        finally:
            process.kill()
            process.wait()
            context.destroy(0)


def seconds_of(work, n: int) -> float:
    """Return the seconds of one pass of `work(n)`."""
    begin = time.perf_counter()
    work(n)
    return time.perf_counter() - begin
