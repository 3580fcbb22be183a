"""What a pool of actors decides, as pure machines. Knows no actors, futures, processes and clock.

    Roster       who is there: n seats, and when to make an actor for an empty one
    Backlog      the items of one `map`: which is given to whom, how often its actor was lost
    Broadcasts   the last call of each method that every actor has to get, also those who come later

A seat of the roster is

    empty   ──begin──▶   coming   ──Born──▶   taken
      ▲                    │ NoRoom, Failed     │ Lost
      └────────────────────┴────────────────────┘

It stays empty for `room_interval` when there was no room; after failures in a row for 0.25, 0.5, ... seconds, and the
third is told to the user. A failure is a constructor that raised, and an actor that was lost before its first answer.
While some seat is taken, no one waits in the cluster's queue: a wish that would have to is dropped, and made again
later, so that a pool larger than the cluster stands in nobody's way. Without any, one wish does wait, patiently.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from parl_lite.errors import ActorLostError, RemoteError
from parl_lite.machine import Say, Woke, assert_never

MAX_FAILURES = 3
"""So many failures in a row at one seat, or of actors that hold the same item, are the code's fault, not a machine's."""
FIRST_DELAY = 0.25
"""Seconds that a seat stays empty after the first failure; twice as long after each further one."""
LAST_DELAY = 10.0
"""Seconds that it stays empty after the failure that was told to the user."""

# --- events ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Born:
    """The actor for a seat is there."""

    seat: int


@dataclass(frozen=True)
class NoRoom:
    """There is no slot for it now."""

    seat: int
    error: Exception


@dataclass(frozen=True)
class Failed:
    """Its constructor raised, or its process was lost meanwhile."""

    seat: int
    error: Exception


@dataclass(frozen=True)
class Lost:
    """The actor of a seat is gone."""

    seat: int
    error: Exception
    proven: bool
    """Whether it ever answered a call."""


@dataclass(frozen=True)
class Dropped:
    """The user interrupted what was being done about it."""

    seat: int


@dataclass(frozen=True)
class Opened:
    """The first actors are there: from now on a constructor that raises is tried again."""


Event = Born | NoRoom | Failed | Lost | Dropped | Opened | Woke

# --- actions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Begin:
    """Make an actor for a seat."""

    seat: int
    patient: bool
    """Whether it waits for a slot."""


@dataclass(frozen=True)
class Tell:
    """Raise an error to the user."""

    error: Exception


Action = Begin | Tell | Say

# --- who is there ------------------------------------------------------------------------------------------


@dataclass
class Seat:
    """The place of one actor."""

    state: Literal["empty", "coming", "taken"] = "empty"
    patient: bool = False
    """Whether the actor that is coming waits for a slot."""
    begin_at: float = 0.0
    """When an empty one asks for an actor."""
    n_failures: int = 0
    """Failures in a row."""
    n_born: int = 0
    """Actors it has had."""


class Roster:
    """Who is there. Its fields belong together: change them through `handle` only, ever."""

    def __init__(self, name: str, n: int, room_interval: float, now: float) -> None:
        """Begin with n empty seats for actors of the class `name`."""
        self.seats = [Seat(begin_at=now) for _ in range(n)]
        self._name = name
        self._room_interval = room_interval
        self._opened = False
        self._said = ""
        self._out: list[Action] = []

    def handle(self, event: Event, now: float) -> Sequence[Action]:
        """Take in what happened and return what to do."""
        match event:
            case Born(seat):
                self._born(self.seats[seat])
            case NoRoom(seat, error):
                self._no_room(self.seats[seat], error, now)
            case Failed(seat, error):
                self._failed(self.seats[seat], error, now)
            case Lost(seat, error, proven):
                self._lost(self.seats[seat], error, proven, now)
            case Dropped(seat):
                self._empty(self.seats[seat], now + FIRST_DELAY)
            case Opened():
                self._opened = True
            case Woke():
                pass
            case _:
                assert_never(event)
        self._begin_due(now)
        out, self._out = self._out, []
        return out

    def deadline(self) -> float | None:
        """Return when an empty seat asks for an actor, or None."""
        return min((seat.begin_at for seat in self.seats if seat.state == "empty"), default=None)

    def check(self) -> None:
        """Assert that at most one wish waits, and that failures end."""
        assert sum(seat.patient for seat in self.seats) <= 1
        assert all(seat.state == "coming" for seat in self.seats if seat.patient)
        assert all(seat.n_failures < MAX_FAILURES for seat in self.seats)

    def n_taken(self) -> int:
        """Return how many actors are there."""
        return sum(seat.state == "taken" for seat in self.seats)

    def is_settled(self) -> bool:
        """Return whether some actor is there, and no other is on its way."""
        return self.n_taken() > 0 and all(seat.state != "coming" for seat in self.seats)

    def _begin_due(self, now: float) -> None:
        for number, seat in enumerate(self.seats):
            if seat.state == "empty" and seat.begin_at <= now:
                seat.patient = not self.n_taken() and not any(other.patient for other in self.seats)
                seat.state = "coming"
                self._out.append(Begin(number, seat.patient))

    def _born(self, seat: Seat) -> None:
        seat.state, seat.patient = "taken", False
        seat.n_born += 1
        self._said = ""

    def _no_room(self, seat: Seat, error: Exception, now: float) -> None:
        if seat.patient and not self.n_taken():
            self._out.append(Tell(error))
        else:
            self._say_once(f"{self.n_taken()} of {len(self.seats)} actors of {self._name} go on: {error}")
        self._empty(seat, now + self._room_interval)

    def _failed(self, seat: Seat, error: Exception, now: float) -> None:
        lost = isinstance(error, ActorLostError) and not isinstance(error, RemoteError)
        if self._opened or lost:
            self._out.append(Say(f"an actor of {self._name} could not be made: {error}"))
            self._count_failure(seat, error, now)
        else:
            self._out.append(Tell(error))
            self._empty(seat, now + LAST_DELAY)

    def _lost(self, seat: Seat, error: Exception, proven: bool, now: float) -> None:
        self._out.append(Say(f"an actor of {self._name} is lost and is made anew: {error}"))
        if proven:
            seat.n_failures = 0
            self._empty(seat, now)
        else:
            self._count_failure(seat, error, now)

    def _count_failure(self, seat: Seat, error: Exception, now: float) -> None:
        seat.n_failures += 1
        if seat.n_failures < MAX_FAILURES:
            self._empty(seat, now + FIRST_DELAY * 2 ** (seat.n_failures - 1))
            return
        self._out.append(Tell(error))
        seat.n_failures = 0
        self._empty(seat, now + LAST_DELAY)

    def _empty(self, seat: Seat, begin_at: float) -> None:
        seat.state, seat.patient, seat.begin_at = "empty", False, begin_at

    def _say_once(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._out.append(Say(text))


# --- the items of a map ------------------------------------------------------------------------------------


class Backlog:
    """The items of one `map`, and their results."""

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = list(items)
        self._results: dict[int, Any] = {}
        self._waiting = deque(range(len(self.items)))
        self._n_losses = [0] * len(self.items)

    @property
    def n_done(self) -> int:
        """How many have a result."""
        return len(self._results)

    def is_done(self) -> bool:
        """Return whether all have."""
        return len(self._results) == len(self.items)

    def results(self) -> list[Any]:
        """Return the results in the order of the items."""
        return [self._results[number] for number in range(len(self.items))]

    def deal(self, loads: Sequence[int]) -> list[tuple[int, int]]:
        """Return (actor, item) for the next items to give away; `loads` are the items that each actor has.

        An actor has one, and a second behind it while there are more left than actors, so that it need not wait for
        its next. Towards the end that would keep an item behind a long one while others have nothing to do.
        """
        loads = list(loads)
        dealt = []
        while self._waiting and loads:
            actor = loads.index(min(loads))
            if loads[actor] >= (2 if len(self._waiting) > len(loads) else 1):
                break
            loads[actor] += 1
            dealt.append((actor, self._waiting.popleft()))
        return dealt

    def finish(self, number: int, result: Any) -> None:
        """Keep the result of an item."""
        self._results[number] = result

    def take_back(self, number: int, *, was_running: bool) -> bool:
        """Give an item whose actor was lost to another; False when it was running on too many that were lost."""
        self._n_losses[number] += was_running
        self._waiting.appendleft(number)
        return self._n_losses[number] < MAX_FAILURES


# --- what everybody gets -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Broadcast:
    """A call that every actor gets."""

    method: str
    number: int
    """Its place among all broadcasts."""
    version: int
    """Its version among those of its method, for figures."""
    arguments: Any


@dataclass
class Receipts:
    """What one actor got."""

    sent: dict[str, int] = field(default_factory=dict)
    """Number of the last broadcast that was sent, for each method."""
    acknowledged: dict[str, int] = field(default_factory=dict)
    """Version of the last one that it has run, for each method."""


class Broadcasts:
    """The last broadcast of each method."""

    def __init__(self) -> None:
        self._last: dict[str, Broadcast] = {}
        self._before: dict[str, int] = {}
        self._n = 0

    def record(self, method: str, arguments: Any, version: int | None) -> Broadcast:
        """Keep a broadcast; raises ValueError when its version is not above the last of its method."""
        last = self._last.get(method)
        if version is None:
            version = 1 if last is None else last.version + 1
        if last is not None and version <= last.version:
            raise ValueError(f"broadcast of {method!r}: version is {version}, it must be above the last, {last.version}.")
        self._n += 1
        self._before.setdefault(method, version - 1)
        self._last[method] = Broadcast(method, self._n, version, arguments)
        return self._last[method]

    def missing(self, receipts: Receipts) -> list[Broadcast]:
        """Return what was not sent to an actor yet, in order."""
        late = [last for last in self._last.values() if receipts.sent.get(last.method, 0) < last.number]
        return sorted(late, key=lambda broadcast: broadcast.number)

    def lag(self, receipts: Receipts) -> int:
        """Return by how many versions an actor is behind, in the method where that is most.

        One that has run none yet counts as if it had the version before the first.
        """
        seen = receipts.acknowledged
        behind = (last.version - seen.get(last.method, self._before[last.method]) for last in self._last.values())
        return max(behind, default=0)
