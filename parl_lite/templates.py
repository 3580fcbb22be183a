"""Control messages <-> the bytes that pyarrow would write for them, without pyarrow. Knows the catalogue and nothing of sockets.

A message's *form* is all that its values do not change: the lengths of its texts and tuples, and which numbers are missing.
Messages of one kind and form share the head of their Arrow message and the layout of its body; both are kept:

    form       layout of the body for `struct`, for instance "<8s5s3xq": a text of 5 bytes (its offsets, its letters), a number
    items      what `struct` packs in that layout: values, and between them offsets that follow from the form

Reading takes exactly what writing gives: a head that is known, a body of its size, offsets as they must be. All else is no
error but left to pyarrow's full check, and what that finds to be of an unknown form is known from then on.
"""

from __future__ import annotations

import operator
import struct
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, Protocol

from parl_lite.arrow_head import Skeleton, head_of
from parl_lite.messages import Message, hints_of, is_optional, without_none

_KEPT_FORMS = 1024
_PAIR = struct.Struct("<ii")
_NO_VALUE = bytes(8)
Take = Callable[[], Any]


class NoTemplate(TypeError):
    """A field of a kind that is left to pyarrow."""


@dataclass
class Outline:
    """What a form says of the columns of a message: for the head, and which items are no values."""

    nodes: list[int]
    sizes: list[int]
    fixed: list[bool]


class Column(Protocol):
    """One field of a message, which is one Arrow column of one row."""

    def write(self, value: Any, form: list[str], items: list[Any]) -> None:
        """Add the layout and the items of a value."""

    def read(self, take: Take) -> Any:
        """Return the value; `take` gives the items one after the other."""

    def outline(self, value: Any, outline: Outline) -> None:
        """Add what the form of this value says."""


class NumberColumn:
    """An int, float or bool."""

    def __init__(self, code: str, size: int) -> None:
        self._code, self._size = code, size

    def write(self, value: Any, form: list[str], items: list[Any]) -> None:
        form.append(self._code)
        items.append(value)

    def read(self, take: Take) -> Any:
        return take()

    def outline(self, value: Any, outline: Outline) -> None:
        outline.nodes += (1, 0)
        outline.sizes += (0, self._size)
        outline.fixed.append(False)


class BoolColumn(NumberColumn):
    """A bool: one bit."""

    def read(self, take: Take) -> bool:
        number: int = take()
        if number > 1:
            raise ValueError("more than one bit")
        return number == 1


class OptionalColumn:
    """A number that may be missing."""

    def __init__(self, number: NumberColumn) -> None:
        self._number = number

    def write(self, value: Any, form: list[str], items: list[Any]) -> None:
        if value is not None:
            self._number.write(value, form, items)
            return
        form.append("8s8x")
        items.append(_NO_VALUE)

    def read(self, take: Take) -> Any:
        value = take()
        return None if isinstance(value, bytes) else value

    def outline(self, value: Any, outline: Outline) -> None:
        if value is not None:
            self._number.outline(value, outline)
            return
        outline.nodes += (1, 1)
        outline.sizes += (1, 8)
        outline.fixed.append(True)


class TextColumn:
    """A str: where it begins and ends, its UTF-8."""

    def write(self, value: str, form: list[str], items: list[Any]) -> None:
        data = value.encode()
        form.append(_text_form(len(data)))
        items += (_offsets_to(len(data)), data)

    def read(self, take: Take) -> str:
        take()
        text: str = take().decode()
        return text

    def outline(self, value: str, outline: Outline) -> None:
        outline.nodes += (1, 0)
        outline.sizes += (0, 8, len(value.encode()))
        outline.fixed += (True, False)


class TextsColumn:
    """A tuple of str: how many, where each ends, their UTF-8 in a row."""

    def write(self, value: Sequence[str], form: list[str], items: list[Any]) -> None:
        texts = [text.encode() for text in value]
        ends = [*accumulate(map(len, texts), initial=0)]
        form.append(_texts_form(len(texts), ends[-1]))
        items += (_offsets_to(len(texts)), struct.pack(f"<{len(ends)}i", *ends), b"".join(texts))

    def read(self, take: Take) -> tuple[str, ...]:
        _, n = _PAIR.unpack(take())
        ends = struct.unpack(f"<{n + 1}i", take())
        data = take()
        if ends[0] != 0 or ends[-1] != len(data) or list(ends) != sorted(ends):
            raise ValueError("texts that overlap")
        return tuple([data[begin:end].decode() for begin, end in pairwise(ends)])

    def outline(self, value: Sequence[str], outline: Outline) -> None:
        outline.nodes += (1, 0, len(value), 0)
        outline.sizes += (0, 8, 0, 4 * (len(value) + 1), sum(len(text.encode()) for text in value))
        outline.fixed += (True, False, False)


class PartColumn:
    """A part: its own columns one after the other."""

    def __init__(self, kind: type) -> None:
        self._kind = kind
        self._columns = columns_of(kind)

    def write(self, value: Any, form: list[str], items: list[Any]) -> None:
        for name, column in self._columns:
            column.write(getattr(value, name), form, items)

    def read(self, take: Take) -> Any:
        return self._kind(*[column.read(take) for _, column in self._columns])

    def outline(self, value: Any, outline: Outline) -> None:
        outline.nodes += (1, 0)
        outline.sizes.append(0)
        for name, column in self._columns:
            column.outline(getattr(value, name), outline)


@lru_cache(_KEPT_FORMS)
def _text_form(n_bytes: int) -> str:
    return f"8s{n_bytes}s{-n_bytes % 8}x"


@lru_cache(_KEPT_FORMS)
def _texts_form(n: int, n_bytes: int) -> str:
    ends = 4 * (n + 1)
    return f"8s{ends}s{-ends % 8}x{n_bytes}s{-n_bytes % 8}x"


@lru_cache(_KEPT_FORMS)
def _offsets_to(end: int) -> bytes:
    return _PAIR.pack(0, end)


def columns_of(kind: type) -> list[tuple[str, Column]]:
    """Return the columns of a message or part by name; raises NoTemplate."""
    return [(name, _column_for(hint)) for name, hint in hints_of(kind).items()]


def _column_for(hint: Any) -> Column:
    if is_optional(hint):
        number = _NUMBERS.get(without_none(hint))
        if number is None or isinstance(number, BoolColumn):
            raise NoTemplate(hint)
        return OptionalColumn(number)
    if typing.get_origin(hint) is tuple:
        if typing.get_args(hint)[0] is not str:
            raise NoTemplate(hint)
        return TextsColumn()
    if hint is str:
        return TextColumn()
    return _NUMBERS.get(hint) or PartColumn(hint)


_NUMBERS = {int: NumberColumn("q", 8), float: NumberColumn("d", 8), bool: BoolColumn("B7x", 1)}


@dataclass(frozen=True)
class Template:
    """What all messages of one form have in common."""

    head: bytes
    body: struct.Struct
    fixed_of: Callable[[Sequence[Any]], Any]
    """Gives those of all items that are no values."""
    fixed: Any


class Templates:
    """The templates of one kind of message. Threads may share it: each access is atomic, and what is lost is made anew."""

    def __init__(self, kind: type, example: Message, data: bytes) -> None:
        """Learn from an example and what pyarrow wrote for it; raises NoTemplate when it is laid out in another way."""
        self._kind = kind
        self._columns = columns_of(kind)
        self._skeleton = Skeleton(head_of(data))
        self._by_form: dict[str, Template] = {}
        self._by_head: dict[bytes, Template] = {}
        if self.write(example) != data:
            raise NoTemplate(f"this pyarrow lays out {kind.__name__} in another way")

    def write(self, message: Message) -> bytes:
        """Return the Arrow message."""
        form: list[str] = ["<"]
        items: list[Any] = []
        for name, column in self._columns:
            column.write(getattr(message, name), form, items)
        key = "".join(form)
        template = self._by_form.get(key) or self._learn(key, items, message)
        return template.head + template.body.pack(*items)

    def read(self, data: bytes) -> Message | None:
        """Return the message, None when this is nothing that `write` gives or of no form that is known."""
        head = head_of(data)
        template = self._by_head.get(head)
        if template is None or len(data) != len(head) + template.body.size:
            return None
        items = template.body.unpack_from(data, len(head))
        if template.fixed_of(items) != template.fixed:
            return None
        take = iter(items).__next__
        try:
            return typing.cast(Message, self._kind(*[column.read(take) for _, column in self._columns]))
        except ValueError:
            return None

    def _learn(self, form: str, items: Sequence[Any], message: Message) -> Template:
        outline = Outline([], [], [])
        for name, column in self._columns:
            column.outline(getattr(message, name), outline)
        fixed = [i for i, is_fixed in enumerate(outline.fixed) if is_fixed]
        fixed_of: Callable[[Sequence[Any]], Any] = operator.itemgetter(*fixed) if fixed else _nothing
        template = Template(self._skeleton.fill(outline.nodes, outline.sizes), struct.Struct(form), fixed_of, fixed_of(items))
        if len(self._by_form) >= _KEPT_FORMS:
            self._by_form.clear()
            self._by_head.clear()
        self._by_form[form] = self._by_head[template.head] = template
        return template


def _nothing(items: Sequence[Any]) -> None:
    return None
