"""Every time and size limit of the library, in one frozen dataclass. Knows nothing of the rest.

A field is overridden for a process and those it starts by the environment variable `PARL_LITE_` + its name in capitals.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Settings:
    """Times in seconds, sizes in bytes."""

    heartbeat_interval: float = 2.5
    """How often libzmq asks a silent peer whether it lives."""
    liveness_timeout: float = 10.0
    """A peer that answers no heartbeat for so long is taken for dead (a frozen machine, a cut link)."""
    probe_interval: float = 0.25
    """How often the master looks whether the connections of its peers still stand."""
    rejoin_grace: float = 2.0
    """A peer whose connection broke may join again for so long before its jobs are ended."""
    master_patience: float = 60.0
    """A worker whose master stays away for so long ends its jobs (and goes on trying to join)."""
    loss_patience: float = 2.0
    """A client that sees an actor's connection break waits so long to be told why."""
    poll_slice: float = 0.1
    """A thread that waits for a result looks up so often: for a deadline, for a loss."""
    job_grace: float = 2.0
    """A job asked to end is killed after so long."""
    job_start_timeout: float = 60.0
    """A job that has not opened its sockets after so long is killed."""
    memory_interval: float = 0.5
    """The memory of a job with `max_memory` is measured so often."""
    notice_interval: float = 5.0
    """A wish that waits for a slot is told why so often."""
    log_interval: float = 0.05
    """Output of jobs is gathered for so long before it is sent to the driver."""
    log_batch: int = 64 * 1024
    """At most so many bytes of one job's output are sent to the driver at once; the file has all."""
    log_tail: int = 4 * 1024
    """So many of a job's last bytes of output go into an ActorLostError."""
    log_file_size: int = 64 * 1024 * 1024
    """A job's log file larger than this starts anew; one older part is kept."""
    shared_memory: int = 1024 * 1024 * 1024
    """A process lends at most so much memory to the actors it calls on its own machine; more data goes through sockets."""
    max_control_message: int = 8 * 1024 * 1024
    """A control message larger than this is refused before it is parsed."""
    max_project_size: int = 64 * 1024 * 1024
    """The user's code and files, packed, may be no larger than this."""

    @classmethod
    def from_environment(cls) -> Settings:
        """Return the defaults with the overrides of the environment; raises ValueError that names a bad one."""
        changes: dict[str, float] = {}
        for field in fields(cls):
            name = "PARL_LITE_" + field.name.upper()
            text = os.environ.get(name)
            if text is None:
                continue
            kind = int if isinstance(field.default, int) else float
            try:
                value = kind(text)
            except ValueError:
                raise ValueError(f"{name}={text!r} is not {'a whole number' if kind is int else 'a number'}") from None
            if not 0 < value < 1e12:
                raise ValueError(f"{name}={text!r} must be above 0, and finite")
            changes[field.name] = value
        return cls(**changes)  # type: ignore[arg-type]
