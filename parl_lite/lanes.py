"""A lane: a Unix socket of one machine, beside a ZeroMQ connection, that keeps the boundaries of messages. Knows bytes only.

A round trip through ZeroMQ wakes six threads, for each end has one that reads and writes for it; through a lane it wakes
two. What a lane cannot carry goes through the ZeroMQ connection, and the order of all is kept:

    token, there and back      the job tells it with the offer of a lane, and repeats it when it is ready
    nothing is under way       only then messages may begin to go by the lane
    DETOUR, of one byte        holds the place of a message that comes through ZeroMQ, since it is large
    end of the lane            from here on all comes through ZeroMQ: the lane was full, or an end is gone

Each end gives the lane up for what it sends, and goes on reading until the other has done so, too. Whether the other end
is alive is a question for ZeroMQ, whose threads answer each other's heartbeats.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DETOUR = b"\0"
"""The next message comes through ZeroMQ."""

LARGEST = 68 * 1024
"""A larger message takes the detour."""
_ROOM = 1024 * 1024
"""Asked of the system for messages that are not read yet; it gives less where it may not give so much."""
_TOKEN = 16
_SOON = 100e-6
"""Seconds of looking before a wait: a processor that fell asleep takes longer to wake up than a call to run."""
_RESPITE = 64
"""After a look in vain so many waits are made without: the other end is busy, or shares this processor."""
_NOW = getattr(socket, "MSG_DONTWAIT", 0)


class Ended(Exception):
    """Nothing more comes by this lane."""


class Eager:
    """Looks again and again for a moment before a wait, as long as that finds something."""

    def __init__(self) -> None:
        self._respite = 0

    def look(self, find: Callable[[], T]) -> T | None:
        """Return what was found, or None."""
        if self._respite:
            self._respite -= 1
            return None
        until = time.perf_counter() + _SOON
        while not (found := find()):
            if time.perf_counter() > until:
                self._respite = _RESPITE
                return None
        return found


class Lane:
    """One end of a lane. Never waits, but for `receive`, which does so for as long as was said."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._receive = sock.recv
        self._send = sock.send
        self._eager = Eager()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM)

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._socket.fileno()

    def send(self, message: bytes) -> bool:
        """Return whether the lane takes a message of up to `LARGEST` bytes: not if it is full or the other end is gone."""
        try:
            self._send(message, _NOW)
        except OSError:
            return False
        return True

    def receive(self, flags: int = 0) -> bytes | None:
        """Return the next message, None if none came in time; raises Ended."""
        try:
            message = self._receive(LARGEST, flags)
        except BlockingIOError:
            return None
        except ConnectionError:  # the other end did not read all; what it sent is still there
            return self.receive(flags)
        except OSError:
            raise Ended from None
        if not message:
            raise Ended
        return message

    def receive_soon(self) -> bytes | None:
        """Return the next message if it comes at once, as it did the last time, else None; raises Ended."""
        return self._eager.look(self.receive_now)

    def receive_now(self) -> bytes | None:
        """Return the next message, None if there is none; raises Ended."""
        return self.receive(_NOW)

    def give_up(self) -> None:
        """Send nothing more; the other end learns it after what was sent."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it is gone

    def close(self) -> None:
        """Give the descriptor back; a second call does nothing."""
        self._socket.close()


class Entrance:
    """Where lanes to one process begin: a file in a folder of this user."""

    def __init__(self, path: str) -> None:
        """Listen. Raises OSError, also where there are no such sockets."""
        self.path = path
        self._socket = _new_socket()
        try:
            self._socket.bind(path)
            os.chmod(path, 0o600)
            self._socket.listen(128)
            self._socket.setblocking(False)
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._socket.fileno()

    def accept(self) -> Lane | None:
        """Return a lane, whose first message is a token; None if nobody has come. Raises OSError."""
        try:
            sock, _ = self._socket.accept()
        except BlockingIOError:
            return None
        sock.setblocking(True)
        return Lane(sock)

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()


def new_token() -> bytes:
    """Return by what an end tells who it is."""
    return secrets.token_bytes(_TOKEN)


def enter(path: str, token: bytes, patience: float) -> Lane | None:
    """Return a lane to whoever listens, which waits for `patience` seconds in `receive`; None if there is none to be had."""
    try:
        sock = _new_socket()
    except OSError:
        return None
    try:
        sock.setblocking(False)
        sock.connect(path)
        sock.setblocking(True)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(patience))
        lane = Lane(sock)
    except OSError:
        sock.close()
        return None
    if not lane.send(token):
        lane.close()
        return None
    return lane


def _new_socket() -> socket.socket:
    if not hasattr(socket, "SOCK_SEQPACKET") or not hasattr(socket, "MSG_DONTWAIT"):
        raise OSError("this system has no local sockets that keep the boundaries of messages")
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _timeval(seconds: float) -> bytes:
    return struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))
