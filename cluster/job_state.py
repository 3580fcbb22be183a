"""A job's side of the data path, pure: what has been asked, in which order it is due. Knows no socket and no user code.

    empty ──PROJECT──▶ (needs code ──CODE──▶) empty with code ──CREATE──▶ made ──▶ calls, one at a time, in order of arrival
Requests of one handle keep their order. CANCEL overtakes: a request that has not begun is answered CANCELLED when its turn comes
(its payload is still read, since it may define what later payloads refer to).

With methods that are `batched`, several requests may be due together:

    first call of a batch ──▶ waits ──max_size calls, or timeout since the first──▶ due, all calls of the batch at once
Handles do not wait for each other: what another handle asked meanwhile is due before the batch, if it is no call of the
batch. Of one handle nothing overtakes: what it asked after a waiting call, other than the same method, waits behind it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from parl_lite import frames
from parl_lite.batching import Batching
from parl_lite.frames import HEADER, OFFERED, PLACE, SHARED

Place = tuple[bytes, int, int, int, int]
"""Where shared memory is: the fields of frames.PLACE."""

_BEHIND = -1
"""The place of a request that waits for an earlier one of its handle, or for a full batch."""


@dataclass(slots=True)
class Request:
    """One thing asked of the job, as it arrived."""

    peer: bytes
    kind: int
    number: int
    name: str
    payload: memoryview
    cancelled: bool = False
    refusal: str = ""
    offer: Place | None = None
    """Where the answer may be written."""
    arrived_at: float | None = None
    """Known for what `JobState.stamp` has seen."""


@dataclass(slots=True)
class _Batch:
    """Requests that will be due together at `due_at`: calls of one method, or one request that waits for nothing."""

    settings: Batching | None = None
    requests: list[Request] = field(default_factory=list)
    n_calls: int = 0
    due_at: float = -math.inf

    def is_full(self) -> bool:
        return self.n_calls == (1 if self.settings is None else self.settings.max_size)

    def add(self, request: Request) -> None:
        """Add a request; a batched call that was cancelled takes no room and starts no clock."""
        self.requests.append(request)
        if self.settings is not None and request.cancelled:
            return
        self.n_calls += 1
        if self.is_full():
            self.due_at = -math.inf
        elif self.n_calls == 1 and self.settings is not None and request.arrived_at is not None:
            self.due_at = request.arrived_at + self.settings.timeout


class JobState:
    """What is due. `made` and `batched` (methods whose calls are batched) are set by whoever made the instance."""

    def __init__(self) -> None:
        self.made = False
        self.batched: Mapping[str, Batching] = {}
        self._due: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self._due)

    def arrived(self, peer: bytes, frame: bytes, body: memoryview | None = None) -> None:
        """Take in one message; nonsense is dropped, for no honest peer sends it."""
        if len(frame) < HEADER.size:
            return
        kind, flags, n_name, number = HEADER.unpack_from(frame)
        begin = HEADER.size + n_name
        offer = None
        if flags & (SHARED | OFFERED):
            begin, offer = _behind_places(frame, flags, begin)
        if begin > len(frame):
            return
        if kind == frames.CANCEL:
            self._cancel(peer, number)
            return
        if kind == frames.SEEN:
            return
        try:
            name = frames.name_of(frame, n_name)
        except UnicodeDecodeError:
            return
        payload = memoryview(frame)[begin:] if body is None else body
        self._due.append(Request(peer, kind, number, name, payload, offer=offer))

    def next(self) -> Request:
        """Return what is due, with `refusal` set when it cannot be done in this state."""
        request = self._due.popleft()
        if request.kind in (frames.CALL, frames.GET, frames.SET, frames.DELETE):
            if not self.made:
                request.refusal = "the actor was not created: its constructor failed or was never called"
        elif request.kind in (frames.CREATE, frames.PROJECT, frames.CODE):
            if self.made:
                request.refusal = "the actor was created already"
        elif request.kind != frames.SHARE:
            request.refusal = f"unknown request {request.kind}"
        return request

    def next_together(self, now: float) -> tuple[list[Request], float | None]:
        """Return what is due now: one request, or the calls of a batch in order of arrival; nothing while all wait.

        The second is when a batch that waits will be due if nothing more arrives; None if none waits.
        """
        self.stamp(now)
        batches = self._batches()
        due = next((batch.requests for batch in batches if batch.due_at <= now), [])
        self._bring_forward(due)
        return [self.next() for _ in due], min((batch.due_at for batch in batches), default=None)

    def stamp(self, now: float) -> None:
        """Note that what arrived since the last time arrived now. Apart from `arrived`: ordinary calls need no time."""
        for request in reversed(self._due):
            if request.arrived_at is not None:
                break
            request.arrived_at = now

    def _batches(self) -> list[_Batch]:
        """Return what may run next, by age: batches as far as they are there, and requests that no batch holds up."""
        batches: dict[str | int, _Batch] = {}  # by the method, or by the position of a request that is no batched call
        latest: dict[bytes, str | int] = {}  # where a handle's latest request is
        oldest: _Batch | None = None
        for i, request in enumerate(self._due):
            settings = self.batched.get(request.name) if request.kind == frames.CALL else None
            place = i if settings is None else request.name
            batch = batches.get(place) or _Batch(settings)
            if batch.is_full() or latest.get(request.peer, place) != place:
                latest[request.peer] = _BEHIND
                continue
            batches[place] = batch
            oldest = oldest or batch
            batch.add(request)
            latest[request.peer] = place
            if oldest.is_full():
                break  # it is due, whatever else there is
        return list(batches.values())

    def _bring_forward(self, requests: Sequence[Request]) -> None:
        """Let requests, given in order of arrival, be the first."""
        passed = []
        for request in requests:
            while (first := self._due.popleft()) is not request:
                passed.append(first)
        self._due.extendleft(reversed([*requests, *passed]))

    def _cancel(self, peer: bytes, number: int) -> None:
        for request in self._due:
            if request.peer == peer and request.number == number:
                request.cancelled = True
                return


def _behind_places(frame: bytes, flags: int, begin: int) -> tuple[int, Place | None]:
    """Return where the payload begins, behind the places, and the place that is offered."""
    if flags & SHARED:
        begin += PLACE.size
    if not flags & OFFERED or begin + PLACE.size > len(frame):
        return begin, None
    offer: Place = PLACE.unpack_from(frame, begin)
    return begin + PLACE.size, offer
