"""Control messages <-> two frames of bytes. Bounds checked, never pickle; knows the catalogue and nothing of sockets.

    frame 1   "PLT1" then the message's class name in ASCII
    frame 2   one Arrow IPC record batch of one row, in the schema that the catalogue derives for that class
              (of no row and no column for a message without fields)

Both sides derive the schema from the same catalogue, so it does not travel; the join messages carry the protocol version.
A compressed batch is refused: a few kilobytes of it could unfold to any size.

What a master says and hears all day is written and read by templates, without pyarrow; the bytes are the same. Reading by
a template takes only what a template writes; everything else goes through pyarrow and its full validation.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from parl_lite.arrow_head import is_compressed
from parl_lite.messages import CATALOGUE, Message, hints_of, is_optional, schema_of, without_none
from parl_lite.templates import NoTemplate, Templates

MAGIC = b"PLT1"
_HEADS = {kind: MAGIC + name.encode() for name, kind in CATALOGUE.items()}
_KINDS = {head: kind for kind, head in _HEADS.items()}
_UNKNOWN = object()
_templates: dict[type, Any] = {}
"""The templates of the kinds that were seen; None for one that is left to pyarrow."""


class WireError(ValueError):
    """Bytes that are no message of this protocol: the peer's fault, never ours."""


def encode(message: Message) -> list[bytes]:
    """Return the two frames of a message."""
    kind: type = type(message)
    templates = _templates.get(kind, _UNKNOWN)
    if templates is _UNKNOWN:
        return [_HEADS[kind], _first_encoded(kind, message)]
    return [_HEADS[kind], _encoded(kind, message) if templates is None else templates.write(message)]


def _encoded(kind: type, message: Message) -> bytes:
    """Write by pyarrow."""
    schema = schema_of(kind)
    plain = _plain_form(kind)(message)
    arrays = [pa.array([value], type=field.type) for value, field in zip(plain.values(), schema, strict=True)]
    body: bytes = pa.RecordBatch.from_arrays(arrays, schema=schema).serialize().to_pybytes()
    return body


def _first_encoded(kind: type, message: Message) -> bytes:
    """Write the first message of a kind by pyarrow, and from then on by templates, if the kind has any."""
    body = _encoded(kind, message)
    try:
        _templates[kind] = Templates(kind, message, body)
    except NoTemplate:
        _templates[kind] = None
    return body


def decode(frames: Sequence[bytes], limit: int) -> Message:
    """Return the message of two frames of at most `limit` bytes; raises WireError for anything else."""
    if len(frames) != 2:
        raise WireError(f"a control message has 2 frames, not {len(frames)}")
    head, body = frames
    if len(head) > 64 or head[: len(MAGIC)] != MAGIC:
        raise WireError(f"no parl_lite control message: it begins with {bytes(head[:16])!r}")
    if len(body) > limit:
        raise WireError(f"a control message of {len(body)} bytes is over the limit of {limit}")
    kind = _KINDS.get(head)
    if kind is None:
        raise WireError(f"unknown control message {bytes(head[len(MAGIC) :])!r}")
    templates = _templates.get(kind)
    message = templates.read(body) if templates else None
    return _validated(kind, body) if message is None else message


def _validated(kind: type, body: bytes) -> Message:
    """Read by pyarrow, whatever the bytes are; write it once, so that the next of its form is read by a template."""
    try:
        message = typing.cast(Message, _typed_form(kind)(_row(kind, body)))
    except (pa.ArrowException, OSError, EOFError, ValueError, TypeError, OverflowError) as error:
        raise WireError(f"the body of {kind.__name__} cannot be read: {error}") from None
    if _templates.get(kind, _UNKNOWN) is not None:
        encode(message)
    return message


def _row(kind: type, body: bytes) -> dict[str, Any]:
    schema = schema_of(kind)
    message = pa.ipc.read_message(pa.py_buffer(body))
    if message.type != "record batch" or is_compressed(message.metadata.to_pybytes()):
        raise WireError("it is no plain record batch")
    batch = pa.ipc.read_record_batch(message, schema)
    batch.validate(full=True)
    if batch.num_rows != 1 and schema.names:
        raise WireError(f"it has {batch.num_rows} rows instead of 1")
    return {name: column[0].as_py() for name, column in zip(schema.names, batch.columns, strict=True)}


@cache
def _plain_form(hint: Any) -> Callable[[Any], Any]:
    """Return a function from a value of this type to what pyarrow takes."""
    if is_optional(hint):
        inner = _plain_form(without_none(hint))
        return lambda value: None if value is None else inner(value)
    if typing.get_origin(hint) is tuple:
        inner = _plain_form(typing.get_args(hint)[0])
        return lambda values: [inner(value) for value in values]
    if hint in (int, float, bool, str):
        return lambda value: value
    forms = [(name, _plain_form(inner)) for name, inner in hints_of(hint).items()]
    return lambda part: {name: form(getattr(part, name)) for name, form in forms}


@cache
def _typed_form(hint: Any) -> Callable[[Any], Any]:
    """Return the inverse of `_plain_form`, which refuses a missing value."""
    if is_optional(hint):
        inner = _typed_form(without_none(hint))
        return lambda value: None if value is None else inner(value)
    if typing.get_origin(hint) is tuple:
        inner = _typed_form(typing.get_args(hint)[0])
        return lambda values: tuple([inner(value) for value in _given(values)])
    if hint in (int, float, bool, str):
        return _given
    forms = [(name, _typed_form(inner)) for name, inner in hints_of(hint).items()]
    return lambda row: hint(**{name: form(_given(row)[name]) for name, form in forms})


def _given(value: Any) -> Any:
    if value is None:
        raise WireError("a value is missing that must be there")
    return value
