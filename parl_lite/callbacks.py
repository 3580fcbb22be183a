"""One daemon thread, begun on first use, that reads channels whose futures have callbacks, and calls them. Knows no calls.

It is for `add_done_callback` and `await` only: a thread that waits for a result reads its channel itself.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Protocol

from parl_lite.futures import Future, Source, poll
from parl_lite.waker import Waker

logger = logging.getLogger("parl_lite")


class Watched(Source, Protocol):
    """A channel that can tell whether anything of it is pending."""

    def is_busy(self) -> bool:
        """Return whether an answer is awaited."""


class Reader:
    """One daemon thread, begun on first use, that reads the channels whose futures have callbacks, and calls them."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Watch nothing; also in the child of a fork, which has neither the thread nor the channels of its parent."""
        self._lock = threading.Lock()  # guards _channels, _calls and the start of the thread
        self._channels: list[Watched] = []
        self._calls: list[tuple[Callable[[Future], object], Future]] = []
        self._waker: Waker | None = None

    def watch(self, channel: Watched) -> None:
        """Read a channel until nothing of it is pending."""
        with self._lock:
            if channel not in self._channels:
                self._channels.append(channel)
        self._wake()

    def call(self, callback: Callable[[Future], object], future: Future) -> None:
        """Call back soon, outside all locks."""
        with self._lock:
            self._calls.append((callback, future))
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            if self._waker is None:
                self._waker = Waker()
                threading.Thread(target=self._run, name="parl_lite-callbacks", daemon=True).start()
        self._waker.wake()

    def _run(self) -> None:
        assert self._waker is not None
        while True:
            self._waker.clear()  # before it looks what there is to do: who brings more later wakes it anew
            self._make_calls()
            with self._lock:
                self._channels = channels = [channel for channel in self._channels if channel.is_busy()]
            self._wait(list(channels))

    def _make_calls(self) -> None:
        with self._lock:
            calls, self._calls = self._calls, []
        for callback, future in calls:
            try:
                callback(future)
            except Exception:
                logger.exception("a done-callback of %r raised", future)

    def _wait(self, channels: list[Watched]) -> None:
        assert self._waker is not None
        for channel in channels:
            channel.listen(self._waker)
        try:
            for channel in channels:
                channel.look()
            poll(self._waker, channels, channels[0].poll_slice if channels else None)
        finally:
            for channel in channels:
                channel.unlisten(self._waker)


reader = Reader()
"""The process's own; its thread begins when it is first used."""
os.register_at_fork(after_in_child=reader.begin)
