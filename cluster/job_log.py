"""A job's output: all in a file, its end in memory, and a bounded part of it on the way to the driver. Knows no job."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from parl_lite.settings import Settings


class JobLog:
    """Takes in bytes as they come from the job's pipe."""

    def __init__(self, path: str, settings: Settings, clock: Callable[[], float]) -> None:
        self.path = path
        self._settings = settings
        self._clock = clock
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - lives as long as the job
        os.chmod(path, 0o600)
        self._size = 0
        self._tail = bytearray()
        self._line = b""
        self._allowance = float(settings.log_batch)
        self._last = clock()
        self._n_hidden = 0

    def take(self, data: bytes) -> str:
        """Keep the bytes; return the text that the driver should see now ("" for none)."""
        self._write(data)
        self._tail = (self._tail + data)[-self._settings.log_tail :]
        whole, newline, self._line = (self._line + data).rpartition(b"\n")
        text = self._within_rate(whole + newline)
        if len(self._line) > self._settings.log_batch:  # over any allowance, so there is no need to keep it
            self._n_hidden += len(self._line)
            self._line = b""
        return text

    def close(self) -> str:
        """Close the file; return what the driver has not seen yet."""
        rest, self._line = self._line, b""
        self._file.close()
        return self._within_rate(rest) or self._told_hidden()

    def tail(self) -> str:
        """Return the end of the output."""
        return self._tail.decode(errors="replace")

    def _write(self, data: bytes) -> None:
        try:
            if self._size + len(data) > self._settings.log_file_size:
                self._start_anew()
            self._file.write(data)
            self._size += len(data)
        except OSError:
            pass  # a full disk must not end the job; the tail and the driver still get it

    def _start_anew(self) -> None:
        os.replace(self.path, self.path + ".old")
        full, self._file = self._file, open(self.path, "ab", buffering=0)  # noqa: SIM115
        full.close()
        Path(self.path).chmod(0o600)
        self._size = 0

    def _within_rate(self, data: bytes) -> str:
        """Let through `log_batch` bytes per `log_interval`; what is over is counted and told."""
        now = self._clock()
        rate = self._settings.log_batch / self._settings.log_interval
        self._allowance = min(self._settings.log_batch, self._allowance + (now - self._last) * rate)
        self._last = now
        if len(data) > self._allowance:
            self._n_hidden += len(data)
            return ""
        self._allowance -= len(data)
        text = data.decode(errors="replace")
        return self._told_hidden() + text if text else ""

    def _told_hidden(self) -> str:
        n_hidden, self._n_hidden = self._n_hidden, 0
        return f"[{n_hidden} bytes of output not shown here; all is in {self.path}]\n" if n_hidden else ""
