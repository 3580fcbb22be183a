"""Runs all benchmarks one after the other, and writes docs/performance.md and its picture from what they measured.

python tests/benchmarks [--quick] [--only NAME ...] [--peer ray] [--into FOLDER]

Each benchmark is a script of its own that prints a table, and as its last line a JSON object. --quick measures too little
to be believed, to see that all of it runs; it writes nothing unless it is told where. --only takes the other figures from
the last run.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
from performance import write

_HERE = Path(__file__).parent
_DOCS = _HERE.parents[1] / "docs"
_TIME_LIMIT = 300

SCRIPTS: dict[str, tuple[list[str], list[str]]] = {
    "calls": ([], ["--rounds", "3", "--calls", "300"]),
    "transports": ([], ["--rounds", "3", "--calls", "300"]),
    "codec": ([], ["--seconds", "0.02"]),
    "arrays": ([], ["--rounds", "1"]),
    "central_inference": ([], ["--seconds", "0.3", "--callers", "4"]),
    "actors": ([], ["--actors", "8", "--handles", "50", "--rounds", "3"]),
    "master": ([], ["--workers", "50", "--idle-seconds", "1"]),
    "replay": ([], ["--rounds", "5", "--seconds", "0.3"]),
    "scaling": ([], ["--seconds", "0.1"]),
}
"""The options of each, in full and quick."""


def run(name: str, options: list[str]) -> dict[str, Any] | None:
    """Run one and return what it measured; None, after a word, when it failed."""
    print(f"== {name} {' '.join(options)}", flush=True)
    begin = time.monotonic()
    command = [sys.executable, str(_HERE / f"{name}.py"), *options]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=_TIME_LIMIT)
    except subprocess.TimeoutExpired:
        print(f"   {name} was not done after {_TIME_LIMIT} s", flush=True)
        return None
    *table, last = done.stdout.splitlines() or [""]
    print("\n".join(table))
    print(f"   ({time.monotonic() - begin:.0f} s)", flush=True)
    if done.returncode:
        print(f"   {name} ended with exit code {done.returncode}", flush=True)
        return None
    found: dict[str, Any] = json.loads(last)
    return found


def known(path: Path) -> dict[str, Any]:
    """Return the figures of the last run."""
    return json.loads(path.read_text()) if path.exists() else {}


@click.command()
@click.option("--quick", is_flag=True, help="Only see that all of it runs.")
@click.option("--only", multiple=True, type=click.Choice(list(SCRIPTS)), help="Run this one; may be given several times.")
@click.option("--peer", multiple=True, type=click.Choice(["ray"]), help="Measure this beside, if it is installed.")
@click.option("--into", type=click.Path(path_type=Path), default=None, help="Where to write; docs/ by default.")
def main(quick: bool, only: tuple[str, ...], peer: tuple[str, ...], into: Path | None) -> None:
    """Run the benchmarks."""
    into = into or (None if quick else _DOCS)
    figures = known(into / "performance.json") if into is not None else {}
    failed = []
    for name in only or SCRIPTS:
        found = run(name, SCRIPTS[name][quick])
        if found is None:
            failed.append(name)
        else:
            figures[name] = found
    for name in peer:
        if importlib.util.find_spec(name) is None:
            print(f"{name} is not installed: nothing to compare with")
            continue
        found = run("scaling", ["--peer", name, *SCRIPTS["scaling"][quick]])
        figures |= {} if found is None else {name: found}
    if into is not None:
        write(figures, into)
        print(f"written: {into / 'performance.md'}, {into / 'performance.png'}")
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
