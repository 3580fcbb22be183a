"""The cluster key: one secret text from which the CURVE key pairs of all servers and clients follow. Knows sockets, no cluster.

    key ──blake2b(key, person="server")──▶ secret of every listening socket
        ──blake2b(key, person="client")──▶ secret of every connecting socket

Who has the key can derive both; who has not can neither reach a server (its public key is not told to anybody) nor pass the
list of admitted keys, which has one entry. Traffic is encrypted. Sockets of files (ipc) live in folders of mode 0700 instead.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from pathlib import Path

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils import z85

from parl_lite.errors import AuthenticationError

KEY_VARIABLE = "PARL_LITE_KEY"
KEY_FILE_VARIABLE = "PARL_LITE_KEY_FILE"
_DOMAIN = "parl_lite"
_SHORTEST = 16


class ClusterKey:
    """A cluster's secret. Its text never appears in its repr."""

    def __init__(self, text: str) -> None:
        """Take over a text of at least 16 characters; raises AuthenticationError for a shorter one."""
        self.text = text.strip()
        if len(self.text) < _SHORTEST:
            raise AuthenticationError(
                f"a cluster key has at least {_SHORTEST} characters, this has {len(self.text)}: "
                "take the one that `parl-lite key` prints on the master's machine."
            )

    @classmethod
    def new(cls) -> ClusterKey:
        """Make a key of 256 random bits."""
        return cls(secrets.token_urlsafe(32))

    @classmethod
    def from_file(cls, path: Path) -> ClusterKey:
        """Read a key; raises AuthenticationError when others can read the file, or it cannot be read."""
        try:
            mode = path.stat().st_mode
            text = path.read_text()
        except OSError as error:
            raise AuthenticationError(f"the key file {path} cannot be read: {error.strerror}.") from None
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise AuthenticationError(f"others can read the key file {path}: run `chmod 600 {path}` and make a new key.")
        return cls(text)

    @classmethod
    def from_environment(cls) -> ClusterKey | None:
        """Return the key of PARL_LITE_KEY or of the file PARL_LITE_KEY_FILE, or None."""
        text = os.environ.get(KEY_VARIABLE)
        if text:
            return cls(text)
        path = os.environ.get(KEY_FILE_VARIABLE)
        return cls.from_file(Path(path)) if path else None

    def write(self, path: Path) -> None:
        """Write it to a new file of mode 0600, whole or not at all."""
        part = path.with_name(path.name + ".part")
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(fd, "w") as file:
            file.write(self.text + "\n")
        os.replace(part, path)

    def __repr__(self) -> str:
        return "ClusterKey(...)"

    def _pair(self, role: str) -> tuple[bytes, bytes]:
        """Return (public, secret) of a role, in Z85."""
        digest = hashlib.blake2b(self.text.encode(), digest_size=32, person=role.encode()).digest()
        secret: bytes = z85.encode(digest)
        return zmq.curve_public(secret), secret

    def protect_client(self, socket: zmq.Socket[bytes]) -> None:
        """Let a socket's later tcp connections go to servers of this key only, and prove that we have it."""
        socket.set(zmq.CURVE_SERVERKEY, self._pair("server")[0])
        public, secret = self._pair("client")
        socket.set(zmq.CURVE_PUBLICKEY, public)
        socket.set(zmq.CURVE_SECRETKEY, secret)

    def protect_server(self, socket: zmq.Socket[bytes]) -> None:
        """Let a socket's later tcp binds admit clients of this key only; the context needs a `Gatekeeper`."""
        public, secret = self._pair("server")
        socket.set(zmq.CURVE_SERVER, 1)
        socket.set(zmq.CURVE_PUBLICKEY, public)
        socket.set(zmq.CURVE_SECRETKEY, secret)
        socket.set(zmq.ZAP_DOMAIN, _DOMAIN.encode())

    def admits(self, public_key: bytes) -> bool:
        """Return whether a client's public key (Z85) is the one of this cluster."""
        return secrets.compare_digest(public_key, self._pair("client")[0])


class Gatekeeper:
    """Answers for a context's listening sockets who may come in: the holders of the key. One thread of pyzmq's own.

    Only new connections pass here. Without it CURVE would admit whoever knows the server's public key.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], key: ClusterKey) -> None:
        self._key = key
        self._authenticator = ThreadAuthenticator(context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(domain=_DOMAIN, credentials_provider=self)

    def callback(self, domain: str, key: bytes) -> bool:
        """Decide about one connection; called by pyzmq."""
        return self._key.admits(key)

    def close(self) -> None:
        """End the thread, before the context."""
        self._authenticator.stop()
