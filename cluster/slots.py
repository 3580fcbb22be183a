"""The slots of the cluster: the workers that offer them, and the jobs that hold them. Pure; knows no wishes and no messages.

Slots are taken from `take` to `give_back`, whatever happens between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from parl_lite.messages import Needs

from .free_slots import FreeSlots
from .records import Job, Worker

_NO_JOBS: Mapping[str, Job] = {}


class Slots:
    """Workers by their peers, jobs by their names.

    Attributes:
        sizes: how many workers there are with so many (CPUs, GPUs) in all.
    """

    def __init__(self) -> None:
        self.workers: dict[bytes, Worker] = {}
        self.jobs: dict[str, Job] = {}
        self.sizes: Counter[tuple[int, int]] = Counter()
        self._free = FreeSlots()
        self._jobs_of: dict[bytes, dict[str, Job]] = {}
        self._n_joined = 0

    def add(self, worker: Worker) -> None:
        """Let a worker offer what it has."""
        self._n_joined += 1
        worker.number = self._n_joined
        self.workers[worker.peer] = worker
        self.sizes[worker.n_cpu, len(worker.gpus)] += 1
        self._free.file(worker)

    def remove(self, worker: Worker) -> None:
        """Let a worker offer nothing more; its jobs stay until they are given back."""
        del self.workers[worker.peer]
        size = worker.n_cpu, len(worker.gpus)
        self.sizes[size] -= 1
        self.sizes += Counter()  # drops a size that no worker has any more
        self._free.forget(worker)

    def changed(self, worker: Worker) -> None:
        """Take note that a worker takes jobs again, or none."""
        if worker.peer in self.workers:
            self._free.file(worker)

    def roomiest(self, needs: Needs) -> Worker | None:
        """Return the worker with the most free CPUs of those that have room, None when none has."""
        return self._free.roomiest(needs)

    def take(self, job: Job) -> None:
        """Give a job the slots that it needs, and the GPUs it names."""
        self.jobs[job.job] = job
        self._jobs_of.setdefault(job.client, {})[job.job] = job
        worker = job.worker
        worker.jobs[job.job] = job
        worker.free_cpu -= job.needs.n_cpu
        for gpu in job.gpus:
            worker.free_gpus.remove(gpu)
        self._free.file(worker)

    def give_back(self, job: Job) -> None:
        """Forget a job that is gone; its slots are free."""
        del self.jobs[job.job]
        mine = self._jobs_of[job.client]
        del mine[job.job]
        if not mine:
            del self._jobs_of[job.client]
        worker = job.worker
        del worker.jobs[job.job]
        worker.free_cpu += job.needs.n_cpu
        worker.free_gpus.extend(job.gpus)
        self.changed(worker)

    def jobs_of(self, client: bytes) -> Mapping[str, Job]:
        """Return all jobs of a client, those included that are ending."""
        return self._jobs_of.get(client, _NO_JOBS)

    def check(self) -> None:
        """Assert that slots add up and that the indices agree with the workers and jobs."""
        for worker in self.workers.values():
            used = sum(job.needs.n_cpu for job in worker.jobs.values())
            assert worker.free_cpu + used == worker.n_cpu, (worker.free_cpu, used, worker.n_cpu)
            assert worker.free_cpu >= 0
            held = [gpu for job in worker.jobs.values() for gpu in job.gpus]
            assert sorted(held + worker.free_gpus) == sorted(worker.gpus)
        assert sorted(self.jobs) == sorted(job for worker in self.workers.values() for job in worker.jobs)
        assert self.jobs == {name: job for mine in self._jobs_of.values() for name, job in mine.items()}
        assert all(job.client == client for client, mine in self._jobs_of.items() for job in mine.values())
        assert self.sizes == Counter((worker.n_cpu, len(worker.gpus)) for worker in self.workers.values())
        for needs in (Needs(1, 0, None), Needs(2, 0, None), Needs(1, 1, None), Needs(0, 2, None)):
            roomy = [worker for worker in self.workers.values() if worker.has_room_for(needs)]
            assert self.roomiest(needs) is max(roomy, key=lambda worker: worker.free_cpu, default=None)
