"""@batched: marks a method whose waiting calls are run together. Knows neither arrays nor how calls come to wait.

The mark lies on the function itself: it travels with it, by reference and by value, and `functools.wraps` carries it on.
How trees are stacked and split: stacking.py; which calls form a batch: cluster/job_state.py.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeVar, overload

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

_MARK = "_parl_batching"


@dataclass(frozen=True)
class Batching:
    """When a batch starts; see `batched`."""

    max_size: int = 64
    timeout: float = 0.002

    def __post_init__(self) -> None:
        """Raise TypeError or ValueError that names the argument."""
        if isinstance(self.max_size, bool) or not isinstance(self.max_size, int):
            raise TypeError(f"batched: max_size is {self.max_size!r}, it must be a whole number.")
        if self.max_size < 1:
            raise ValueError(f"batched: max_size is {self.max_size}, it must be at least 1.")
        if isinstance(self.timeout, bool) or not isinstance(self.timeout, int | float):
            raise TypeError(f"batched: timeout is {self.timeout!r}, it must be a number of seconds.")
        if not 0 <= self.timeout < math.inf:
            raise ValueError(f"batched: timeout is {self.timeout} s, it must be 0 or more, and finite.")


@overload
def batched(function: FunctionT, /) -> FunctionT: ...


@overload
def batched(*, max_size: int = 64, timeout: float = 0.002) -> Callable[[FunctionT], FunctionT]: ...


def batched(function: Any = None, /, *, max_size: int = 64, timeout: float = 0.002) -> Any:
    """Run the calls that wait for a method of a remote class together: central inference in one decorator.

        @parl.remote_class
        class Server:
            @parl.batched(max_size=64, timeout=0.002)
            def act(self, obs):  # each caller sends (4, 84, 84); here it is (n, 4, 84, 84), 1 <= n <= 64
                return self.policy(obs)  # (n,): each caller gets its own row

    The arguments are numpy arrays, torch tensors, numbers, None, and dicts, lists and tuples of these, positional or by
    keyword. Each array of shape (...) arrives as (n, ...), each number as an array (n,), None as None; dtypes are kept.
    The result is None, or a tree of arrays or tensors with first axis n. Calls that differ in structure, dtype or shape
    run in batches of their own. If the method raises, all callers of the batch get the error. The calls of one handle
    run in order, also between batched and other methods. A default that a call leaves out is not stacked.

    Args:
        max_size: a batch of so many calls starts at once.
        timeout: seconds from when the actor took in the first call of a batch, after which it starts with the calls
            that are there. 0: it takes what waits, and waits for no more. While the actor is busy calls gather anyway.

    The function itself is returned, only marked: called directly (`Cls._original`, a unit test, `self.act(...)` in the
    actor) it gets what it is given.

    Raises:
        TypeError, ValueError: an impossible setting, or something that is no plain method.
    """
    settings = Batching(max_size, timeout)
    if function is None:
        return lambda method: _marked(method, settings)
    return _marked(function, settings)


def _marked(function: Any, settings: Batching) -> Any:
    name = getattr(function, "__name__", repr(function))
    kind = type(function).__name__
    if isinstance(function, staticmethod | classmethod):
        raise TypeError(f"batched: {name} is a {kind}; put @{kind} above @batched.")
    if not isinstance(function, FunctionType):
        raise TypeError(f"batched is for methods, and {name} is a {kind}.")
    lazy = inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction
    if any(is_lazy(inspect.unwrap(function)) for is_lazy in lazy):
        raise TypeError(f"batched: {name} is a generator or async; a batched method returns arrays.")
    setattr(function, _MARK, settings)
    return function


def batched_methods(cls: type) -> dict[str, Batching]:
    """Return the settings of the batched methods of a class, by name; dunders included."""
    found = {}
    for name in dir(cls):
        value = inspect.getattr_static(cls, name)
        function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        settings = vars(function).get(_MARK) if isinstance(function, FunctionType) else None
        if isinstance(settings, Batching):
            found[name] = settings
    return found
