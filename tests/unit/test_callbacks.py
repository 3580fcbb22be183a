"""The thread that makes callbacks: nothing that reaches it at a bad moment is forgotten."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from parl_lite.callbacks import Reader, Watched
from parl_lite.futures import Future
from parl_lite.waker import Waker


class Channel:
    """Is busy until it was looked at."""

    label = "a channel"
    poll_slice = 60.0
    descriptor = None

    def __init__(self) -> None:
        self.looked_at = threading.Event()

    def is_busy(self) -> bool:
        return not self.looked_at.is_set()

    def look(self) -> None:
        self.looked_at.set()

    def listen(self, waker: Waker) -> None: ...

    def unlisten(self, waker: Waker) -> None: ...


class InterruptedReader(Reader):
    """Does something once between its look at what there is to do and its wait for more."""

    def __init__(self, interruption: Callable[[], object]) -> None:
        super().__init__()
        self.interruption: Callable[[], object] | None = interruption

    def _wait(self, channels: list[Watched]) -> None:
        interruption, self.interruption = self.interruption, None
        if interruption is not None:
            interruption()
        super()._wait(channels)


def test_a_channel_that_is_watched_just_before_the_wait_is_read() -> None:
    late: Any = Channel()
    reader = InterruptedReader(lambda: reader.watch(late))
    first: Any = Channel()
    first.look()
    reader.watch(first)
    assert late.looked_at.wait(60)


def test_a_callback_that_is_due_just_before_the_wait_is_made() -> None:
    made = threading.Event()
    channel: Any = Channel()
    reader = InterruptedReader(lambda: reader.call(lambda _: made.set(), Future(channel)))
    channel.look()
    reader.watch(channel)
    assert made.wait(60)
