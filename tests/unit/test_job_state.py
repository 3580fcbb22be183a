"""A job's side of the data path: order, cancelling, what is refused in which state, and nonsense."""

from __future__ import annotations

import struct

import pytest

from parl_lite import frames
from parl_lite.cluster.job_state import JobState, Request
from parl_lite.frames import HEADER

ALICE, BOB = b"alice", b"bob"


def frame(kind: int, number: int, name: str = "", payload: bytes = b"") -> bytes:
    built, body = frames.build(kind, number, name.encode(), [payload])
    assert body is None
    return built


def call(number: int, name: str = "step") -> bytes:
    return frame(frames.CALL, number, name)


def made() -> JobState:
    """Return the state of a job whose instance was made."""
    state = JobState()
    state.made = True
    return state


def drain(state: JobState) -> list[Request]:
    return [state.next() for _ in range(len(state))]


def test_a_request_arrives_as_it_was_sent() -> None:
    state = made()
    state.arrived(ALICE, frame(frames.CALL, 7, "schritt_ö", b"payload"))
    assert state.next() == Request(ALICE, frames.CALL, 7, "schritt_ö", memoryview(b"payload"))


def test_a_large_payload_is_the_frame_of_its_own() -> None:
    state = made()
    head, body = frames.build(frames.CALL, 7, b"step", [b"x" * frames.SEPARATE])
    assert body is not None
    state.arrived(ALICE, head, memoryview(body))
    assert state.next().payload == body


def test_requests_are_due_in_order_of_arrival_whoever_sent_them() -> None:
    state = made()
    for peer, number in ((ALICE, 1), (BOB, 1), (ALICE, 2)):
        state.arrived(peer, call(number))
    assert len(state) == 3
    assert [(request.peer, request.number) for request in drain(state)] == [(ALICE, 1), (BOB, 1), (ALICE, 2)]


# Cancelling


def test_a_cancelled_request_keeps_its_turn_and_is_marked() -> None:
    state = made()
    for number in (1, 2, 3):
        state.arrived(ALICE, call(number))
    state.arrived(ALICE, frame(frames.CANCEL, 2))
    assert [(request.number, request.cancelled) for request in drain(state)] == [(1, False), (2, True), (3, False)]


def test_nobody_cancels_the_request_of_another() -> None:
    state = made()
    state.arrived(ALICE, call(1))
    state.arrived(BOB, frame(frames.CANCEL, 1))
    assert not state.next().cancelled


def test_it_is_too_late_to_cancel_what_has_begun() -> None:
    state = made()
    state.arrived(ALICE, call(1))
    begun = state.next()
    state.arrived(ALICE, frame(frames.CANCEL, 1))
    assert not begun.cancelled
    assert len(state) == 0


# What is refused


@pytest.mark.parametrize("kind", [frames.CALL, frames.GET, frames.SET, frames.DELETE])
def test_nothing_is_done_before_the_instance_is_made(kind: int) -> None:
    state = JobState()
    state.arrived(ALICE, frame(kind, 1, "step"))
    assert state.next().refusal == "the actor was not created: its constructor failed or was never called"


@pytest.mark.parametrize("kind", [frames.CREATE, frames.PROJECT, frames.CODE])
def test_an_instance_is_made_once(kind: int) -> None:
    state = JobState()
    state.arrived(ALICE, frame(kind, 1))
    state.arrived(ALICE, frame(kind, 2))
    assert state.next().refusal == ""
    state.made = True
    assert state.next().refusal == "the actor was created already"


@pytest.mark.parametrize("kind", [frames.CALL, frames.GET, frames.SET, frames.DELETE])
def test_an_instance_that_is_made_does_what_is_asked(kind: int) -> None:
    state = made()
    state.arrived(ALICE, frame(kind, 1, "step"))
    assert state.next().refusal == ""


@pytest.mark.parametrize("kind", [0, 11, frames.RESULT, 255])
def test_an_unknown_kind_is_refused(kind: int) -> None:
    state = made()
    state.arrived(ALICE, frame(kind, 1))
    assert state.next().refusal == f"unknown request {kind}"


# Nonsense

NAME_TOO_LONG = HEADER.pack(frames.CALL, 0, 50, 1) + b"short"
NO_UTF_8 = HEADER.pack(frames.CALL, 0, 2, 1) + b"\xff\xfe"


@pytest.mark.parametrize("data", [b"", call(1)[: HEADER.size - 1], NAME_TOO_LONG, NO_UTF_8, struct.pack("<B", frames.CALL)])
def test_nonsense_is_dropped(data: bytes) -> None:
    state = made()
    state.arrived(ALICE, data)
    assert len(state) == 0
