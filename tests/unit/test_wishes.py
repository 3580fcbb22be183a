"""A wish that comes true, is refused, waits or is withdrawn."""

from __future__ import annotations

import threading

import pytest

from parl_lite import ResourceError, wait
from parl_lite.messages import JobGranted, Place
from parl_lite.wishes import Wish

GRANT = JobGranted(1, "job", Place("here", 7, "boot"), ("tcp://127.0.0.1:1",), "log")


@pytest.fixture
def wish() -> Wish:
    return Wish(1, "Actor", 0.1, patient=True)


def test_a_wish_comes_true_once(wish):
    assert wish.grant(GRANT)
    assert wish.granted.result() is GRANT
    assert not wish.grant(GRANT)


def test_who_waits_for_many_things_is_woken_by_a_wish(wish):
    other = Wish(2, "Actor", 100.0, patient=True)
    threading.Timer(0.05, wish.grant, [GRANT]).start()
    assert wait([wish.granted, other.granted], 30.0, "FIRST_COMPLETED") == ({wish.granted}, {other.granted})


def test_what_came_true_is_handed_back_when_it_is_withdrawn(wish):
    wish.grant(GRANT)
    assert wish.withdraw() is GRANT


def test_a_withdrawn_wish_cannot_come_true(wish):
    assert wish.withdraw() is None
    assert not wish.grant(GRANT)
    assert wish.granted.cancelled()


def test_a_refused_wish_raises_the_reason_and_has_nothing_to_hand_back(wish):
    wish.refuse(ResourceError("never"))
    with pytest.raises(ResourceError, match="never"):
        wish.granted.result()
    assert wish.withdraw() is None


def test_a_patient_wish_says_why_it_waits_once_for_each_notice(wish, caplog):
    wish.delay("no worker has a free slot")
    for _ in range(2):
        with pytest.raises(TimeoutError):
            wish.granted.result(0.0)
    assert caplog.messages == ["Actor waits for a slot: no worker has a free slot"]


def test_another_is_refused_as_soon_as_it_would_have_to_wait(caplog):
    wish = Wish(1, "Actor", 0.1, patient=False)
    wish.delay("no worker has a free slot")
    with pytest.raises(ResourceError, match="no slot for Actor now: no worker has a free slot"):
        wish.granted.result()
    assert caplog.messages == []


def test_callbacks_are_called_when_it_comes_true_or_at_once(wish):
    called = threading.Event()
    wish.granted.add_done_callback(lambda future: called.set())
    assert not called.is_set()
    wish.grant(GRANT)
    assert called.wait(30.0)
    later = []
    wish.granted.add_done_callback(later.append)
    assert later == [wish.granted]
