"""A job's side of the data path, pure: what has been asked, in which order it is due. Knows no socket and no user code.

    empty ──PROJECT──▶ (needs code ──CODE──▶) empty with code ──CREATE──▶ made ──▶ calls, one at a time, in order of arrival
Requests of one handle keep their order. CANCEL overtakes: a request that has not begun is answered CANCELLED when its turn comes
(its payload is still read, since it may define what later payloads refer to).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from parl_lite import frames
from parl_lite.frames import HEADER


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


class JobState:
    """What is due. `made` is set by whoever made the instance."""

    def __init__(self) -> None:
        self.made = False
        self._due: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self._due)

    def arrived(self, peer: bytes, frame: bytes, body: memoryview | None = None) -> None:
        """Take in one message; nonsense is dropped, for no honest peer sends it."""
        if len(frame) < HEADER.size:
            return
        kind, _, n_name, number = HEADER.unpack_from(frame)
        begin = HEADER.size + n_name
        if begin > len(frame):
            return
        if kind == frames.CANCEL:
            self._cancel(peer, number)
            return
        try:
            name = frames.name_of(frame, n_name)
        except UnicodeDecodeError:
            return
        payload = memoryview(frame)[begin:] if body is None else body
        self._due.append(Request(peer, kind, number, name, payload))

    def next(self) -> Request:
        """Return what is due, with `refusal` set when it cannot be done in this state."""
        request = self._due.popleft()
        if request.kind in (frames.CALL, frames.GET, frames.SET, frames.DELETE):
            if not self.made:
                request.refusal = "the actor was not created: its constructor failed or was never called"
        elif request.kind in (frames.CREATE, frames.PROJECT, frames.CODE):
            if self.made:
                request.refusal = "the actor was created already"
        else:
            request.refusal = f"unknown request {request.kind}"
        return request

    def _cancel(self, peer: bytes, number: int) -> None:
        for request in self._due:
            if request.peer == peer and request.number == number:
                request.cancelled = True
                return
