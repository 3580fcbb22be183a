"""Copies scattered rows of an array into one piece, by several threads where that pays. Knows numpy only.

Small copies go through the cache, and so cost twice what the system's copy of one large piece does; a second thread makes
up for it. numpy lets go of the interpreter while it copies.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_WORTH_IT = 1 << 22
"""Bytes below which one thread is as fast."""


def take_rows(values: Array, rows: Array, n_threads: int = 1) -> Array:
    """Return `values[rows]` (N, *item) for `rows` (N,) within bounds, by up to `n_threads` threads, this one among them."""
    out = np.empty((len(rows), *values.shape[1:]), dtype=values.dtype)
    if n_threads == 1 or out.nbytes < _WORTH_IT:
        return np.take(values, rows, axis=0, out=out, mode="clip")  # "raise" would go through another copy
    borders = [len(rows) * part // n_threads for part in range(n_threads + 1)]

    def take(part: int) -> None:
        piece = slice(borders[part], borders[part + 1])
        np.take(values, rows[piece], axis=0, out=out[piece], mode="clip")

    others = [_helpers(n_threads - 1, os.getpid()).submit(take, part) for part in range(1, n_threads)]
    take(0)
    for other in others:
        other.result()
    return out


@cache
def _helpers(n: int, pid: int) -> ThreadPoolExecutor:
    """Return the threads of this process; a forked child has none of its parent's."""
    return ThreadPoolExecutor(n, thread_name_prefix="replay-gather")
