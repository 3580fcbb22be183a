"""Shows how a run goes: one live line on a terminal, a plain line now and then elsewhere. Knows rich and nothing of runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

LIVE_INTERVAL = 0.25
PLAIN_INTERVAL = 5.0
"""Seconds between two lines."""


class Progress:
    """A context manager; `show` may be called as often as one likes.

    Args:
        console: where to write, standard output by default.
        clock: seconds that never go back.
    """

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console or Console(soft_wrap=True, highlight=False)
        self._clock = clock
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        self._interval = LIVE_INTERVAL if self._live else PLAIN_INTERVAL
        self._due = 0.0

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def show(self, figures: Mapping[str, float | None]) -> None:
        """Show the figures by name, unless some were shown a moment ago."""
        now = self._clock()
        if now < self._due:
            return
        self._due = now + self._interval
        line = "  ".join(f"{name} {_brief(value)}" for name, value in figures.items())
        if self._live:
            self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)
        else:
            self._console.print(line)

    def say(self, text: str) -> None:
        """Write a line that stays, above the live one."""
        self._console.print(text)


def _brief(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.1f}"
