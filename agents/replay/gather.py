"""Copies scattered rows of arrays into one piece each, by several threads where that pays. Knows numpy only.

Copies of a few kilobytes go through the cache, and so cost twice what the system's copy of one large piece does; a second
thread makes up for it. numpy lets go of the interpreter while it copies.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Rows = tuple[Array, Array]
"""An array (M, *item), and which of its rows are wanted, (N,) within bounds."""

_WORTH_IT = 1 << 22
"""Bytes below which one thread is as fast."""
_PIECE = 1 << 20
"""Bytes that a thread copies at a time: who is held up leaves the rest to the others."""


def take_rows(wanted: Sequence[Rows], n_threads: int = 1) -> list[Array]:
    """Return `values[rows]` (N, *item) for each of (values, rows), by up to `n_threads` threads, this one among them."""
    outs = [np.empty((len(rows), *values.shape[1:]), dtype=values.dtype) for values, rows in wanted]
    if n_threads == 1 or sum(out.nbytes for out in outs) < _WORTH_IT:
        for (values, rows), out in zip(wanted, outs, strict=True):
            _take(values, rows, out)
        return outs
    pieces = deque(_pieces(wanted, outs))
    others = [_helpers(n_threads - 1, os.getpid()).submit(_take_pieces, pieces) for _ in range(n_threads - 1)]
    _take_pieces(pieces)
    for other in others:
        other.result()
    return outs


def _pieces(wanted: Sequence[Rows], outs: Sequence[Array]) -> Iterator[tuple[Array, Array, Array]]:
    for (values, rows), out in zip(wanted, outs, strict=True):
        n = max(1, _PIECE * len(rows) // max(1, out.nbytes))
        for start in range(0, len(rows), n):
            yield values, rows[start : start + n], out[start : start + n]


def _take_pieces(pieces: deque[tuple[Array, Array, Array]]) -> None:
    """Copy pieces until none is left; others take from the same ones."""
    while pieces:
        try:
            piece = pieces.popleft()
        except IndexError:  # another thread was faster
            return
        _take(*piece)


def _take(values: Array, rows: Array, out: Array) -> None:
    np.take(values, rows, axis=0, out=out, mode="clip")  # "raise" would go through another copy


@cache
def _helpers(n: int, pid: int) -> ThreadPoolExecutor:
    """Return the threads of this process; a forked child has none of its parent's."""
    return ThreadPoolExecutor(n, thread_name_prefix="replay-gather")
