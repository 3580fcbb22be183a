"""The calls of a batch run together: stacked, called once, split, each with its own outcome. Knows no sockets.

Calls that cannot be stacked with the first run in batches of their own, later, and in order for each handle.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from parl_lite import stacking
from parl_lite.errors import ParlError

from .job_state import Request


@dataclass(frozen=True)
class Call:
    """A request with its arguments."""

    request: Request
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class Returned:
    """What one call gives."""

    value: Any


@dataclass(frozen=True)
class Raised:
    """What one call, or its whole batch, raised."""

    error: BaseException


def call_together(instance: Any, what: str, calls: Sequence[Call]) -> Iterator[tuple[Request, Returned | Raised]]:
    """Call a method for several requests of the same name; yield each with its outcome, a batch at a time.

    Args:
        what: "Class.method", for errors.

    SystemExit, the actor's wish to end, is raised.
    """
    fit: list[Call] = []
    signatures: list[Hashable] = []
    for call in calls:
        try:
            signatures.append(_signature(call, what))
            fit.append(call)
        except Exception as error:
            yield call.request, _told(error)
    for places in stacking.alike(signatures, [call.request.peer for call in fit]):
        batch = [fit[place] for place in places]
        yield from zip([call.request for call in batch], _outcomes(instance, what, batch), strict=True)


def _signature(call: Call, what: str) -> Hashable:
    if not stacking.has_leaves((call.args, call.kwargs)):
        raise ParlError(f"{what} is batched, and was called with nothing to stack: give it an array or a number.")
    parts = {"args": call.args, "kwargs": call.kwargs}
    return tuple(stacking.signature(tree, f"{what} is batched: its {name}") for name, tree in parts.items())


def _outcomes(instance: Any, what: str, batch: Sequence[Call]) -> Sequence[Returned | Raised]:
    try:
        args, kwargs = stacking.stack([(call.args, call.kwargs) for call in batch])
        result = getattr(instance, batch[0].request.name)(*args, **kwargs)
    except SystemExit:
        raise
    except BaseException as error:
        return [Raised(error)] * len(batch)
    try:
        return [Returned(row) for row in stacking.split(result, len(batch), f"{what} is batched: its result")]
    except Exception as error:
        return [_told(error)] * len(batch)


def _told(error: Exception) -> Raised:
    """Return an error of ours without its traceback: it says all there is to say."""
    return Raised(error.with_traceback(None))
