"""Turns a dataclass of settings into command line options. Knows click and dataclasses, no settings in particular.

A dataclass may inherit from others. Its options stand under headings: the first sentence of the docstring of the class
that brought each field in.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import Field, fields, is_dataclass
from itertools import pairwise
from typing import Any, Literal, get_args, get_origin

import click
from click.core import ParameterSource

from .bounds import kinds_of, plain_kind


class GroupedOption(click.Option):
    """An option that stands under a heading."""

    def __init__(self, *args: Any, heading: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.heading = heading


class GroupedCommand(click.Command):
    """A command whose help shows options under their headings, those without one first."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write them."""
        records: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                records.setdefault(getattr(parameter, "heading", "Options"), []).append(record)
        for heading in sorted(records, key=lambda each: each != "Options"):
            with formatter.section(heading):
                formatter.write_dl(records[heading])


def field_docs(settings: type) -> dict[str, str]:
    """Return the docstring line under each field, by field; where a class only changes a default, that of its base.

    Raises ValueError for a field without one.
    """
    docs: dict[str, str] = {}
    for cls in reversed(settings.__mro__):
        if is_dataclass(cls):
            docs |= _own_docs(cls)
    missing = [field.name for field in fields(settings) if field.name not in docs]
    if missing:
        raise ValueError(f"{settings.__name__} has no docstring line under {', '.join(missing)}")
    return docs


def _own_docs(cls: type) -> dict[str, str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    body = tree.body[0].body  # type: ignore[attr-defined]
    docs: dict[str, str] = {}
    for statement, following in pairwise(body):
        if isinstance(statement, ast.AnnAssign) and isinstance(following, ast.Expr):
            docs[statement.target.id] = ast.literal_eval(following.value)  # type: ignore[union-attr]
    return docs


def field_headings(settings: type) -> dict[str, str]:
    """Return the first sentence of the docstring of the class that brought in each field, in the order of the classes."""
    owners: dict[str, type] = {}
    for cls in filter(is_dataclass, settings.__mro__):
        own = inspect.get_annotations(cls)
        owners |= {field.name: cls for field in fields(cls) if field.name in own}
    ordered = sorted(owners.items(), key=lambda item: settings.__mro__.index(item[1]))
    return {name: (cls.__doc__ or cls.__name__).splitlines()[0].partition(".")[0] for name, cls in ordered}


def options_from(settings: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that gives a click command an option for each field; its value arrives under the field's
    name."""
    kinds, docs, headings = kinds_of(settings), field_docs(settings), field_headings(settings)
    by_name = {field.name: field for field in fields(settings)}

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in reversed(headings):
            function = _option(by_name[name], kinds[name], docs[name], headings[name])(function)
        return function

    return decorate


def option_name(field: str) -> str:
    """Return the name of the option for a field: `lambda_` is "--lambda"."""
    return "--" + field.strip("_").replace("_", "-")


def given_values(context: click.Context, settings: type) -> dict[str, Any]:
    """Return the values of the fields whose options the user wrote, by field."""
    names = [field.name for field in fields(settings)]
    return {name: context.params[name] for name in names if context.get_parameter_source(name) is not ParameterSource.DEFAULT}


def _option(field: Field[Any], kind: Any, doc: str, heading: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    name, plain = option_name(field.name), plain_kind(kind)
    flags = f"{name}/--no-{name[2:]}" if plain is bool else name
    chosen = click.Choice([str(each) for each in get_args(plain)]) if get_origin(plain) is Literal else plain
    shown = field.default is not None
    return click.option(
        flags, field.name, cls=GroupedOption, heading=heading, type=chosen, default=field.default, show_default=shown, help=doc
    )
