"""The master's report as tables for people. Pure: knows the report's fields (see `MasterState.report`), no more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

Report = dict[str, Any]


def view(report: Report, address: str) -> Iterator[RenderableType]:
    """Yield a headline, then a table of each kind there is: workers, jobs, waiting wishes, last deaths.

    The address is where the reader reaches the master; the report says only where that listens.
    """
    yield Text(headline(report, address))
    rows = {
        "Workers": _workers(report),
        "Jobs": _jobs(report),
        "Waiting": _wishes(report),
        "Last deaths": _deaths(report),
    }
    for title, (columns, lines) in rows.items():
        if lines:
            yield _table(title, columns, lines)
    if not report["workers"]:
        yield Text(f"No worker has joined: add this machine with `parl-lite connect {address}`.")


def headline(report: Report, address: str) -> str:
    """Return one line that says how much there is and how much of it is used."""
    n_jobs = sum(len(worker["jobs"]) for worker in report["workers"])
    return (
        f"Cluster {report['cluster']} at {address}, parl_lite {report['version']}: "
        f"{_used(report, 'cpu')} CPUs and {_used(report, 'gpu')} GPUs in use, "
        f"{_amount(len(report['workers']), 'worker')}, {_amount(n_jobs, 'job')}, "
        f"{_amount(len(report['clients']), 'client')}, {_amount(report['n_wishes'], 'wish', 'wishes')} waiting."
    )


def _workers(report: Report) -> tuple[str, list[list[str]]]:
    lines = [
        [
            f"{worker['host']} {worker['pid']}",
            _worker_state(worker),
            f"{worker['n_cpu'] - worker['free_cpu']}/{worker['n_cpu']}",
            _gpus(worker),
            f"{worker['memory'] / 2**30:.1f} GiB",
            str(len(worker["jobs"])),
            f"{worker['version']}, Python {worker['python']}, numpy {worker['numpy']}",
        ]
        for worker in report["workers"]
    ]
    return "host pid|state|CPUs used|GPUs used|memory|jobs|versions", lines


def _jobs(report: Report) -> tuple[str, list[list[str]]]:
    lines = [
        [
            job["actor"],
            job["job"],
            f"{worker['host']} {job['pid'] or '-'}",
            job["state"],
            str(job["n_cpu"]),
            ", ".join(job["gpus"]),
        ]
        for worker in report["workers"]
        for job in worker["jobs"]
    ]
    return "actor|job|host pid|state|CPUs|GPUs", lines


def _wishes(report: Report) -> tuple[str, list[list[str]]]:
    lines = [[wish["actor"], f"{wish['waited']:.1f} s", wish["reason"]] for wish in report["wishes"]]
    hidden = report["n_wishes"] - len(lines)
    return "actor|waits for|because", lines + ([[f"and {hidden} more", "", ""]] if hidden else [])


def _deaths(report: Report) -> tuple[str, list[list[str]]]:
    lines = [
        [death["actor"], death["job"], f"{death['host']} {death['pid'] or '-'}", f"its process {death['reason']}"]
        for death in report["deaths"]
    ]
    return "actor|job|host pid|what happened", lines


def _worker_state(worker: Report) -> str:
    if not worker["connected"]:
        return "out of reach"
    return "leaving" if worker["draining"] else "works"


def _gpus(worker: Report) -> str:
    used = [gpu for gpu in worker["gpus"] if gpu not in worker["free_gpus"]]
    return f"{len(used)}/{len(worker['gpus'])}" + (f" ({', '.join(used)})" if used else "")


def _used(report: Report, what: str) -> str:
    return f"{report[f'n_{what}'] - report[f'free_{what}']} of {report[f'n_{what}']}"


def _table(title: str, columns: str, lines: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in columns.split("|"):
        table.add_column(name, overflow="fold")
    for line in lines:
        table.add_row(*(Text(cell) for cell in line))  # Text: a user's name is no markup
    return table


def _amount(n: int, noun: str, plural: str = "") -> str:
    return f"{n} {noun if n == 1 else plural or noun + 's'}"
