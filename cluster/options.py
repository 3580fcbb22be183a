"""What may be written behind the options of the command line. A parser raises ValueError that says what to write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from . import addresses


def checked(parse: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a callback for click that reports a ValueError as one sentence."""

    def check(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.ClickException(str(error)) from None

    return check


def port_range(text: str) -> str:
    """Return A-B as it is, checked; the worker reads it."""
    addresses.port_range(text)
    return text


def gpu_ids(text: str) -> tuple[str, ...]:
    """Return the ids of 0,1; none for an empty text."""
    ids = tuple(part.strip() for part in text.split(",") if part.strip())
    if len(set(ids)) < len(ids):
        raise ValueError(f"--gpu {text!r} names a GPU twice: write each id once, for instance 0,1.")
    return ids


def number_of_cpus(text: str) -> int:
    """Return N."""
    if not text.isdigit():
        raise ValueError(f"--n-cpu {text!r} is no number of CPUs: write a whole number, for instance 4.")
    return int(text)


def port_number(text: str) -> int:
    """Return a port, 0 among them."""
    if not text.isdigit() or int(text) > 65535:
        raise ValueError(f"--port {text!r} is no port: write a number from 1 to 65535, or 0 for any that is free.")
    return int(text)


def offer_options(command: Any) -> Any:
    """Add what `start` and `connect` say of a worker."""
    for option in (
        click.option("--key-file", type=click.Path(path_type=Path), help="The cluster's key, in a file of mode 0600."),
        click.option("--block", is_flag=True, help="Stay in the foreground, logs on standard output."),
        click.option("--advertise", metavar="IP", help="Address of this machine that the others use."),
        click.option("--ports", metavar="A-B", callback=checked(port_range), help="Actors listen on these ports only."),
        click.option("--gpu", metavar="IDS", default="", callback=checked(gpu_ids), help="GPUs to offer, as 0,1."),
        click.option("--n-cpu", metavar="N", callback=checked(number_of_cpus), help="Slots to offer; all cores by default."),
    ):
        command = option(command)
    return command
