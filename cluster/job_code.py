"""The user's code in a job: its real folder on the user's own machine, else a copy that all jobs here share. Runs none of it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from typing import Any

from parl_lite import hostos
from parl_lite import project as projects
from parl_lite.errors import SerializationError


class JobCode:
    """Where this job's code is. `offered`, then `unpack` if it is missing, both as the client asks for them."""

    def __init__(self, folder: str, limit: int) -> None:
        """Keep copies below `folder`; refuse code of more than `limit` bytes."""
        self._folder = folder
        self._limit = limit
        self._lock: int | None = None
        self._digest = ""
        self._paths: Sequence[str] = ()

    def offered(self, offer: dict[str, Any]) -> bool:
        """Use the code that a client has; return False if it must be sent.

        Args:
            offer: `root` and `paths` of the project, the `identity` of its folder, whether the folder itself serves
                (`in_place`), and the `digest` of the files, empty while the client has not looked at them.
        """
        self._digest, self._paths = offer["digest"], offer["paths"]
        if offer["in_place"] and identity_of(offer["root"]) == list(offer["identity"]):
            projects.activate(offer["root"], self._paths)
            return True
        if not self._digest:
            return False
        self._wait_for_others()
        if not projects.installed(self._copy()):
            return False
        self._use_copy()
        return True

    def unpack(self, packed: bytes) -> None:
        """Unpack what was sent, and use it."""
        projects.unpack(packed, self._copy(), limit=self._limit)
        self._use_copy()

    def _copy(self) -> str:
        if not self._digest.isalnum():
            raise SerializationError(f"{self._digest!r} is not the name of a project.")
        return os.path.join(self._folder, "code", self._digest)

    def _wait_for_others(self) -> None:
        """Hold the lock of the copy: one job of this machine asks for the code, the others wait for it."""
        copy = self._copy()
        os.makedirs(os.path.dirname(copy), mode=0o700, exist_ok=True)
        self._lock = os.open(copy + ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def _use_copy(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        projects.activate(self._copy(), self._paths)


def identity_of(folder: str) -> list[object]:
    """Return what is equal for two processes exactly when the path means the same folder to both; [] if it is none."""
    try:
        found = os.stat(folder)
    except OSError:
        return []
    return [hostos.boot_id(), found.st_dev, found.st_ino]
