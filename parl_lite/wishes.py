"""A wish for a slot, and the future of its grant. Knows futures and what the master may say to a wish, no socket.

The thread of the control connection settles it; whoever made it waits for `granted` alone or among futures of calls.
"""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable

from parl_lite.callbacks import reader
from parl_lite.errors import ParlError, ResourceError
from parl_lite.futures import CANCELLED, DONE, FAILED, PENDING, Future, wait_any
from parl_lite.messages import JobGranted
from parl_lite.waker import Waker

logger = logging.getLogger("parl_lite")


class Wish:
    """What one actor that is to be created waits for.

    Attributes:
        granted: the future of the JobGranted; fails with ResourceError when the wish is refused.
        reason: why it waits, as far as was told; "" before.
    """

    descriptor = None

    def __init__(self, number: int, name: str, poll_slice: float, *, patient: bool) -> None:
        """Make a wish; one that is not patient is refused as soon as it would have to wait for its turn."""
        self.number = number
        self.name = name
        self.label = f"the wish for {name}"
        self.poll_slice = poll_slice
        self.patient = patient
        self.reason = ""
        self.granted = Future(self)
        self._untold = False
        self._lock = threading.Lock()  # guards all of this against the thread of the control connection
        self._listeners: list[Waker] = []

    # --- what the master says ------------------------------------------------------------------------------

    def grant(self, grant: JobGranted) -> bool:
        """Let it come true; False when nobody wants it any more."""
        return self._settle(DONE, grant)

    def refuse(self, error: ParlError) -> None:
        """Let it fail."""
        self._settle(FAILED, error)

    def delay(self, reason: str) -> None:
        """Say why it waits; one that is not patient fails."""
        self.reason = reason
        self._untold = True
        if self.patient:
            self._wake_listeners()
        else:
            self.refuse(ResourceError(f"no slot for {self.name} now: {reason}."))

    # --- for whoever made it -------------------------------------------------------------------------------

    def withdraw(self) -> JobGranted | None:
        """Want it no more; return what had come true already, which must be released."""
        if self._settle(CANCELLED, None):
            return None
        grant: JobGranted | None = self.granted._value if self.granted._state == DONE else None
        return grant

    def wait_for(self, future: Future, timeout: float | None) -> None:
        """Return when it is settled; raises TimeoutError."""
        if not wait_any([future], timeout):
            raise TimeoutError(f"{self.label} has not come true within {timeout} s")

    def look(self) -> None:
        """Tell the user why it waits, if that is new."""
        if self._untold and self.patient:
            self._untold = False
            gc.collect()  # actors that only garbage cycles of the user's keep alive have slots
            logger.warning("%s waits for a slot: %s", self.name, self.reason)

    def is_oldest(self, future: Future) -> bool:
        """Return False: it can be withdrawn at any time."""
        return False

    def cancel(self, future: Future) -> bool:
        """Refuse: `withdraw` is the way, which tells the master."""
        return False

    def call_when_done(self, future: Future, callback: Callable[[Future], object]) -> bool:
        """Register a callback; False when it is settled already."""
        with self._lock:
            if future._state != PENDING:
                return False
            future._callbacks = [*(future._callbacks or ()), callback]
        return True

    def listen(self, waker: Waker) -> None:
        """Wake `waker` whenever there is news."""
        with self._lock:
            self._listeners.append(waker)

    def unlisten(self, waker: Waker) -> None:
        """Wake it no more."""
        with self._lock:
            self._listeners.remove(waker)

    # --- settling ------------------------------------------------------------------------------------------

    def _settle(self, state: int, value: object) -> bool:
        """Set the outcome; False when it is set already."""
        with self._lock:
            if self.granted._state != PENDING:
                return False
            self.granted.settle(state, value)
            callbacks, self.granted._callbacks = self.granted._callbacks, None
        for callback in callbacks or ():
            reader.call(callback, self.granted)
        self._wake_listeners()
        return True

    def _wake_listeners(self) -> None:
        for listener in list(self._listeners):
            listener.wake()
