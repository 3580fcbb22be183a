"""How a handle reaches its actor: by a channel of its own, one made when it is needed, or one to whoever took its place.

    Link             made with the actor; the actor lives as long as the channel
    BorrowedLink     of a handle that was sent here: connects when it is first used, keeps nothing alive
    RestartingLink   of an actor with max_restarts: when the actor was lost, the next use builds another

Knows channels and the client, no class of the user.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

import zmq

from parl_lite import client, hostos, sockets
from parl_lite.calls import Channel
from parl_lite.line import Line
from parl_lite.refs import Packer
from parl_lite.security import ClusterKey
from parl_lite.settings import Settings


@dataclass(frozen=True)
class Address:
    """Where an actor is, for handles that are sent to others."""

    job: str
    label: str
    boot_id: str
    addresses: tuple[str, ...]
    stores: tuple[str, ...] = ()
    """Where its worker keeps objects."""


class Link:
    """The way to an actor that was made here."""

    restarts = 0
    """How often the actor was built anew."""

    def __init__(self, channel: Channel, address: Address) -> None:
        self.address = address
        self._channel = channel

    def channel(self) -> Channel:
        """Return the channel to the actor, which may be lost."""
        return self._channel

    def destroy(self) -> None:
        """End the actor; what is under way fails with ActorLostError."""
        if client._current is not None:
            client._current.release(self.address.job)
        self._channel.close()


class RestartingLink:
    """The way to an actor that is built anew, up to `n_restarts` times, when it was lost.

    Calls under way when it was lost fail: they may have been made. An actor that ended with exit code 0 wanted to end.
    """

    def __init__(self, link: Link, build: Callable[[], Link], n_restarts: int) -> None:
        self._here = client.current()
        self._link = link
        self._build = build
        self._n_left = n_restarts
        self.restarts = 0
        self._lock = threading.Lock()  # of threads that find the actor lost one builds the next, and the others wait

    @property
    def address(self) -> Address:
        """Where the actor is now."""
        return self._link.address

    def channel(self) -> Channel:
        """Return the channel to the actor; raises what making one raises if it must be built anew and cannot."""
        with self._lock:
            loss = self._link.channel().loss
            if loss is not None and loss.exit_code != 0 and self._n_left and client._current is self._here:
                self._link = self._build()
                self._n_left -= 1
                self.restarts += 1
            return self._link.channel()

    def destroy(self) -> None:
        """End the actor for good."""
        self._n_left = 0
        self._link.destroy()


class BorrowedLink:
    """The way to an actor of somebody else."""

    restarts = 0

    def __init__(self, address: Address) -> None:
        self.address = address
        self._channel: Channel | None = None
        self._lock = threading.Lock()  # one of several threads connects

    def channel(self) -> Channel:
        """Return the channel to the actor; raises ActorLostError when there is no way to it."""
        with self._lock:
            if self._channel is None:
                self._channel = _connected(self.address)
            return self._channel

    def destroy(self) -> None:
        """Disconnect, if it ever connected; the actor lives on."""
        if self._channel is not None:
            self._channel.close()


_contexts: dict[int, zmq.Context[zmq.Socket[bytes]]] = {}


def _connected(address: Address) -> Channel:
    here, settings = client._current, Settings.from_environment()
    key = here.key if here is not None else ClusterKey.from_environment()
    nearest = client.nearest(address.addresses, address.boot_id, hostos.boot_id())
    line = Line(sockets.data_dealer(_context(), settings), settings)
    packer = Packer(key, local=nearest.startswith("ipc://"))
    packer.stores = address.stores
    channel = Channel(line, address.label, settings, trusted=here is None or here.trusted, packer=packer)
    line.connect(nearest, key)
    channel.introduce()
    return channel


def _context() -> zmq.Context[zmq.Socket[bytes]]:
    """Return this process's context for borrowed links; one that a fork brought along must not be touched."""
    if os.getpid() not in _contexts:
        _contexts[os.getpid()] = zmq.Context()
        _contexts[os.getpid()].set(zmq.MAX_SOCKETS, 65535)
    return _contexts[os.getpid()]
