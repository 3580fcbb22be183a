"""Ctrl-C that lets the work in hand be finished. Knows signals only."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType
from typing import Any

logger = logging.getLogger("parl_lite.agents")


class Interrupt:
    """Within `with`, the first Ctrl-C only sets `requested`; the second raises KeyboardInterrupt, as it always does.

    An update that is cut in two would leave weights that belong to no step. Where signals cannot be caught, in other
    threads than the main one, it does nothing.
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._take_note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _take_note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            signal.default_int_handler(number, frame)
        self.requested = True
        logger.warning("ending after the update in hand; Ctrl-C once more ends at once")
