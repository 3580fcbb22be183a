"""Finds out what listens at an address when no master answers, for a message that helps. Speaks the first 64 bytes of ZMTP 3."""

from __future__ import annotations

import socket
from enum import Enum

from parl_lite.errors import AuthenticationError, NotConnectedError, ParlError

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


def why_silent(address: str, has_key: bool, timeout: float) -> ParlError:
    """Return the error that explains why no master answered at a ZeroMQ address for `timeout` seconds."""
    start = "start one there with `parl-lite start`, or call connect() without an address for a cluster of your own"
    if not address.startswith("tcp://"):
        return NotConnectedError(f"no master answers at {address} within {timeout:g} s: {start}.")
    place = address.removeprefix("tcp://")
    host, _, port = place.rpartition(":")
    found, word = what_listens(host.strip("[]"), int(port))
    give = "give the one that `parl-lite key` prints there, by PARL_LITE_KEY, --key-file or connect(key=...)"
    if found is Listener.NOBODY:
        return NotConnectedError(f"no master listens at {place} ({word}): {start}.")
    if found is Listener.KEYED and has_key:
        return AuthenticationError(f"the cluster at {place} refused the key: {give}.")
    if found is Listener.KEYED:
        return AuthenticationError(f"the cluster at {place} needs a key: {give}.")
    if found is Listener.OPEN and has_key:
        return AuthenticationError(f"the cluster at {place} runs without a key (--insecure): connect without one.")
    silence = f"something listens at {place}, but it did not answer as a parl_lite master within {timeout:g} s"
    return NotConnectedError(f"{silence}: check the address and the port.")
