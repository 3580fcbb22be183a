"""What a master keeps of each worker, client, job and wish. Data with questions about itself; changed by MasterState only."""

from __future__ import annotations

from dataclasses import dataclass, field

from parl_lite.messages import Needs, Place, Versions


@dataclass
class Worker:
    """A machine that runs jobs."""

    peer: bytes
    versions: Versions
    place: Place
    n_cpu: int
    free_cpu: int
    gpus: tuple[str, ...]
    free_gpus: list[str]
    memory: int
    jobs: dict[str, Job] = field(default_factory=dict)
    absent_until: float | None = None
    draining: bool = False
    number: int = 0
    """Workers are numbered in the order in which they joined."""

    @property
    def takes_jobs(self) -> bool:
        """Whether jobs could start on it, room provided."""
        return self.absent_until is None and not self.draining

    def has_room_for(self, needs: Needs) -> bool:
        """Return whether a job could start now."""
        return self.takes_jobs and self.free_cpu >= needs.n_cpu and len(self.free_gpus) >= needs.n_gpu


@dataclass
class Client:
    """A process that calls actors."""

    peer: bytes
    place: Place
    show_logs: bool
    jobs: dict[str, Job] = field(default_factory=dict)
    job_of_wish: dict[int, Job] = field(default_factory=dict)
    """Those of its jobs that came of a wish that is known here."""
    claims: set[str] = field(default_factory=set)
    """Jobs it says are its own that no worker has told of yet."""
    absent_until: float | None = None
    leaving: bool = False

    def hold(self, job: Job) -> None:
        """Let a job be its own."""
        self.jobs[job.job] = job
        if job.wish is not None:
            self.job_of_wish[job.wish] = job

    def let_go(self, job: Job) -> None:
        """Let a job be its own no more."""
        self.jobs.pop(job.job, None)
        if job.wish is not None and self.job_of_wish.get(job.wish) is job:
            del self.job_of_wish[job.wish]


@dataclass
class Job:
    """One actor's process."""

    job: str
    name: str
    client: bytes
    wish: int | None
    needs: Needs
    gpus: tuple[str, ...]
    worker: Worker
    since: float = 0.0
    """When it was wished."""
    state: str = "starting"
    pid: int = 0
    addresses: tuple[str, ...] = ()
    log_path: str = ""
    claimed_until: float | None = None
    """Ended at this time unless its client joins again and claims it."""

    def place(self) -> Place:
        """Return where its process is."""
        return Place(self.worker.place.host, self.pid, self.worker.place.boot_id)


@dataclass
class Wish:
    """A client's wish for a job, in the queue."""

    client: bytes
    wish: int
    name: str
    needs: Needs
    since: float
    next_notice: float
    place: int = 0
    """Grows along the queue."""
