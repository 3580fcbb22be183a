"""The worker's store of objects, told by bare sockets what owners and jobs tell it; and the way to it when it breaks."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from parl_lite import shm
from parl_lite.cluster.object_store import ObjectStore
from parl_lite.frames import PLACE
from parl_lite.settings import Settings
from parl_lite.shm import Borrower, Place
from parl_lite.sockets import bind_ipc, data_router
from parl_lite.stores import DROP, FIND, HAVE, KEEP, NONE, NUMBER, PIECE, SEND, StoreLink, StoreLostError

pytestmark = pytest.mark.skipif(not shm.AVAILABLE, reason="this system has no anonymous files")

FIRST, SECOND = b"1" * 16, b"2" * 16
BYTES = bytes(range(200)) * 50


class Watcher:
    """What a store needs of a loop; turned by the test."""

    def __init__(self) -> None:
        self.watched: dict[int, Callable[[], object]] = {}

    def watch(self, fd: int, callback: Callable[[], object]) -> None:
        self.watched[fd] = callback

    def unwatch(self, fd: int) -> None:
        del self.watched[fd]

    def turn(self) -> None:
        readable, _, _ = select.select(list(self.watched), [], [], 0.01)
        for fd in readable:
            self.watched[fd]()


class Town:
    """A store, and who talks to it."""

    def __init__(self, folder: Path) -> None:
        self.context: zmq.Context = zmq.Context()
        self.peers: list[zmq.Socket] = []
        self.watcher = Watcher()
        router = data_router(self.context, Settings())
        self.address = bind_ipc(router, str(folder / "objects"))
        self.store = ObjectStore(router, self.watcher)

    def peer(self) -> zmq.Socket:
        dealer = self.context.socket(zmq.DEALER)
        dealer.linger = 0
        dealer.connect(self.address)
        self.peers.append(dealer)
        return dealer

    def answer(self, peer: zmq.Socket) -> bytes:
        """Return what the store says, but for its looking whether the peer is there."""
        for _ in range(1000):
            self.watcher.turn()
            while peer.poll(0):
                frame = peer.recv()
                if frame:
                    return frame
        pytest.fail("no answer")

    def ask(self, peer: zmq.Socket, *frames: bytes) -> bytes:
        peer.send_multipart(frames)
        return self.answer(peer)

    def has(self, identity: bytes) -> bool:
        """Return whether a job finds an object."""
        return self.find(identity) is not None

    def find(self, identity: bytes) -> Place | None:
        peer = self.peer()
        found = self.ask(peer, FIND, identity)
        peer.close()
        return None if found == NONE else Place(*PLACE.unpack(found))

    def until_gone(self, identity: bytes) -> None:
        for _ in range(1000):
            self.watcher.turn()
            if identity not in self.store._objects:
                return
        pytest.fail("it is still there")

    def close(self) -> None:
        self.store.close()
        for peer in self.peers:
            peer.close()
        self.context.term()


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    town = Town(tmp_path)
    yield town
    town.close()


def keep(identity: bytes, size: int = len(BYTES)) -> list[bytes]:
    return [KEEP, identity, NUMBER.pack(size)]


def piece(identity: bytes, begin: int, end: int) -> list[bytes]:
    return [PIECE, identity, NUMBER.pack(begin), BYTES[begin:end]]


def test_an_object_comes_in_pieces_and_is_found_when_it_is_whole(town: Town) -> None:
    owner = town.peer()
    assert town.ask(owner, *keep(FIRST)) == SEND
    owner.send_multipart(piece(FIRST, 0, 4000))
    assert not town.has(FIRST)
    assert town.ask(owner, *piece(FIRST, 4000, len(BYTES))) == HAVE
    place = town.find(FIRST)
    assert place is not None and Borrower().data(place) == BYTES
    assert not town.has(SECOND)


def test_it_stays_until_every_owner_has_dropped_it_and_for_who_has_mapped_it(town: Town) -> None:
    owners = [town.peer(), town.peer()]
    town.ask(owners[0], *keep(FIRST))
    town.ask(owners[0], *piece(FIRST, 0, len(BYTES)))
    assert town.ask(owners[1], *keep(FIRST)) == HAVE
    place = town.find(FIRST)
    assert place is not None
    mapped = Borrower().data(place)
    owners[0].send_multipart([DROP, FIRST])
    assert town.has(FIRST)
    owners[1].send_multipart([DROP, FIRST])
    town.until_gone(FIRST)
    assert not town.has(FIRST) and mapped == BYTES


def test_who_asks_while_another_sends_waits_and_sends_if_that_one_is_gone(town: Town) -> None:
    sender, waiting = town.peer(), town.peer()
    assert town.ask(sender, *keep(FIRST)) == SEND
    sender.send_multipart(piece(FIRST, 0, 100))
    waiting.send_multipart(keep(FIRST))
    town.watcher.turn()
    sender.close()
    assert town.answer(waiting) == SEND
    assert town.ask(waiting, *piece(FIRST, 0, len(BYTES))) == HAVE
    both = town.peer()
    assert town.ask(waiting, *keep(SECOND)) == SEND
    both.send_multipart(keep(SECOND))
    town.watcher.turn()
    assert town.ask(waiting, *piece(SECOND, 0, len(BYTES))) == HAVE
    assert town.answer(both) == HAVE


def test_what_an_owner_kept_goes_with_its_connection(town: Town) -> None:
    owner = town.peer()
    town.ask(owner, *keep(FIRST))
    town.ask(owner, *piece(FIRST, 0, len(BYTES)))
    town.ask(owner, *keep(SECOND))
    owner.close()
    town.until_gone(FIRST)
    town.until_gone(SECOND)


def test_nonsense_is_dropped(town: Town) -> None:
    owner, stranger = town.peer(), town.peer()
    town.ask(owner, *keep(FIRST))
    for frames in (
        [b"?"],
        [KEEP],
        [KEEP, b"short", NUMBER.pack(1)],
        [KEEP, SECOND, b"1"],
        piece(FIRST, 0, 100),
        [DROP, FIRST],
        [PIECE, SECOND, NUMBER.pack(0), b"x"],
        [DROP, SECOND],
        [b"", b"", b"", b"", b""],
    ):
        stranger.send_multipart(frames)
    assert town.ask(stranger, FIND, FIRST) == NONE
    owner.send_multipart(piece(FIRST, 50, 100))
    owner.send_multipart([PIECE, FIRST, NUMBER.pack(0), BYTES + b"x"])
    assert town.ask(owner, *piece(FIRST, 0, len(BYTES))) == HAVE
    place = town.find(FIRST)
    assert place is not None and Borrower().data(place) == BYTES


def test_without_room_the_owner_is_told(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    assert town.ask(town.peer(), *keep(FIRST, 0)) == NONE
    monkeypatch.setattr("parl_lite.hostos.available_memory", lambda: len(BYTES))
    assert town.ask(town.peer(), *keep(FIRST)) == NONE


def test_a_store_that_breaks_is_an_error_and_no_hang(tmp_path: Path) -> None:
    context: zmq.Context = zmq.Context()
    router = data_router(context, Settings())
    link = StoreLink(bind_ipc(router, str(tmp_path / "objects")), None)
    link._send(keep(FIRST))
    router.recv_multipart()
    router.close(0)
    with pytest.raises(StoreLostError):
        link.keep(SECOND, memoryview(BYTES))
    with pytest.raises(StoreLostError):
        link.find(FIRST)
    link.drop(FIRST)
    assert link.broken
    context.term()
