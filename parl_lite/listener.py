"""Finds out what listens at an address when nobody answers, for a message that helps. Speaks the first 64 bytes of ZMTP 3."""

from __future__ import annotations

import socket
from enum import Enum

_SIGNATURE = b"\xff\0\0\0\0\0\0\0\1\x7f"
_GREETING_SIZE = 64
_MECHANISM = slice(12, 32)


class Listener(Enum):
    """What listens at an address."""

    NOBODY = "nobody"
    STRANGER = "a program that does not speak ZMTP"
    OPEN = "a ZeroMQ socket without a key"
    KEYED = "a ZeroMQ socket that needs a key"


def what_listens(host: str, port: int, timeout: float = 2.0) -> tuple[Listener, str]:
    """Return what listens at a tcp address, and the system's word when nobody does."""
    try:
        with socket.create_connection((host, port), timeout) as connection:
            return _ask(connection), ""
    except OSError as error:
        return Listener.NOBODY, error.strerror or str(error)


def _ask(connection: socket.socket) -> Listener:
    """Greet as a ZMTP 3.0 peer without a key; a ZeroMQ socket greets back, and hangs up on us if it needs one."""
    greeting = b""
    try:
        connection.sendall(_SIGNATURE)
        greeting = connection.recv(_GREETING_SIZE)  # before we say more: a socket that needs a key hangs up then
        connection.sendall(b"\3\0" + b"NULL".ljust(20, b"\0") + bytes(32))
        while len(greeting) < _GREETING_SIZE and (data := connection.recv(_GREETING_SIZE - len(greeting))):
            greeting += data
    except OSError:
        pass  # what came before it hung up says enough
    if greeting[:1] != b"\xff" or greeting[9:10] != b"\x7f":
        return Listener.STRANGER
    return Listener.OPEN if greeting[_MECHANISM].rstrip(b"\0") == b"NULL" else Listener.KEYED
