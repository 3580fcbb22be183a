"""The catalogue of control messages is the whole definition of the protocol."""

from __future__ import annotations

import dataclasses
import inspect
import typing

import pyarrow as pa
import pytest
from builders import C, place, worker

from parl_lite import messages
from parl_lite.messages import CATALOGUE, PARTS, Needs, RunningJob, Versions, hints_of, schema_of

KINDS = [*CATALOGUE.values(), *PARTS]
SENDERS = ("a worker", "a client", "anybody", "the master")

VERBS = ("Join", "Leave", "Want", "Forget", "Release", "Ask", "Stop", "Start", "End", "Drain")
"""What a peer asks for begins with what is to be done."""
NEWS = ("Ready", "Ended", "Wrote", "Granted", "Waits", "Refused", "Lost", "Printed")
"""What it tells ends with what happened."""
GREETINGS = {"Welcome", "Refused", "Status", "Goodbye"}


def sections() -> dict[str, list[str]]:
    """Return {sender: names of its messages}, from the headings of the file."""
    found: dict[str, list[str]] = {}
    for line in inspect.getsource(messages).splitlines():
        if line.startswith("# --- "):
            names = found.setdefault(line.removeprefix("# --- ").rstrip(" -").removeprefix("from "), [])
        elif line.startswith("class "):
            names.append(line.removeprefix("class ").rstrip(":"))
    return found


def test_every_class_of_the_module_is_a_message_of_the_catalogue_or_a_part() -> None:
    classes = [kind for _, kind in inspect.getmembers(messages, inspect.isclass) if kind.__module__ == messages.__name__]
    assert {kind.__name__: kind for kind in classes} == {**CATALOGUE, **{kind.__name__: kind for kind in PARTS}}


def test_every_message_stands_under_the_heading_of_its_sender() -> None:
    found = sections()
    assert found.keys() == {"parts", *SENDERS}
    assert found["parts"] == [kind.__name__ for kind in PARTS]
    assert [name for sender in SENDERS for name in found[sender]] == list(CATALOGUE)


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_name_is_what_the_sender_says(name: str) -> None:
    assert name.startswith(VERBS) or name.endswith(NEWS) or name in GREETINGS
    assert not name.endswith(("Msg", "Message", "Info", "Data", "Request", "Reply", "Event"))


@pytest.mark.parametrize("kind", KINDS)
def test_messages_and_parts_are_frozen_and_say_what_they_are(kind: type) -> None:
    assert dataclasses.is_dataclass(kind)
    assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert kind.__doc__
    assert kind.__doc__.rstrip().endswith((".", "?"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_has_the_fields_in_order_and_only_an_optional_one_may_be_null(kind: type) -> None:
    optional = {name for name, hint in hints_of(kind).items() if type(None) in typing.get_args(hint)}
    schema = schema_of(kind)
    assert schema.names == [field.name for field in dataclasses.fields(kind)]
    assert {field.name for field in schema if field.nullable} == optional


def test_the_schema_of_a_message_with_parts_lists_and_optional_fields() -> None:
    needs = pa.struct([pa.field("n_cpu", pa.int64(), False), pa.field("n_gpu", pa.int64(), False), ("max_memory", pa.int64())])
    text, texts = pa.string(), pa.list_(pa.field("item", pa.string(), False))
    columns = {"job": text, "client": text, "name": text, "needs": needs, "gpus": texts, "show_logs": pa.bool_()}
    assert schema_of(messages.StartJob) == pa.schema([pa.field(name, kind, False) for name, kind in columns.items()])
    assert schema_of(messages.JoinAgain) == pa.schema([])


def test_versions_that_agree_have_no_conflict() -> None:
    assert Versions(1, "0.1", "3.11", "2").conflict_with(Versions(1, "0.1", "3.11", "2")) == ""


def test_a_conflict_names_what_differs_on_both_sides() -> None:
    here, there = Versions(1, "0.1", "3.11", "2"), Versions(1, "0.2", "3.10", "2")
    assert here.conflict_with(there) == "package 0.1 here and 0.2 there, python 3.11 here and 3.10 there"


@pytest.mark.parametrize("needs", [(-1, 0, None), (1, -1, None), (1, 0, -1)])
def test_nothing_needs_less_than_nothing(needs: tuple[int, int, int | None]) -> None:
    with pytest.raises(ValueError, match="less than nothing"):
        Needs(*needs)


def test_a_worker_offers_no_negative_cpus_and_each_gpu_once() -> None:
    with pytest.raises(ValueError, match="cannot offer -1 CPUs"):
        worker(n_cpu=-1)
    with pytest.raises(ValueError, match="a GPU is named twice"):
        worker(gpus=("0", "1", "0"))


def test_a_running_job_names_its_client_in_hexadecimal_and_each_gpu_once() -> None:
    rest = ("Actor", Needs(1, 0, None))
    with pytest.raises(ValueError, match="hexadecimal"):
        RunningJob("e.1", "nobody", *rest, (), place("w").pid, (), "")
    with pytest.raises(ValueError, match="a GPU is named twice"):
        RunningJob("e.1", C.hex(), *rest, ("0", "0"), 1, (), "")
