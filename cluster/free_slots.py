"""Which worker has the most room, found without looking at all of them. Pure.

Workers are filed by how many GPUs they have free; of each file the one with most free CPUs is first (of equals, the one
that joined first). A worker is filed anew whenever its figures change; what is filed under others than it has now does
not count, and is dropped when it comes first. Finding costs a look at one worker for each number of free GPUs that occurs.
"""

from __future__ import annotations

import heapq

from parl_lite.messages import Needs

from .records import Worker

Rank = tuple[int, int]
"""Free CPUs below zero, and the worker's number: the smallest rank has the most room."""


class FreeSlots:
    """The workers by the room they have."""

    def __init__(self) -> None:
        self._workers: dict[int, Worker] = {}
        self._files: dict[int, list[Rank]] = {}  # by the number of free GPUs: a heap
        self._filed: set[tuple[int, Rank]] = set()

    def file(self, worker: Worker) -> None:
        """Take note of what a worker has free now."""
        self._workers[worker.number] = worker
        n_gpu, rank = len(worker.free_gpus), (-worker.free_cpu, worker.number)
        if worker.takes_jobs and (n_gpu, rank) not in self._filed:
            self._filed.add((n_gpu, rank))
            heapq.heappush(self._files.setdefault(n_gpu, []), rank)

    def forget(self, worker: Worker) -> None:
        """Take note that a worker is gone."""
        self._workers.pop(worker.number, None)

    def roomiest(self, needs: Needs) -> Worker | None:
        """Return the worker with the most free CPUs of those that have room, None when none has."""
        best: Rank | None = None
        for n_gpu in self._files:
            rank = self._first(n_gpu) if n_gpu >= needs.n_gpu else None
            if rank is not None and -rank[0] >= needs.n_cpu and (best is None or rank < best):
                best = rank
        return None if best is None else self._workers[best[1]]

    def _first(self, n_gpu: int) -> Rank | None:
        ranks = self._files[n_gpu]
        while ranks and not self._counts(n_gpu, ranks[0]):
            self._filed.discard((n_gpu, heapq.heappop(ranks)))
        return ranks[0] if ranks else None

    def _counts(self, n_gpu: int, rank: Rank) -> bool:
        worker = self._workers.get(rank[1])
        return worker is not None and worker.takes_jobs and (len(worker.free_gpus), -worker.free_cpu) == (n_gpu, rank[0])
