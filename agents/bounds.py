"""What values a setting may have, said in its type: `n_actors: Count = 2`. Knows dataclasses, no setting in particular."""

from __future__ import annotations

import math
import types
import typing
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, get_args, get_origin


@dataclass(frozen=True)
class Bounds:
    """The numbers between two, with both or without the lower one."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    """Whether `low` itself is too low."""

    def __contains__(self, value: float) -> bool:
        return (value > self.low if self.above else value >= self.low) and value <= self.high

    def __str__(self) -> str:
        """Return what goes behind "it must be"."""
        if self.high < math.inf:
            return f"{'above' if self.above else 'from'} {self.low:g} {'and at most' if self.above else 'to'} {self.high:g}"
        return f"{'above' if self.above else 'at least'} {self.low:g}"


Count = Annotated[int, Bounds(1)]
"""A whole number from 1 on."""
CountOrZero = Annotated[int, Bounds(0)]
"""A whole number from 0 on."""
Positive = Annotated[float, Bounds(0, above=True)]
"""A number above 0."""
NotNegative = Annotated[float, Bounds(0)]
"""A number from 0 on."""
Fraction = Annotated[float, Bounds(0, 1)]
"""A number from 0 to 1."""


def kinds_of(settings: type) -> dict[str, Any]:
    """Return the type of each field of a dataclass, by name, bounds included."""
    return typing.get_type_hints(settings, include_extras=True)


def check(settings: Any) -> None:
    """Raise ValueError or TypeError that names the first field whose value is not of its type, or out of bounds."""
    kinds = kinds_of(type(settings))
    for field in fields(settings):
        _check(field.name, getattr(settings, field.name), kinds[field.name])


def plain_kind(kind: Any) -> Any:
    """Return a type without its bounds, and without None."""
    if get_origin(kind) is Annotated:
        return plain_kind(get_args(kind)[0])
    if is_optional(kind):
        return plain_kind(next(each for each in get_args(kind) if each is not types.NoneType))
    return kind


def is_optional(kind: Any) -> bool:
    """Return whether a type is that of something or None."""
    return get_origin(kind) in (typing.Union, types.UnionType) and types.NoneType in get_args(kind)


def _check(name: str, value: Any, kind: Any) -> None:
    if value is None and is_optional(kind):
        return
    plain = plain_kind(kind)
    if get_origin(plain) is Literal:
        if value not in get_args(plain):
            raise ValueError(f"{name} is {value!r}: it must be one of {', '.join(map(str, get_args(plain)))}.")
        return
    _check_type(name, value, plain)
    for bounds in _bounds_of(kind):
        if value not in bounds:
            raise ValueError(f"{name} is {value!r}: it must be {bounds}.")


def _check_type(name: str, value: Any, kind: Any) -> None:
    words = {int: "a whole number", float: "a number", bool: "True or False", str: "text"}
    if kind not in words:
        return
    accepted = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{name} is {value!r}: it must be {words[kind]}.")
    if kind is float and math.isnan(value):
        raise ValueError(f"{name} is {value!r}: it must be a number.")


def _bounds_of(kind: Any) -> list[Bounds]:
    if is_optional(kind):
        return [bounds for each in get_args(kind) for bounds in _bounds_of(each)]
    return [each for each in get_args(kind) if isinstance(each, Bounds)]
