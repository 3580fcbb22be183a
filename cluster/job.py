"""A job: what serves one actor. ONE thread: receive, call, reply. No heartbeat, so the user's code may hold the GIL for hours.

handles ──data──▶ Doors (lanes and ipc for this host, tcp for others) ─▶ JobState ─▶ the user's object
"""

from __future__ import annotations

import functools
import inspect
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from parl_lite import frames, remote_errors
from parl_lite.batching import batched_methods
from parl_lite.class_code import know_sources
from parl_lite.errors import ParlError, SerializationError
from parl_lite.frames import HEADER
from parl_lite.lending import LEAST
from parl_lite.payload import Decoder, Encoder
from parl_lite.proxy import OWN_NAMES
from parl_lite.refs import Packer, Ref
from parl_lite.remote import plain_class
from parl_lite.shm import Borrower, Place, write

from . import job_batch
from .doors import Doors
from .job_code import JobCode
from .job_state import JobState, Request
from .job_state import Place as OfferedPlace

_LOOK_INTERVAL = 0.001
"""Looking for cancellations costs as much as a short call, so many short calls share one look."""
_PEERS_BEFORE_LOOKING = 1024
_LONGEST_WAIT = 0.1
"""So long may Python miss a signal that came just before a wait."""
_OUR_FILES = (__file__, job_batch.__file__)


@dataclass
class Peer:
    """What one handle and this job know of each other: which schemas have travelled."""

    packer: Packer = field(default_factory=lambda: Packer(local=False))
    decoder: Decoder = field(default_factory=Decoder)
    kept: dict[int, list[Ref]] = field(default_factory=dict)
    """Refs in answers that it has not read yet."""

    def __post_init__(self) -> None:
        self.encoder = Encoder(self.packer.reducers)


Outcome = Callable[[Request, Peer], tuple[int, Sequence[frames.Bytes]]]
"""Makes the kind and the payload of an answer; what it raises is the answer, too."""


class Job:
    """Serves the requests for one object."""

    def __init__(self, doors: Doors, name: str, code: JobCode, stores: Sequence[str]) -> None:
        self._doors = doors
        doors.arrived = self._arrived
        self._stores = tuple(stores)
        self._name = name
        self._code = code
        self._state = JobState()
        self._peers: dict[bytes, Peer] = {}
        self._look_at = 0.0
        self._borrower = Borrower()
        self._instance: Any = None
        self._actions: dict[int, Callable[[str, Any], Any]] = {
            frames.GET: self._get,
            frames.SET: self._set,
            frames.DELETE: self._delete,
            frames.CREATE: self._create,
            frames.PROJECT: self._project,
            frames.CODE: self._unpack,
        }

    def serve(self) -> None:
        """Serve until SystemExit."""
        while not self._state.batched:
            self._receive()
            self._answer(self._state.next())
        while True:
            self._answer_together(self._receive_together())

    def end(self) -> None:
        """Let go of the user's object, so that its finalizer runs."""
        self._instance = None

    # --- receive -------------------------------------------------------------------------------------------

    def _receive(self) -> None:
        """Wait until something is due; now and then take all that has arrived, for a cancellation may be behind it."""
        while not self._state:
            self._doors.wait(_LONGEST_WAIT)
        if time.monotonic() < self._look_at:
            return
        self._doors.take_all()
        self._look_at = time.monotonic() + _LOOK_INTERVAL

    def _receive_together(self) -> list[Request]:
        """Wait until something is due, no longer than a batch waits for more calls; return it."""
        while True:
            self._doors.take_all()
            now = time.monotonic()
            due, next_due_at = self._state.next_together(now)
            if due:
                return due
            self._doors.wait(_LONGEST_WAIT if next_due_at is None else min(next_due_at - now, _LONGEST_WAIT))

    def _arrived(self, peer: bytes, frame: bytes, body: memoryview | None) -> None:
        elsewhere = len(frame) >= HEADER.size and frame[1] & (frames.KEPT | frames.SHARED)
        self._state.arrived(peer, frame, self._body(peer, frame) if elsewhere else body)

    def _body(self, peer: bytes, frame: bytes) -> memoryview | None:
        """Return the payload that is in shared memory, empty if it is lost; and drop what was kept for an answer now seen."""
        _, flags, n_name, number = HEADER.unpack_from(frame)
        if flags & frames.KEPT and peer in self._peers:
            self._peers[peer].kept.pop(number, None)
        if not flags & frames.SHARED:
            return None
        try:
            return self._borrower.borrow(Place(*frames.PLACE.unpack_from(frame, HEADER.size + n_name)))
        except (OSError, struct.error):
            return memoryview(b"")

    # --- call, reply ---------------------------------------------------------------------------------------

    def _answer(self, request: Request, outcome: Outcome | None = None) -> None:
        peer = self._peers.get(request.peer) or self._new_peer(request.peer)
        try:
            kind, parts = (outcome or self._outcome)(request, peer)
        except SystemExit:
            raise
        except BaseException as error:
            kind, parts = frames.ERROR, peer.encoder.encode_parts(remote_errors.pack(_without_our_frames(error)))
        shared = None if request.offer is None else self._shared_answer(request, request.offer, kind, parts)
        head, body = shared or frames.build_answer(kind, request.number, request.name, parts)
        if peer.packer.packed:
            peer.kept[request.number] = peer.packer.take()
            head = frames.with_kept(head)
        if not self._doors.send(request.peer, head, body):
            self._peers.pop(request.peer, None)  # the handle is gone; nobody misses the result

    def _shared_answer(
        self, request: Request, offer: OfferedPlace, kind: int, parts: Sequence[frames.Bytes]
    ) -> tuple[bytes, None] | None:
        """Write a large answer to the place that the caller offered for it; None if it does not go there."""
        if not LEAST <= (size := sum(map(len, parts))) <= offer[-1]:
            return None
        try:
            write(self._borrower.data(Place(*offer)), parts)
        except OSError:
            return None
        return frames.build_shared_answer(kind, request.number, request.name, size), None

    def _outcome(self, request: Request, peer: Peer) -> tuple[int, Sequence[frames.Bytes]]:
        if not request.payload:
            return frames.UNREADABLE, ()
        value = peer.decoder.decode(request.payload)
        if request.cancelled:
            return frames.CANCELLED, ()
        if request.refusal:
            raise ParlError(f"{self._name}.{request.name}: {request.refusal}.")
        if request.kind == frames.CALL:
            args, kwargs = value
            result = getattr(self._instance, request.name)(*args, **kwargs)
            if result is self._instance:
                result = self._itself(request.name)
        elif request.kind == frames.SHARE:
            peer.packer.local = value is not None and self._borrower.can_open(Place(*value))
            lane = self._doors.offer_lane(request.peer) if peer.packer.local else None
            return frames.SHARES, peer.encoder.encode_parts((peer.packer.local, self._stores, lane))
        else:
            result = self._actions[request.kind](request.name, value)
            if isinstance(result, Marker):
                return result.kind, ()
        return self._encoded(request, peer, result)

    def _encoded(self, request: Request, peer: Peer, result: Any) -> tuple[int, Sequence[frames.Bytes]]:
        what = f"the result of {self._name}.{request.name or '__init__'}"
        try:
            return frames.RESULT, peer.encoder.encode_parts(result, what=what)
        except SerializationError as error:
            peer.packer.discard()
            raise error.with_traceback(None) from None  # it says all there is to say

    def _answer_together(self, requests: Sequence[Request]) -> None:
        """Answer the calls of a batch, or one request that is due alone."""
        first = requests[0]
        hidden = first.name in getattr(self._instance, "__dict__", ())  # an attribute of the object is called as it is
        if first.kind == frames.CALL and first.name in self._state.batched and not hidden:
            self._answer_batch(requests)
            return
        for request in requests:
            self._answer(request)

    def _answer_batch(self, requests: Sequence[Request]) -> None:
        calls = [call for request in requests if (call := self._open(request)) is not None]
        what = f"{self._name}.{requests[0].name}"
        for request, outcome in job_batch.call_together(self._instance, what, calls):
            if isinstance(outcome, job_batch.Raised):
                self._answer(request, _raising(outcome.error))
            else:
                self._answer(request, functools.partial(self._encoded, result=outcome.value))

    def _open(self, request: Request) -> job_batch.Call | None:
        """Read a call's arguments; answer it at once if there is nothing to call."""
        if request.cancelled or not request.payload:
            self._answer(request)
            return None
        peer = self._peers.get(request.peer) or self._new_peer(request.peer)
        try:
            args, kwargs = peer.decoder.decode(request.payload)
        except Exception as error:
            self._answer(request, _raising(error))
            return None
        return job_batch.Call(request, args, kwargs)

    def _new_peer(self, name: bytes) -> Peer:
        if len(self._peers) >= _PEERS_BEFORE_LOOKING:
            self._forget_dead_peers()
        peer = self._peers[name] = Peer()
        return peer

    def _forget_dead_peers(self) -> None:
        for name in list(self._peers):
            if not self._doors.is_there(name):
                del self._peers[name]

    # --- the actions ---------------------------------------------------------------------------------------

    def _get(self, name: str, _: Any) -> Any:
        value = getattr(self._instance, name)
        if inspect.ismethod(value) or (inspect.isbuiltin(value) and not inspect.ismodule(value.__self__)):
            return Marker(frames.METHOD)
        return self._itself(name) if value is self._instance else value

    def _set(self, name: str, value: Any) -> None:
        setattr(self._instance, name, value)

    def _delete(self, name: str, _: Any) -> None:
        delattr(self._instance, name)

    def _create(self, _: str, value: Any) -> list[str]:
        """Make the instance; return the names of instance attributes that hide methods of the class."""
        remote, args, kwargs, sources = value
        know_sources(sources)
        plain = plain_class(remote)
        self._instance = plain(*args, **kwargs)
        self._state.made = True
        self._state.batched = batched_methods(plain)
        hideable = remote._methods | OWN_NAMES
        return [name for name in getattr(self._instance, "__dict__", ()) if name in hideable]

    def _itself(self, name: str) -> Any:
        """Answer for the object when it returns itself: nothing from __enter__, where the handle knows what it means."""
        if name != "__enter__":
            raise SerializationError(
                f"the result of {self._name}.{name} cannot be sent: it is the actor itself, which stays in its "
                "process; return a value, or nothing"
            )

    def _project(self, _: str, value: Any) -> Any:
        return None if self._code.offered(value) else Marker(frames.NEED_CODE)

    def _unpack(self, _: str, value: Any) -> None:
        self._code.unpack(value)


@dataclass(frozen=True)
class Marker:
    """An answer without a value."""

    kind: int


def _raising(error: BaseException) -> Outcome:
    def outcome(request: Request, peer: Peer) -> tuple[int, Sequence[frames.Bytes]]:
        raise error

    return outcome


def _without_our_frames(error: BaseException) -> BaseException:
    """Drop the frames of the job from the head of a traceback: they say nothing to the user."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in _OUR_FILES:
        trace = trace.tb_next
    return error.with_traceback(trace)
