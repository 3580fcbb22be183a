"""Which calls a job runs together: batches of @batched methods under a clock that the test turns."""

from __future__ import annotations

import random

import pytest

from parl_lite import frames
from parl_lite.batching import Batching
from parl_lite.cluster.job_state import JobState, Request

ALICE, BOB, CAROL = b"alice", b"bob", b"carol"
ACT, LEARN, STEP = "act", "learn", "step"
"""The first two are batched."""
TIMEOUT = {ACT: 2.0, LEARN: 5.0}
MAX_SIZE = {ACT: 3, LEARN: 4}


def job(**more: Batching) -> JobState:
    state = JobState()
    state.made = True
    state.batched = {name: Batching(MAX_SIZE[name], TIMEOUT[name]) for name in TIMEOUT} | more
    return state


def ask(state: JobState, peer: bytes, number: int, name: str = ACT, now: float = 0.0, kind: int = frames.CALL) -> None:
    frame, _ = frames.build(kind, number, name.encode(), [])
    state.arrived(peer, frame)
    state.stamp(now)


def cancel(state: JobState, peer: bytes, number: int) -> None:
    ask(state, peer, number, "", kind=frames.CANCEL)


def due(state: JobState, now: float = 0.0) -> list[tuple[bytes, int]]:
    return [(request.peer, request.number) for request in state.next_together(now)[0]]


def due_at(state: JobState, now: float = 0.0) -> float | None:
    requests, later = state.next_together(now)
    assert requests == []
    return later


# A batch starts when it is full, or when its first call has waited long enough


def test_nothing_is_due_when_nothing_was_asked() -> None:
    assert due_at(job()) is None


def test_a_batch_of_max_size_is_due_at_once() -> None:
    state = job()
    for peer in (ALICE, BOB, CAROL):
        assert due(state) == []
        ask(state, peer, 1)
    assert due(state) == [(ALICE, 1), (BOB, 1), (CAROL, 1)]


def test_the_time_counts_from_the_first_call() -> None:
    state = job()
    ask(state, ALICE, 1, now=10.0)
    ask(state, BOB, 1, now=11.5)
    assert due_at(state, 11.9) == 12.0
    assert due(state, 12.0) == [(ALICE, 1), (BOB, 1)]
    ask(state, CAROL, 1, now=12.5)
    assert due_at(state, 12.5) == 14.5


def test_calls_beyond_max_size_are_the_next_batch_with_its_own_time() -> None:
    state = job()
    for number in range(4):
        ask(state, ALICE, number, now=float(number))
    assert due(state, 3.0) == [(ALICE, 0), (ALICE, 1), (ALICE, 2)]
    assert due_at(state, 3.0) == 5.0


def test_a_batch_of_one_waits_for_nobody() -> None:
    state = job(only=Batching(1, 100.0))
    ask(state, ALICE, 1, "only")
    ask(state, BOB, 1, "only")
    assert [due(state), due(state)] == [[(ALICE, 1)], [(BOB, 1)]]


def test_a_timeout_of_zero_takes_what_is_there() -> None:
    state = job(now=Batching(64, 0.0))
    ask(state, ALICE, 1, "now", now=7.0)
    ask(state, BOB, 1, "now", now=7.0)
    assert due(state, 7.0) == [(ALICE, 1), (BOB, 1)]


def test_pipelined_calls_of_one_handle_are_a_batch() -> None:
    state = job()
    for number in (1, 2, 3):
        ask(state, ALICE, number)
    assert due(state) == [(ALICE, 1), (ALICE, 2), (ALICE, 3)]


# Several methods


def test_methods_do_not_mix() -> None:
    state = job()
    ask(state, ALICE, 1, ACT)
    ask(state, BOB, 1, LEARN)
    ask(state, CAROL, 1, ACT)
    assert due_at(state) == 2.0
    assert due(state, 2.0) == [(ALICE, 1), (CAROL, 1)]
    assert due_at(state, 2.0) == 5.0
    assert due(state, 5.0) == [(BOB, 1)]


def test_of_two_batches_that_are_due_the_older_comes_first() -> None:
    state = job()
    ask(state, ALICE, 1, LEARN)
    for number in (1, 2, 3):
        ask(state, BOB, number, ACT)
    assert due(state, 6.0) == [(ALICE, 1)]
    assert due(state, 6.0) == [(BOB, 1), (BOB, 2), (BOB, 3)]


def test_only_calls_are_batched_not_reading_an_attribute_of_the_name() -> None:
    state = job()
    ask(state, ALICE, 1, ACT, kind=frames.GET)
    assert due(state) == [(ALICE, 1)]


# Order


def test_other_handles_need_not_wait_for_a_batch() -> None:
    state = job()
    ask(state, ALICE, 1, ACT)
    ask(state, BOB, 1, STEP)
    assert due(state) == [(BOB, 1)]
    assert due_at(state) == 2.0


def test_a_call_overtakes_no_earlier_call_of_its_handle() -> None:
    state = job()
    ask(state, ALICE, 1, STEP)
    ask(state, ALICE, 2, ACT)
    ask(state, ALICE, 3, STEP)
    ask(state, ALICE, 4, ACT)
    ask(state, BOB, 1, ACT)
    assert due(state) == [(ALICE, 1)]
    assert due(state, 2.0) == [(ALICE, 2), (BOB, 1)]
    assert due(state, 2.0) == [(ALICE, 3)]
    assert due(state, 2.0) == [(ALICE, 4)]


def test_calls_of_one_handle_to_two_methods_keep_their_order() -> None:
    state = job()
    for number, name in enumerate((ACT, LEARN, ACT)):
        ask(state, ALICE, number, name)
    ask(state, BOB, 1, LEARN)
    assert due(state, 9.0) == [(ALICE, 0)]
    assert due(state, 9.0) == [(ALICE, 1), (BOB, 1)]
    assert due(state, 9.0) == [(ALICE, 2)]


def test_an_ordinary_request_is_due_alone_and_is_refused_as_ever() -> None:
    state = job()
    ask(state, ALICE, 1, "", kind=frames.CREATE)
    ask(state, BOB, 1, STEP)
    (first,), _ = state.next_together(0.0)
    assert first.refusal == "the actor was created already"
    assert due(state) == [(BOB, 1)]


# Cancelling


def test_a_cancelled_call_takes_no_room_and_comes_along_to_be_answered() -> None:
    state = job()
    for number in (1, 2, 3):
        ask(state, ALICE, number)
    cancel(state, ALICE, 2)
    assert due(state) == []
    ask(state, BOB, 1)
    requests, _ = state.next_together(0.0)
    assert [request.number for request in requests] == [1, 2, 3, 1]
    assert [request.cancelled for request in requests] == [False, True, False, False]


def test_a_cancelled_call_starts_no_clock() -> None:
    state = job()
    ask(state, ALICE, 1, now=0.0)
    cancel(state, ALICE, 1)
    ask(state, BOB, 1, now=1.0)
    assert due_at(state, 1.0) == 3.0


def test_a_batch_of_cancelled_calls_only_is_answered_at_once() -> None:
    state = job()
    ask(state, ALICE, 1)
    assert due_at(state) == 2.0
    cancel(state, ALICE, 1)
    assert due(state) == [(ALICE, 1)]


# Whatever happens


class Watched:
    """A state, and beside it in the plainest form what each handle waits for."""

    def __init__(self) -> None:
        self.state = job()
        self.waiting: dict[bytes, list[Request]] = {ALICE: [], BOB: [], CAROL: []}

    def ask(self, peer: bytes, number: int, name: str, now: float) -> None:
        ask(self.state, peer, number, name, now)
        self.waiting[peer].append(Request(peer, frames.CALL, number, name, memoryview(b""), arrived_at=now))

    def cancel(self, peer: bytes, number: int) -> None:
        cancel(self.state, peer, number)
        for request in self.waiting[peer]:
            request.cancelled |= request.number == number

    def next(self, now: float) -> tuple[bool, float | None]:
        """Return whether something was due, and when something will be; assert that both are right."""
        requests, later = self.state.next_together(now)
        calls = [request for request in requests if not request.cancelled]
        for request in requests:
            assert request == self.waiting[request.peer].pop(0)  # each once, in the order of its handle
        assert len({request.name for request in requests}) <= 1
        if requests and requests[0].name == STEP:
            assert len(requests) == 1
        elif calls:
            name = calls[0].name
            overdue = now >= calls[0].arrived_at + TIMEOUT[name]
            assert len(calls) == MAX_SIZE[name] or (overdue and len(calls) < MAX_SIZE[name])
        if not requests:
            self.check_that_all_wait(now, later)
        return bool(requests), later

    def check_that_all_wait(self, now: float, later: float | None) -> None:
        fronts = [requests[0] for requests in self.waiting.values() if requests]
        assert all(front.name != STEP for front in fronts)
        ends = [front.arrived_at + TIMEOUT[front.name] for front in fronts if not front.cancelled]
        assert all(now < end for end in ends)
        assert (later is None) == (not fronts)
        assert later is None or now < later <= min(ends, default=later)


@pytest.mark.parametrize("busy", [0.0, 3.0])
@pytest.mark.parametrize("seed", range(100))
def test_whatever_arrives_when_all_is_answered_once_in_order_and_in_time(seed: int, busy: float) -> None:
    dice = random.Random(seed)
    watched, now, n = Watched(), 0.0, 60
    arrivals = sorted(dice.uniform(0, dice.choice([5, 40])) for _ in range(n))
    asked = list(enumerate(arrivals))
    while asked or len(watched.state):
        while asked and asked[0][1] <= now:
            watched.ask(dice.choice([ALICE, BOB, CAROL]), asked.pop(0)[0], dice.choice([ACT, LEARN, STEP]), now)
        if dice.random() < 0.2:
            watched.cancel(dice.choice([ALICE, BOB, CAROL]), dice.randrange(n))
        was_due, later = watched.next(now)
        if was_due:
            now += dice.uniform(0, busy)  # running takes its time
        else:
            now = min([time for _, time in asked[:1]] + [time for time in [later] if time is not None])
    assert not any(watched.waiting.values())
