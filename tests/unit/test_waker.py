"""A waker makes one descriptor readable, from any thread, with an eventfd or a pipe."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator

import pytest

from parl_lite.waker import Waker, of_this_thread


@pytest.fixture(params=["eventfd", "pipe"])
def waker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Waker]:
    """A waker of either kind."""
    if request.param == "pipe":
        monkeypatch.delattr(os, "eventfd", raising=False)
    elif not hasattr(os, "eventfd"):
        pytest.skip("this system has no eventfd")
    waker = Waker()
    yield waker
    waker.close()


def awake(waker: Waker) -> bool:
    return bool(select.select([waker.fileno()], [], [], 0)[0])


def test_a_waker_sleeps_until_it_is_woken(waker: Waker) -> None:
    assert not awake(waker)
    waker.wake()
    assert awake(waker)
    assert awake(waker)


def test_one_clear_takes_back_all_wakes_however_many(waker: Waker) -> None:
    for _ in range(20_000):  # more than fit into a pipe
        waker.wake()
    waker.clear()
    assert not awake(waker)
    waker.clear()
    waker.wake()
    assert awake(waker)


def test_another_thread_can_wake(waker: Waker) -> None:
    thread = threading.Thread(target=waker.wake)
    thread.start()
    assert select.select([waker.fileno()], [], [], 10)[0]
    thread.join()


def test_a_closed_waker_gives_its_descriptors_back_and_cannot_be_woken(waker: Waker) -> None:
    fd = waker.fileno()
    waker.close()
    waker.close()
    waker.wake()
    with pytest.raises(OSError):
        os.fstat(fd)


def test_a_child_does_not_inherit_the_descriptor(waker: Waker) -> None:
    assert not os.get_inheritable(waker.fileno())


def test_every_thread_has_one_waker_of_its_own() -> None:
    found: list[Waker] = []
    thread = threading.Thread(target=lambda: found.append(of_this_thread()))
    thread.start()
    thread.join()
    assert of_this_thread() is of_this_thread()
    assert found[0] is not of_this_thread()
