"""The actors of a pool: lost ones are noticed, missing ones made. Knows creations and channels, not what the calls are for.

    tend()   advances Creations, looks at the channels of Members, asks the Roster (pool_state.py) what is to be made
    wait()   one wait for everything: calls, creations, and the times when the roster wants to be asked

There is no thread behind it: all this is done by whoever uses the pool.
"""

from __future__ import annotations

import enum
import logging
import math
import threading
import time
from dataclasses import replace

from parl_lite import client, futures
from parl_lite.creation import Creation
from parl_lite.errors import ActorLostError, NotConnectedError, ParlError, RemoteError, ResourceError
from parl_lite.futures import FIRST_COMPLETED, Future
from parl_lite.machine import Say, Woke, assert_never
from parl_lite.pool_members import Arguments, Calls, Member
from parl_lite.pool_state import Begin, Born, Broadcasts, Dropped, Event, Failed, Lost, NoRoom, Opened, Roster, Tell
from parl_lite.proxy import destroy, make_proxy
from parl_lite.remote import RemoteClass

logger = logging.getLogger("parl_lite")


class Rank(enum.Enum):
    """A keyword argument of a pool's class that is Rank.OWN is a number of the actor's own."""

    OWN = enum.auto()


class Crew:
    """n places for actors of one class.

    Attributes:
        seats: the places, for reading.
        members: the actors that are there, by place.
        broadcasts: what each has to get before anything else.
    """

    def __init__(self, remote: RemoteClass, n: int, arguments: Arguments) -> None:
        """Begin with nobody; see `open`. The crew belongs to this thread."""
        self.members: dict[int, Member] = {}
        self.broadcasts = Broadcasts()
        self._closed = False
        self._here = client.current()
        self._thread = threading.get_ident()
        options = remote._options
        self._remote = RemoteClass(remote._original, replace(options, max_restarts=0)) if options.max_restarts else remote
        self._arguments = arguments
        self._roster = Roster(remote.__name__, n, self._here.settings.notice_interval, time.monotonic())
        self._creations: dict[int, Creation] = {}
        self._error: Exception | None = None
        self.seats = self._roster.seats

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def open(self) -> None:
        """Make the first actors; return when they are there, or as many as there are slots for."""
        nothing = Calls()
        self.tend()
        while not self._roster.is_settled():
            self.wait(nothing)
            self.tend()
        self._handle(Opened())

    def tend(self) -> list[Member]:
        """Look after the actors; return those that are there. Raises what went wrong since the last time."""
        self.check_usable()
        self.look_after()
        error, self._error = self._error, None
        if error is not None:
            raise error.with_traceback(None)
        return [self.members[seat] for seat in sorted(self.members)]

    def look_after(self) -> None:
        """Notice losses, go on with what is being made, make what is missing; keep the first error for later."""
        self._check_thread()
        if self._closed or client._current is not self._here:
            return
        self._mend()
        for member in list(self.members.values()):
            if member.loss is not None:
                self.lose(member, member.loss)
        for seat, creation in list(self._creations.items()):
            self._go_on(seat, creation)
        for member in list(self.members.values()):
            try:
                member.acknowledge()
            except Exception as error:
                self._keep(error)
        self._handle(Woke())

    # --- calling -------------------------------------------------------------------------------------------

    def send(self, calls: Calls, member: Member, method: str, arguments: Arguments, item: int = 0) -> bool:
        """Call a member, behind what it has to get before; return whether it is still there."""
        try:
            member.catch_up(self.broadcasts)
            calls.send(member, method, arguments, item)
        except ActorLostError as error:
            self.lose(member, error)
            return False
        return True

    def catch_up(self, member: Member) -> Future | None:
        """Send an actor the broadcasts that it has not got; return the future of the last, None if the actor is gone."""
        try:
            return member.catch_up(self.broadcasts)
        except ActorLostError as error:
            self.lose(member, error)
            return None

    def wait(self, calls: Calls, deadline: float = math.inf) -> list[Future]:
        """Wait until something happens; return the calls that have ended, oldest first."""
        coming = self._creations.values()
        next_begin = self._roster.deadline()
        until = min([deadline, math.inf if next_begin is None else next_begin, *(creation.deadline for creation in coming)])
        left = None if until == math.inf else max(0.0, until - time.monotonic())
        awaited = [*calls.under_way, *(creation.awaited for creation in coming)]
        if not awaited and left is not None:
            time.sleep(left)  # every seat is empty until then
        done, _ = futures.wait(awaited, left, FIRST_COMPLETED)
        return [future for future in calls.under_way if future in done]

    def lose(self, member: Member, error: ActorLostError) -> None:
        """Take note that an actor is gone; a second time does nothing."""
        if self.members.get(member.seat) is member:
            del self.members[member.seat]
            proven = member.n_calls > 0 or bool(member.receipts.acknowledged)
            self._handle(Lost(member.seat, error, proven))

    def forget(self, error: Exception) -> None:
        """Do not raise an error later: it is being raised now."""
        if self._error is error:
            self._error = None

    def close(self) -> None:
        """End the actors and what is being made; a second time does nothing."""
        self._closed = True
        while self._creations:
            self._creations.popitem()[1].abandon()
        while self.members:
            destroy(self.members.popitem()[1].actor)

    def check_usable(self) -> None:
        """Raise what stands against using it: the wrong thread, closed, disconnected."""
        self._check_thread()
        if self._closed:
            raise ParlError(f"this pool of {self._remote.__name__} is closed: make another.")
        if client._current is not self._here:
            raise NotConnectedError("the connection that this pool was made with has ended: connect, and make another pool.")

    # --- coming and going ----------------------------------------------------------------------------------

    def _mend(self) -> None:
        """Drop what an interrupt (Ctrl-C) left half done."""
        for number, seat in enumerate(self.seats):
            coming, taken = number in self._creations, number in self.members
            if (seat.state == "coming" and not coming) or (seat.state == "taken" and not taken):
                self._handle(Dropped(number))

    def _go_on(self, seat: int, creation: Creation) -> None:
        try:
            if not creation.advance():
                return
        except Exception as error:
            del self._creations[seat]
            self._handle(NoRoom(seat, error) if _is_no_room(error) else Failed(seat, error))
            return
        except BaseException:  # interrupted, it can never go on
            self._creations.pop(seat).abandon()
            raise
        assert creation.made is not None
        member = self.members[seat] = Member(seat, make_proxy(self._remote, *creation.made))
        del self._creations[seat]
        self._handle(Born(seat))
        self.catch_up(member)

    def _handle(self, event: Event) -> None:
        for action in self._roster.handle(event, time.monotonic()):
            match action:
                case Begin(seat, patient):
                    self._begin(seat, patient)
                case Tell(error):
                    self._keep(error)
                case Say(text):
                    logger.warning("%s", text)
                case _:
                    assert_never(action)

    def _begin(self, seat: int, patient: bool) -> None:
        args, kwargs = self._arguments
        rank = seat + len(self.seats) * self.seats[seat].n_born
        kwargs = {name: rank if value is Rank.OWN else value for name, value in kwargs.items()}
        try:
            self._creations[seat] = Creation(self._remote, args, kwargs, patient=patient)
        except Exception as error:
            self._handle(NoRoom(seat, error) if _is_no_room(error) else Failed(seat, error))

    def _keep(self, error: Exception) -> None:
        self._error = self._error or error

    def _check_thread(self) -> None:
        if threading.get_ident() != self._thread:
            raise ParlError("a pool is for the thread that made it: make one for each thread, or pass its results on.")


def _is_no_room(error: Exception) -> bool:
    return isinstance(error, ResourceError) and not isinstance(error, RemoteError)
