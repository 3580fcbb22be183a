"""One face for the systems that are compared: actors that answer, blocking calls, calls under way. Ray where it is installed.

Each is used as its own documentation says, and each on this machine alone, with a slot for every actor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import parl_lite


class Answerer:
    """What an actor does in every system."""

    def nothing(self) -> None:
        """Do nothing."""

    def same(self, value):
        """Return the argument."""
        return value


class ParlLite:
    """This library."""

    name = "parl_lite"

    def __init__(self, n_cpu: int) -> None:
        parl_lite.connect(n_cpu=n_cpu, log_to_driver=False)
        self._remote = parl_lite.remote_class(Answerer)

    def actor(self) -> Any:
        """Return a new actor."""
        return self._remote()

    def nothing(self, actor: Any) -> None:
        """Call and wait."""
        actor.nothing()

    def same(self, actor: Any, value: Any) -> Any:
        """Send a value there and back."""
        return actor.same(value)

    def start(self, actor: Any) -> Any:
        """Call without waiting."""
        return actor.futures.nothing()

    def wait_for(self, calls: Sequence[Any]) -> None:
        """Wait for calls under way."""
        parl_lite.get(list(calls))

    def end_actor(self, actor: Any) -> None:
        actor.destroy()

    def end(self) -> None:
        parl_lite.disconnect()


class Ray:
    """Ray, alone on this machine: as `ray.init()` starts it."""

    name = "ray"

    def __init__(self, n_cpu: int) -> None:
        import ray

        self._ray = ray
        ray.init(num_cpus=n_cpu, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        self._remote = ray.remote(num_cpus=1)(Answerer)

    def actor(self) -> Any:
        actor = self._remote.remote()
        self._ray.get(actor.nothing.remote())  # it is there when it has answered
        return actor

    def nothing(self, actor: Any) -> None:
        self._ray.get(actor.nothing.remote())

    def same(self, actor: Any, value: Any) -> Any:
        return self._ray.get(actor.same.remote(value))

    def start(self, actor: Any) -> Any:
        return actor.nothing.remote()

    def wait_for(self, calls: Sequence[Any]) -> None:
        self._ray.get(list(calls))

    def end_actor(self, actor: Any) -> None:
        self._ray.kill(actor)

    def end(self) -> None:
        self._ray.shutdown()


SYSTEMS = {system.name: system for system in (ParlLite, Ray)}
