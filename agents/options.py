"""Turns a dataclass of settings into command line options. Knows click and dataclasses, no settings in particular."""

from __future__ import annotations

import ast
import inspect
import textwrap
import typing
from collections.abc import Callable
from dataclasses import Field, fields
from itertools import pairwise
from typing import Any

import click


def field_docs(settings: type) -> dict[str, str]:
    """Return the docstring line under each field, by field; raises ValueError for a field without one."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(settings)))
    body = tree.body[0].body  # type: ignore[attr-defined]
    docs: dict[str, str] = {}
    for statement, following in pairwise(body):
        if isinstance(statement, ast.AnnAssign) and isinstance(following, ast.Expr):
            docs[statement.target.id] = ast.literal_eval(following.value)  # type: ignore[union-attr]
    missing = [field.name for field in fields(settings) if field.name not in docs]
    if missing:
        raise ValueError(f"{settings.__name__} has no docstring line under {', '.join(missing)}")
    return docs


def options_from(settings: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that gives a click command an option for each field; its value arrives under the field's
    name."""
    kinds, docs = typing.get_type_hints(settings), field_docs(settings)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for field in reversed(fields(settings)):
            function = _option(field, kinds[field.name], docs[field.name])(function)
        return function

    return decorate


def _option(field: Field[Any], kind: type, doc: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    name = field.name.strip("_").replace("_", "-")
    flags = f"--{name}/--no-{name}" if kind is bool else f"--{name}"
    return click.option(flags, field.name, type=kind, default=field.default, show_default=True, help=doc)
