"""A private cluster on this machine: one master, one worker, ipc sockets in a 0700 folder; gone when its owner is gone.

Both processes watch the owner's pid, so they end however it ends. Folders that a killed cluster left are swept by the next.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from parl_lite import folders, hostos
from parl_lite.launch import Node, launch
from parl_lite.settings import Settings


class EmbeddedCluster:
    """Master and worker of this process."""

    def __init__(self, n_cpu: int | None, gpu: Sequence[int] | None, timeout: float, settings: Settings) -> None:
        """Start both and return when both work; raises ParlError otherwise, with nothing left running."""
        hostos.refuse_windows()
        self._settings = settings
        self.folder, self._lock = folders.make_folder("e")
        self.address = f"ipc://{self.folder}/master"
        self._nodes: list[Node] = []
        deadline = time.monotonic() + timeout
        try:
            for node in (self._master(), self._worker(n_cpu, gpu)):
                node.await_ready(deadline)
        except BaseException:
            self.end()
            raise

    def _master(self) -> Node:
        arguments = ["--address", self.address, "--parent", str(os.getpid())]
        return self._launch("master", arguments)

    def _worker(self, n_cpu: int | None, gpu: Sequence[int] | None) -> Node:
        arguments = [self.address, "--parent", str(os.getpid()), "--folder", str(self.folder)]
        arguments += ["--n-cpu", str(n_cpu)] if n_cpu is not None else []
        arguments += ["--gpu", ",".join(map(str, gpu))] if gpu is not None else []
        return self._launch("worker", arguments)

    def _launch(self, role: str, arguments: list[str]) -> Node:
        log_path = self.folder / f"{role}.log"
        node = launch(f"parl_lite.cluster.{role}", arguments, self.folder, log_path)
        self._nodes.append(node)
        return node

    def end(self) -> None:
        """End both processes, the worker with its jobs first, and remove the folder."""
        for node in reversed(self._nodes):
            node.end(self._settings.job_grace + 3.0)
        self._nodes.clear()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        folders.remove_if_empty_of_life(self.folder)
