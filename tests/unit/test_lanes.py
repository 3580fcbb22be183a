"""Lanes, and the lines and doors that use them: order, boundaries, and what happens when one is full, ends, or never begins."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from parl_lite import frames, lanes, line
from parl_lite.cluster.doors import Doors
from parl_lite.frames import HEADER
from parl_lite.lanes import Eager, Ended, Entrance, Lane
from parl_lite.line import Line
from parl_lite.settings import Settings
from parl_lite.sockets import bind_ipc, data_dealer, data_router

LARGE_BODY = bytes(3 * frames.SEPARATE)
MANY = 500
"""More small messages than a cramped lane has room for."""


@pytest.fixture
def cramped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let new lanes have little room: how much else depends on the system."""
    monkeypatch.setattr(lanes, "_ROOM", 16 * 1024)


def until(found: Callable[[], object]) -> None:
    """Go on until something is so; ZeroMQ's threads take a moment."""
    for _ in range(100_000):
        if found():
            return
    pytest.fail("it never came")


# --- lanes -------------------------------------------------------------------------------------------------


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[Lane, Lane]]:
    entrance = Entrance(str(tmp_path / "l"))
    near = lanes.enter(entrance.path, b"token", 0.05)
    far = entrance.accept()
    assert near is not None and far is not None
    assert far.receive_now() == b"token"
    yield near, far
    for each in (near, far, entrance):
        each.close()


def test_messages_keep_their_boundaries_and_order(ends):
    near, far = ends
    sent = [bytes([i]) * (1 + 37 * i) for i in range(100)]
    assert all(near.send(message) for message in sent)
    assert [far.receive_now() for _ in sent] == sent
    assert far.receive_now() is None


def test_the_largest_message_passes(ends):
    near, far = ends
    assert near.send(bytes(lanes.LARGEST))
    assert far.receive_now() == bytes(lanes.LARGEST)


def test_receive_waits_no_longer_than_was_said(ends):
    assert ends[0].receive() is None


def test_a_full_lane_takes_no_more_and_loses_nothing(cramped, ends):
    near, far = ends
    n_taken = sum(near.send(b"%d" % i) for i in range(MANY))
    assert 0 < n_taken < MANY
    near.give_up()
    assert [far.receive_now() for _ in range(n_taken)] == [b"%d" % i for i in range(n_taken)]
    with pytest.raises(Ended):
        far.receive_now()


def test_what_was_sent_arrives_though_the_sender_is_gone(ends):
    near, far = ends
    near.send(b"never read")
    far.send(b"the last word")
    far.close()  # with something unread: the system tells that first
    assert near.receive() == b"the last word"
    with pytest.raises(Ended):
        near.receive()
    assert not near.send(b"too late")


def test_no_lane_begins_where_nobody_listens(tmp_path):
    assert lanes.enter(str(tmp_path / "nobody"), b"token", 0.05) is None


def test_only_the_owner_may_enter(tmp_path):
    entrance = Entrance(str(tmp_path / "l"))
    assert (tmp_path / "l").stat().st_mode & 0o777 == 0o600
    entrance.close()


# --- a line and doors --------------------------------------------------------------------------------------


class Two:
    """A handle's line and a job's doors, over real sockets. All that is sent has a number; all that came is kept."""

    def __init__(self, folder: Path) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.router = data_router(self.context, Settings())
        address = bind_ipc(self.router, str(folder / "j"))
        self.doors = Doors(self.router, str(folder / "l"))
        self.doors.arrived = self._arrived
        self.line = Line(data_dealer(self.context, Settings(poll_slice=0.01)), Settings(poll_slice=0.01))
        self.line.connect(address, None)
        self.peer = b""
        self.at_job: list[int] = []
        self.at_handle: list[int] = []
        self.n_asked = self.n_answered = 0

    def _arrived(self, peer: bytes, frame: bytes, body: memoryview | None) -> None:
        self.peer = peer
        assert body is None or bytes(body) == LARGE_BODY
        self.at_job.append(HEADER.unpack_from(frame)[3])

    def ask(self, *, large: bool = False) -> None:
        """Send from the handle."""
        self.n_asked += 1
        self.line.send(*_message(self.n_asked, large))

    def answer(self, *, large: bool = False) -> bool:
        """Send from the job."""
        self.n_answered += 1
        return self.doors.send(self.peer, *_message(self.n_answered, large))

    def look(self) -> None:
        """Let the handle take what has come."""
        while (message := self.line.receive(now=True)) is not None:
            if len(message) < HEADER.size:
                continue
            _, flags, _, number = HEADER.unpack_from(message)
            assert not flags or bytes(self.line.receive_body()) == LARGE_BODY
            self.at_handle.append(number)

    def settle(self) -> None:
        """Go on until all has come, each way and in order."""

        def all_came() -> bool:
            self.doors.wait(0.001)
            self.doors.take_all()
            self.look()
            return len(self.at_job) == self.n_asked and len(self.at_handle) == self.n_answered

        until(all_came)
        assert self.at_job == list(range(1, self.n_asked + 1))
        assert self.at_handle == list(range(1, self.n_answered + 1))

    def begin_lane(self) -> None:
        """Have one word with each other, then take a lane, and ask by it: a job answers, it does not begin."""
        self.ask()
        self.settle()
        offer = self.doors.offer_lane(self.peer)
        assert offer is not None
        self.line.offer_lane(*offer)
        self.doors.take_all()
        self.doors.take_all()
        self.line.take_lane()
        assert self.line.has_lane
        self.ask()
        self.doors.take_all()

    def close(self) -> None:
        """Close all; in a job the end of the process does."""
        self.line.close()
        self.doors.close()
        self.router.close(0)
        self.context.term()


def _message(number: int, large: bool) -> tuple[bytes, bytes | None]:
    return HEADER.pack(frames.CALL, frames.LARGE * large, 0, number), LARGE_BODY if large else None


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    both = Two(tmp_path)
    yield both
    both.close()


def test_messages_go_by_the_lane_once_it_was_taken(two):
    two.begin_lane()
    two.ask()
    two.doors.take_all()
    two.answer()
    two.look()
    assert two.at_job == [1, 2, 3] and two.at_handle == [1]  # at once: no thread of ZeroMQ's was needed


def test_a_lane_is_not_taken_before_the_job_is_ready(two):
    two.ask()
    two.settle()
    two.line.offer_lane(*two.doors.offer_lane(two.peer))
    two.line.take_lane()
    assert not two.line.has_lane and two.line.offered is not None
    two.ask()
    two.settle()


@pytest.mark.parametrize("seed", range(20))
def test_order_is_kept_under_random_schedules(two, seed):
    chance = random.Random(seed)
    two.begin_lane()
    for _ in range(300):
        step = chance.randrange(6)
        if step < 2:
            two.ask(large=chance.random() < 0.2)
        elif step < 4:
            two.answer(large=chance.random() < 0.2)
        elif step == 4:
            two.look()
        else:
            two.doors.wait(0.0)
    two.settle()
    assert two.line.has_lane


@pytest.mark.parametrize("seed", range(5))
def test_order_is_kept_when_lanes_are_full(cramped, two, seed):
    chance = random.Random(seed)
    two.begin_lane()
    for _ in range(3):
        for _ in range(chance.choice([10, MANY])):
            two.ask(large=chance.random() < 0.02)
        for _ in range(chance.choice([10, MANY])):
            two.answer(large=chance.random() < 0.02)
        chance.choice([two.look, two.doors.take_all])()
    two.settle()


def test_a_handle_that_never_reads_does_not_hold_up_the_job(cramped, two):
    two.begin_lane()
    assert all(two.answer() for _ in range(MANY))
    two.settle()
    assert not two.line.has_lane


def test_calls_to_a_busy_job_never_wait(cramped, two):
    two.begin_lane()
    for _ in range(MANY):
        two.ask()
    assert not two.line.has_lane
    two.settle()
    two.answer()
    two.settle()


def test_an_interrupted_detour_holds_up_nothing(two, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    two.begin_lane()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(line, "send_frame", interrupted)
        two.ask(large=True)
    two.n_asked -= 1
    two.ask()
    two.answer()
    two.settle()


def test_a_job_takes_in_all_there_is_for_a_cancellation_may_be_behind_it(two):
    two.begin_lane()
    for _ in range(300):
        two.ask()
    two.doors.take_all()
    assert len(two.at_job) == two.n_asked


def test_a_wait_ends_with_what_comes_by_either_way(two):
    two.begin_lane()
    two.ask()
    two.doors.wait(10.0)
    two.ask(large=True)
    until(lambda: two.doors.wait(0.1) or len(two.at_job) == 4)
    two.ask()
    two.doors.wait(10.0)
    two.settle()


def test_a_stranger_is_shown_out(two):
    two.ask()
    two.settle()
    path, _ = two.doors.offer_lane(two.peer)
    stranger = lanes.enter(path, b"no such token", 0.05)
    two.doors.take_all()
    two.doors.take_all()
    with pytest.raises(Ended):
        stranger.receive()
    stranger.close()


def test_where_lanes_cannot_be_accepted_all_goes_through_zeromq(two, monkeypatch):
    def refuse(entrance: Entrance) -> None:
        raise OSError(24, "Too many open files")

    two.ask()
    two.settle()
    monkeypatch.setattr(Entrance, "accept", refuse)
    two.line.offer_lane(*two.doors.offer_lane(two.peer))
    two.doors.take_all()
    two.doors.take_all()
    two.line.take_lane()
    assert not two.line.has_lane and two.line.offered is None
    assert two.doors.offer_lane(two.peer) is None
    two.ask()
    two.answer()
    two.settle()


def test_where_there_are_no_such_sockets_all_goes_through_zeromq(two, monkeypatch):
    monkeypatch.delattr("socket.SOCK_SEQPACKET")
    two.ask()
    two.settle()
    assert two.doors.offer_lane(two.peer) is None


def test_the_lane_of_a_handle_that_is_gone_is_forgotten(two):
    two.begin_lane()
    two.line.close()
    until(lambda: not two.answer())
    until(lambda: two.doors.take_all() or not two.doors._branches)


# --- looking before a wait ---------------------------------------------------------------------------------


def test_a_look_finds_what_comes_at_once():
    answers = iter([None, None, "here"])
    assert Eager().look(lambda: next(answers)) == "here"


def test_after_a_look_in_vain_many_waits_are_made_without(monkeypatch):
    monkeypatch.setattr(lanes, "_SOON", 0.0)
    looks: list[int] = []
    eager = Eager()
    for i in range(3 * (lanes._RESPITE + 1)):
        assert eager.look(lambda i=i: looks.append(i)) is None
    assert set(looks) == {0, lanes._RESPITE + 1, 2 * (lanes._RESPITE + 1)}


def test_what_is_found_keeps_it_looking(monkeypatch):
    monkeypatch.setattr(lanes, "_SOON", 0.0)
    eager = Eager()
    assert [eager.look(lambda: "here") for _ in range(100)] == ["here"] * 100
