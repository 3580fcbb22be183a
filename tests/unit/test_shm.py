"""Shared memory of this process, lent and borrowed: when it may be used again, and what a forked child sees."""

from __future__ import annotations

import gc
import os

import numpy as np
import pytest

from parl_lite import shm
from parl_lite.frames import OFFERED, PLACE, SHARED
from parl_lite.lending import LEAST, Lender, Pool, pool
from parl_lite.payload import Decoder, Encoder
from parl_lite.shm import Borrower, Place, Segment

pytestmark = pytest.mark.skipif(not shm.AVAILABLE, reason="this system has no anonymous files")

SIZE = 1 << 20


@pytest.fixture
def segment():
    segment = Segment(SIZE)
    yield segment
    segment.close()


def in_child(check) -> bool:
    """Return what `check()` gives in a forked child."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if check() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def n_files() -> int:
    return len(os.listdir("/proc/self/fd"))


# Segments


def test_what_is_written_is_read_at_its_place(segment: Segment) -> None:
    segment.write([b"head", bytes(SIZE // 2), b"tail"])
    borrowed = Borrower().borrow(segment.place(SIZE // 2 + 8))
    assert borrowed[:4] == b"head" and borrowed[-4:] == b"tail"


def test_a_segment_is_idle_when_every_slot_is_clear_and_nobody_here_needs_it(segment: Segment) -> None:
    first, second = segment.take_slot(), segment.take_slot()
    segment.unpin()
    assert not segment.is_idle()
    borrower = Borrower()
    views = [borrower.borrow(segment.place(8, slot)) for slot in (first, second)]
    part = views.pop()[4:]
    views.clear()
    assert not segment.is_idle() and not segment.holds(first) and segment.holds(second)
    del part
    assert segment.is_idle()


def test_arrays_keep_what_is_lent_until_the_last_view_of_them_is_gone(segment: Segment) -> None:
    value = {"obs": np.arange(50000.0), "list": [np.ones(3, np.int8)]}
    data = Encoder().encode(value)
    segment.write([data])
    decoded = Decoder().decode(segment.lend(len(data)))
    assert np.array_equal(decoded["obs"], value["obs"]) and decoded["obs"].flags.writeable
    kept = decoded["obs"][5:].reshape(-1, 5)[::2]
    del decoded
    gc.collect()
    assert segment.pinned and kept[0, 0] == 5.0
    del kept
    gc.collect()
    assert not segment.pinned


def test_tensors_keep_what_is_lent(segment: Segment) -> None:
    torch = pytest.importorskip("torch")
    data = Encoder().encode({"w": torch.arange(50000)})
    segment.write([data])
    kept = Decoder().decode(segment.lend(len(data)))["w"][7:]
    gc.collect()
    assert segment.pinned and int(kept[0]) == 7
    del kept
    gc.collect()
    assert not segment.pinned


def test_a_place_of_something_else_is_refused(segment: Segment) -> None:
    wrong = segment.place(8)._replace(token=bytes(16))
    assert not Borrower().can_open(wrong)
    with pytest.raises(OSError, match="gone"):
        Borrower().data(wrong)
    assert not Borrower().can_open(segment.place(SIZE * 2))
    assert not Borrower().can_open(segment.place(8)._replace(fd=10**6))
    assert not Borrower().can_open(segment.place(8)._replace(pid=2**22 + 1))


def test_when_all_slots_are_taken_the_segment_is_given_up(segment: Segment) -> None:
    slots = {segment.take_slot() for _ in range(shm.HEAD - 64)}
    assert 0 not in slots and not segment.escaped
    assert segment.take_slot() == 0 and segment.escaped


def test_a_copy_is_private_and_writable(segment: Segment) -> None:
    segment.write([b"original"])
    copy = Borrower().copy(segment.place(8, segment.take_slot()))
    copy[:] = b"changed!"
    assert segment.data[:8] == b"original"


def test_a_segment_that_was_handed_on_is_not_kept_mapped(segment: Segment) -> None:
    borrower = Borrower()
    place = segment.place(8, segment.take_slot())
    view = borrower.borrow(place)
    held = borrower.hold(place)
    borrower.escape(held)
    del view
    assert segment.escaped and not borrower._mappings
    assert Borrower().can_open(held)
    os.close(held.fd)


# Forks


def test_a_child_has_a_copy_of_its_own_of_what_was_lent(segment: Segment) -> None:
    segment.write([b"before"])
    view = segment.lend(SIZE)

    def check() -> bool:
        child_view = view
        child_view[:6] = b"child!"
        return bytes(child_view[:6]) == b"child!"

    assert in_child(check)
    assert view[:6] == b"before", "what the child writes stays in the child"

    def unchanged() -> bool:
        os.read(told, 1)
        return bytes(view[:6]) == b"before"

    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if unchanged() else 1)
    segment.write([b"again!"])  # as the next message in it does
    os.write(tell, b"x")
    assert os.waitpid(pid, 0)[1] == 0
    for fd in (told, tell):
        os.close(fd)


def test_a_child_does_not_give_back_what_its_parent_has(segment: Segment) -> None:
    slot = segment.take_slot()
    kept = [Borrower().borrow(segment.place(SIZE, slot))]

    def drop() -> bool:
        kept.clear()
        gc.collect()
        return True

    assert in_child(drop)
    assert segment.holds(slot)


def test_a_child_can_lend_for_itself() -> None:
    taken = pool().take(SIZE)
    assert taken is not None

    def check() -> bool:
        own = pool().take(SIZE)
        return own is not None and own.token != taken.token and own.place(1).pid == os.getpid()

    assert in_child(check)
    taken.unpin()


# Pool and Lender


def test_what_is_idle_is_used_again_and_the_limit_holds() -> None:
    small = Pool(4 * SIZE)
    first = small.take(SIZE)
    assert first is not None
    first.unpin()
    assert small.take(SIZE - 10) is first
    others = [small.take(SIZE) for _ in range(4)]
    assert [other is None for other in others] == [False, False, False, True]
    for one in (first, *others[:3]):
        one.unpin()
    large = small.take(3 * SIZE)
    assert large is not None, "idle ones make room"
    large.unpin()
    before = n_files()
    assert small.take(4 * SIZE) is not None and n_files() <= before


def test_what_is_idle_is_given_back_when_the_process_disconnects() -> None:
    some = Pool(10 * SIZE)
    used, idle = some.take(SIZE), some.take(SIZE)
    assert used is not None and idle is not None
    idle.unpin()
    some.trim()
    assert some._segments == [used]


def test_a_forked_child_takes_nothing_from_the_peers_of_its_parent() -> None:
    lender = Lender()
    segment = pool().take(LEAST)
    assert segment is not None
    lender.hand_over(segment, LEAST)
    segment.unpin()
    assert in_child(lambda: lender.close() is None)
    assert not segment.escaped
    lender.close()
    assert segment.escaped


def test_nothing_is_lent_where_the_system_gives_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    before = n_files()
    assert Pool(100 * SIZE).take(SIZE) is None
    assert n_files() == before
    monkeypatch.setattr("parl_lite.hostos.available_memory", lambda: 3 * SIZE)
    assert Pool(100 * SIZE).take(SIZE) is None


def test_a_large_result_is_offered_room_the_next_time() -> None:
    lender = Lender()
    assert lender.lend(1, b"sample", [b"x"], 1) == (0, b"")
    lender.answered(1, b"sample", LEAST)
    flags, places = lender.lend(2, b"sample", [b"x"], 1)
    assert flags == OFFERED
    place = Place(*PLACE.unpack(places))
    Borrower().data(place)[:3] = b"abc"
    received = lender.received(2, 3)
    assert received == b"abc" and not lender.offers
    assert lender.received(2, 3) is None
    lender.lend(3, b"sample", [b"x"], 1)
    lender.answered(3, b"", 10)
    assert not lender.offers and not lender.expected


def test_what_came_back_is_not_remembered() -> None:
    lender, borrower = Lender(), Borrower()
    for number in range(500):
        _, places = lender.lend(number, b"take", [bytes(LEAST)], LEAST)
        borrower.borrow(Place(*PLACE.unpack(places)))
    assert len(lender._lent) <= 65


def test_what_a_lost_peer_had_is_never_lent_again() -> None:
    lender = Lender()
    lender.answered(0, b"sample", LEAST)
    flags, places = lender.lend(1, b"sample", [bytes(LEAST)], LEAST)
    assert flags == SHARED | OFFERED
    argument, offer = (Place(*PLACE.unpack_from(places, begin)) for begin in (0, PLACE.size))
    view = Borrower().borrow(argument)
    lender.close()
    again = [pool().take(LEAST) for _ in range(8)]
    assert {argument.token, offer.token}.isdisjoint(segment.token for segment in again if segment is not None)
    assert bytes(view) == bytes(LEAST)
    for segment in again:
        assert segment is not None
        segment.unpin()
    assert lender.lend(2, b"sample", [bytes(LEAST)], LEAST) == (0, b"")
