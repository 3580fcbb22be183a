"""One descriptor that any thread can make readable. Knows nothing of who waits for it."""

from __future__ import annotations

import os
import threading


class Waker:
    """Wakes a thread that polls `fileno()`; an eventfd where there is one, a pipe elsewhere."""

    def __init__(self) -> None:
        if hasattr(os, "eventfd"):
            self._read = self._write = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._read, self._write = os.pipe()
            os.set_blocking(self._read, False)
            os.set_blocking(self._write, False)

    def fileno(self) -> int:
        """Return the descriptor to poll for reading."""
        return self._read

    def wake(self) -> None:
        """Make the descriptor readable until `clear`."""
        try:
            os.write(self._write, b"\1\0\0\0\0\0\0\0")
        except (BlockingIOError, OSError):
            pass  # full means awake already; closed means that nobody waits any more

    def clear(self) -> None:
        """Take back every wake so far."""
        try:
            while len(os.read(self._read, 4096)) == 4096:  # a pipe keeps each wake, an eventfd only their number
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Give the descriptors back; a second call does nothing."""
        read, write, self._read, self._write = self._read, self._write, -1, -1
        for fd in {read, write} - {-1}:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


_local = threading.local()


def _begin_anew() -> None:
    """A child of a fork shares the descriptors of its parent: it must not wake or clear those."""
    global _local
    _local = threading.local()


os.register_at_fork(after_in_child=_begin_anew)


def of_this_thread() -> Waker:
    """Return the calling thread's own waker; it lives as long as the thread."""
    waker: Waker | None = getattr(_local, "waker", None)
    if waker is None:
        waker = _local.waker = Waker()
    return waker
