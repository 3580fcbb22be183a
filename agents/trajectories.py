"""The asynchronous wiring of actors and one learner: rollouts as they come, weights as they change.

    learner (this process)                                   actors
      publish(version, weights)   ──set_weights, if newer──▶   act with them from the next rollout on
      take(n)                     ◀──sample, k in flight────   rollouts

Each actor has k `sample` calls waiting, so that it is never idle. Before a call is sent, the newest weights are, if
they changed since that actor's last. Calls of one actor run in order, so no older weights can overtake newer ones,
and a rollout is at most k rollouts of its actor behind. An actor that is lost is made anew.

Knows the face of parl_lite, and of actors two methods: `set_weights(version, weights)` and `sample()`. Nothing of
algorithms, environments and what is in a rollout.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import parl_lite
from parl_lite.errors import ActorLostError, ResourceError

logger = logging.getLogger("parl_lite.agents")

MAX_STILLBORN = 3
"""So many actors in a row may be lost before their first rollout; then their code, not a machine, is at fault."""


@dataclass(eq=False)
class Seat:
    """The place of one actor and what is under way there."""

    actor: Any
    version: int | None = None
    """Version of the weights sent last."""
    pushes: deque[Any] = field(default_factory=deque)
    """Futures of `set_weights` calls whose outcome was not seen yet."""
    in_flight: int = 0
    """`sample` calls sent and not answered."""
    proven: bool = False
    """Whether it ever sent a rollout."""


class Trajectories:
    """Keeps actors busy and hands out their rollouts.

    Args:
        make_actor: makes a remote actor from its rank. Ranks are never used twice: an actor made in place of a lost
            one has random streams of its own.
        n_actors: how many.
        calls_in_flight: k above.
        recreate: whether a lost actor is replaced; without, the others go on alone.

    Attributes:
        n_lost: actors lost so far.
    """

    def __init__(
        self, make_actor: Callable[[int], Any], n_actors: int, *, calls_in_flight: int = 2, recreate: bool = True
    ) -> None:
        self.n_lost = 0
        self._make_actor = make_actor
        self._calls_in_flight = calls_in_flight
        self._recreate = recreate
        self._ranks = itertools.count()
        self._stillborn = 0
        self._version = 0
        self._weights: Any = None
        self._pending: dict[Any, Seat] = {}
        self._rollouts: deque[Any] = deque()
        self._seats: list[Seat] = []
        try:
            for _ in range(n_actors):
                self._seats.append(Seat(make_actor(next(self._ranks))))
        except BaseException:
            self.close()
            raise

    @property
    def n_actors(self) -> int:
        """Actors alive, as far as is known."""
        return len(self._seats)

    def publish(self, version: int, weights: Any) -> None:
        """Let actors act with `weights` from their next call on; `version` must grow from call to call."""
        self._version, self._weights = version, weights

    def take(self, n: int) -> list[Any]:
        """Return the next `n` rollouts of any actors, oldest first; waits for them.

        Raises:
            RemoteError: an actor's method raised; it is the learner's to decide what that means.
            ActorLostError: no actor is left, or actors are lost again and again before their first rollout.
        """
        for seat in list(self._seats):
            self._ask(seat)
        while len(self._rollouts) < n:
            done, _ = parl_lite.wait(self._pending, return_when="FIRST_COMPLETED")
            for future in [future for future in self._pending if future in done]:
                if future in self._pending:  # not if its actor was found lost a moment ago
                    self._receive(future)
        return [self._rollouts.popleft() for _ in range(n)]

    def close(self) -> None:
        """End the actors; a second time does nothing."""
        seats, self._seats = self._seats, []
        self._pending.clear()
        for seat in seats:
            seat.actor.destroy()

    def __enter__(self) -> Trajectories:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _ask(self, seat: Seat) -> None:
        """Bring the calls of an actor to k, each with the newest weights before it."""
        try:
            while seat.in_flight < self._calls_in_flight:
                if seat.version != self._version:
                    seat.pushes.append(seat.actor.futures.set_weights(self._version, self._weights))
                    seat.version = self._version
                self._pending[seat.actor.futures.sample()] = seat
                seat.in_flight += 1
        except ActorLostError as error:
            self._lose(seat, error)

    def _receive(self, future: Any) -> None:
        seat = self._pending.pop(future)
        seat.in_flight -= 1
        try:
            while seat.pushes and seat.pushes[0].done():
                seat.pushes.popleft().result()
            self._rollouts.append(future.result())
        except ActorLostError as error:
            self._lose(seat, error)
            return
        if not seat.proven:
            seat.proven, self._stillborn = True, 0
        self._ask(seat)

    def _lose(self, seat: Seat, error: ActorLostError) -> None:
        self.n_lost += 1
        self._seats.remove(seat)
        self._pending = {future: other for future, other in self._pending.items() if other is not seat}
        if not seat.proven:
            self._count_stillborn(error)
        if self._recreate:
            self._replace(error)
        elif self._seats:
            logger.warning("an actor is lost, %d go on without it: %s", len(self._seats), error)
        if not self._seats:
            raise error

    def _replace(self, error: ActorLostError) -> None:
        logger.warning("an actor is lost and is made anew: %s", error)
        while True:
            try:
                seat = Seat(self._make_actor(next(self._ranks)))
            except ActorLostError as again:
                self._count_stillborn(again)
            except ResourceError as reason:
                logger.warning("no room for a new actor, %d go on without it: %s", len(self._seats), reason)
                return
            else:
                break
        self._seats.append(seat)
        self._ask(seat)

    def _count_stillborn(self, error: ActorLostError) -> None:
        self._stillborn += 1
        if self._stillborn >= MAX_STILLBORN:
            raise error
