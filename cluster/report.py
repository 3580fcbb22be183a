"""What a master tells people: why a wish waits or never can be granted, and the cluster as plain data. Changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from parl_lite.messages import Needs

from .records import Client, Job, Wish, Worker

_MOST_WISHES = 100


Sizes = Mapping[tuple[int, int], int]
"""How many workers there are with so many (CPUs, GPUs) in all."""


@dataclass(frozen=True)
class Room:
    """The slots of a cluster in figures; those of workers that take no jobs are not free."""

    n_workers: int
    n_cpu: int
    free_cpu: int
    n_gpu: int
    free_gpu: int


def room_of(workers: Collection[Worker]) -> Room:
    """Return the slots of all workers together."""
    ready = [worker for worker in workers if worker.takes_jobs]
    return Room(
        len(workers),
        sum(worker.n_cpu for worker in workers),
        sum(worker.free_cpu for worker in ready),
        sum(len(worker.gpus) for worker in workers),
        sum(len(worker.free_gpus) for worker in ready),
    )


def why_never(needs: Needs, sizes: Sizes) -> str:
    """Return why no worker of these sizes can ever run it, or '' (also when there is none: one may yet come)."""
    if not sizes or any(n_cpu >= needs.n_cpu and n_gpu >= needs.n_gpu for n_cpu, n_gpu in sizes):
        return ""
    most_cpu = max(n_cpu for n_cpu, _ in sizes)
    most_gpu = max(n_gpu for _, n_gpu in sizes)
    return (
        f"no worker can ever run it: it needs {_amount(needs.n_cpu, 'CPU')} and {_amount(needs.n_gpu, 'GPU')} on one "
        f"machine, and the largest of {_amount(sum(sizes.values()), 'worker')} has {_amount(most_cpu, 'CPU')} and "
        f"{_amount(most_gpu, 'GPU')}"
    )


def why_waiting(needs: Needs, n_before: int, room: Room) -> str:
    """Return why a wish with so many others before it waits."""
    if not room.n_workers:
        return "no worker has joined the cluster yet"
    wanted = _amount(needs.n_cpu, "CPU")
    free = f"{room.free_cpu} of {room.n_cpu} CPUs"
    if needs.n_gpu:
        wanted += f", {_amount(needs.n_gpu, 'GPU')}"
        free += f", {room.free_gpu} of {room.n_gpu} GPUs"
    return f"it needs {wanted}; {free} are free, and {_amount(n_before, 'wish', 'wishes')} came before"


def report(workers: Collection[Worker], clients: Iterable[Client], wishes: Collection[Wish], now: float) -> dict[str, object]:
    """Return the cluster as plain data: slots, workers with their jobs, clients, waiting wishes."""
    room = room_of(workers)
    return {
        "n_cpu": room.n_cpu,
        "free_cpu": sum(worker.free_cpu for worker in workers),
        "n_gpu": room.n_gpu,
        "free_gpu": sum(len(worker.free_gpus) for worker in workers),
        "workers": [_of_worker(worker) for worker in workers],
        "clients": [{"host": client.place.host, "pid": client.place.pid, "jobs": len(client.jobs)} for client in clients],
        "wishes": [
            {
                "actor": wish.name,
                "waited": round(max(0.0, now - wish.since), 3),
                "reason": why_waiting(wish.needs, n_before, room),
            }
            for n_before, wish in enumerate(islice(wishes, _MOST_WISHES))
        ],
        "n_wishes": len(wishes),
    }


def _of_worker(worker: Worker) -> dict[str, object]:
    return {
        "host": worker.place.host,
        "pid": worker.place.pid,
        "connected": worker.absent_until is None,
        "draining": worker.draining,
        "n_cpu": worker.n_cpu,
        "free_cpu": worker.free_cpu,
        "gpus": list(worker.gpus),
        "free_gpus": list(worker.free_gpus),
        "memory": worker.memory,
        "python": worker.versions.python,
        "version": worker.versions.package,
        "numpy": worker.versions.numpy,
        "jobs": [_of_job(job) for job in worker.jobs.values()],
    }


def _of_job(job: Job) -> dict[str, object]:
    return {
        "job": job.job,
        "actor": job.name,
        "pid": job.pid,
        "state": job.state,
        "n_cpu": job.needs.n_cpu,
        "gpus": list(job.gpus),
        "addresses": list(job.addresses),
        "log": job.log_path,
    }


def _amount(n: int, noun: str, plural: str = "") -> str:
    return f"{n} {noun if n == 1 else plural or noun + 's'}"
