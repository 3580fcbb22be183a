"""Prefetch: a thread that makes batches ready while the learner learns. Knows streams of batches, not where they come from.

    learner's thread                     this thread, which alone touches the pool
      take()      ◀──batches, at most n──  take() of the stream: receive, decode, put side by side
      publish()   ──the newest weights──▶  publish() to the actors, before the next batch

Decoding and copying leave Python's lock most of the time, and so does learning: both go on at once.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

JOIN_TIMEOUT = 5.0
"""Seconds that the thread is given to end by itself; it does with the next rollout that arrives."""


class Batch(NamedTuple):
    """Rollouts that are made ready to learn from."""

    rollouts: list[Any]
    """What is counted of each."""
    prepared: Any
    n_stale: int = 0
    """Rollouts that were dropped so far because they were too old."""


class Source(Protocol):
    """What is run in the thread."""

    def take(self) -> Batch:
        """Return the next batch; waits for it."""

    def publish(self, version: int, weights: Any) -> None:
        """Send weights to those who make the batches."""

    @property
    def n_lost(self) -> int:
        """Actors that were lost."""

    def close(self) -> None:
        """End them."""


class Prefetch:
    """A source of batches, run in a thread; has its face.

    Args:
        make_source: called in the thread.
        n: batches that are made ready in advance.
    """

    def __init__(self, make_source: Callable[[], Source], n: int) -> None:
        self.n_lost = 0
        self._batches: queue.Queue[Batch | BaseException] = queue.Queue(n)
        self._lock = threading.Lock()  # guards _weights, which the learner's thread sets and this one takes
        self._weights: tuple[int, Any] | None = None
        self._published = threading.Event()
        self._stop = threading.Event()
        self._source: Source | None = None
        self._thread = threading.Thread(target=self._run, args=(make_source,), name="prefetch", daemon=True)
        self._thread.start()

    def take(self) -> Batch:
        """Return the next batch; raises what stopped the thread."""
        found = self._batches.get()
        if isinstance(found, BaseException):
            raise found
        return found

    def publish(self, version: int, weights: Any) -> None:
        """Have weights sent before the next batch; those that were not sent yet are forgotten."""
        with self._lock:
            self._weights = version, weights
        self._published.set()

    def close(self) -> None:
        """End the thread and what it uses; a second time does nothing."""
        self._stop.set()
        self._published.set()
        self._thread.join(JOIN_TIMEOUT)
        if self._thread.is_alive() and self._source is not None:
            self._source.close()  # its calls fail, and that wakes it
            self._thread.join(JOIN_TIMEOUT)

    def _run(self, make_source: Callable[[], Source]) -> None:
        try:
            self._source = make_source()
            self._published.wait()
            while not self._stop.is_set():
                self._publish()
                self._put(self._source.take())
                self.n_lost = self._source.n_lost
        except BaseException as error:
            self._put(error)
        finally:
            if self._source is not None:
                self._source.close()

    def _publish(self) -> None:
        with self._lock:
            weights, self._weights = self._weights, None
        if weights is not None and self._source is not None:
            self._source.publish(*weights)

    def _put(self, item: Batch | BaseException) -> None:
        """Hand over an item when there is room, unless nobody wants it any more."""
        while not self._stop.is_set():
            try:
                self._batches.put(item, timeout=0.1)
                return
            except queue.Full:
                continue
