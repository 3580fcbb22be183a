"""The page about performance, and its picture, from what the benchmarks measured. Measures nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Figures = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One line of the table: a figure, its floor, their ratio, the goal."""

    what: str
    benchmark: str
    ours: Callable[[Figures], str]
    floor: Callable[[Figures], str]
    ratio: Callable[[Figures], str]
    goal: str
    reached: Callable[[Figures], bool]


def _by_time(what: str, name: str, benchmark: str, most: float) -> Row:
    """A row of microseconds: at most so many times the floor."""
    return Row(
        what,
        benchmark,
        lambda found: f"{found[name]['us']:,.1f} us",
        lambda found: f"{found[name]['floor_us']:,.1f} us",
        lambda found: f"{found[name]['ratio']:.2f} x",
        f"<= {most:g} x",
        lambda found: found[name]["ratio"] <= most,
    )


def _by_rate(what: str, name: str, benchmark: str, least: float) -> Row:
    """A row of calls a second: at least so many times the floor."""
    return Row(
        what,
        benchmark,
        lambda found: f"{1e6 / found[name]['us']:,.0f} /s",
        lambda found: f"{1e6 / found[name]['floor_us']:,.0f} /s",
        lambda found: f"{1 / found[name]['ratio']:.2f} x",
        f">= {least:g} x",
        lambda found: 1 / found[name]["ratio"] >= least,
    )


def _by_speed(what: str, name: str, goal: str, least: float) -> Row:
    """A row of milliseconds whose ratio is a speed: the floor's time over ours."""
    return Row(
        what,
        "arrays",
        lambda found: f"{found[name]['ms']:,.2f} ms",
        lambda found: f"{found[name]['floor_ms']:,.2f} ms",
        lambda found: f"{found[name]['ratio']:.2f} x",
        goal,
        lambda found: found[name]["ratio"] >= least,
    )


def _alone(what: str, benchmark: str, ours: Callable[[Figures], str], goal: str, reached: Callable[[Figures], bool]) -> Row:
    """A row without a floor."""
    return Row(what, benchmark, ours, lambda found: "", lambda found: "", goal, reached)


def _best_central(found: Figures) -> float:
    return max(found["central"].values()) / found["local"]


ROWS = [
    _by_time("blocking call without argument, bare pyzmq ping-pong", "blocking no-op", "calls", 1.2),
    _by_time("blocking call, array of 64 B there and back", "blocking, 64 B array", "calls", 1.2),
    _by_rate("calls a second, pipelined, bare pyzmq pipelined", "pipelined", "calls", 0.5),
    _by_time("blocking call over tcp, the same of pyzmq", "tcp, blocking", "transports", 1.2),
    _by_rate("pipelined over tcp", "tcp, pipelined", "transports", 0.5),
    _by_time("blocking call over tcp with a key, CURVE of pyzmq", "tcp, CURVE, blocking", "transports", 1.2),
    _by_rate("pipelined over tcp with a key", "tcp, CURVE, pipelined", "transports", 0.5),
    _by_speed("rollout of 0.5 MB there and back, bare pyzmq frame", "0.5 MB there and back", ">= 0.9 x its speed", 0.9),
    _by_speed("100 MB argument, memcpy", "100 MB argument", ">= 0.5 x its speed", 0.5),
    _by_speed("100 MB result, memcpy", "100 MB result", ">= 0.5 x its speed", 0.5),
    _by_speed("100 MB put object, memcpy", "100 MB put", ">= 0.9 x its speed", 0.9),
    _by_speed("8 MB of weights to 8 actors, a memcpy and 8 calls", "8 MB broadcast to 8", "<= 1.5 x its time", 1 / 1.5),
    Row(
        "first call of a new actor, a fork",
        "actors",
        lambda found: f"{found['first_call_ms']:.1f} ms",
        lambda found: f"{found['fork_ms']:.1f} ms",
        lambda found: f"{found['first_call_ms'] / found['fork_ms']:.1f} x",
        "<= 50 ms",
        lambda found: found["first_call_ms"] <= 50,
    ),
    _alone(
        "100 actors that import torch and gymnasium",
        "actors",
        lambda found: f"{found['actors']['seconds']:.2f} s for {found['actors']['n']}",
        "<= 3 s",
        lambda found: found["actors"]["seconds"] <= 3,
    ),
    _alone(
        "memory of each of them",
        "actors",
        lambda found: f"{found['actors']['pss_mb']:.1f} MB",
        "<= 15 MB",
        lambda found: found["actors"]["pss_mb"] <= 15,
    ),
    _alone(
        "handles in one process",
        "actors",
        lambda found: f"{found['handles']['n']:,}, {found['handles']['descriptors']:g} descriptors each",
        "1,000",
        lambda found: found["handles"]["n"] >= 1000,
    ),
    _alone(
        "wishes granted a second, 1,000 workers with 10,000 slots",
        "master",
        lambda found: f"{found['wishes_per_s']:,} /s ({found['workers']:,} workers)",
        ">= 2,000 /s",
        lambda found: found["wishes_per_s"] >= 2000,
    ),
    _alone(
        "that master when nothing happens",
        "master",
        lambda found: f"{found['idle_share']:.1%} of a core",
        "< 5 %",
        lambda found: found["idle_share"] < 0.05,
    ),
    _alone("its status", "master", lambda found: f"{found['status_s']:.2f} s", "< 1 s", lambda found: found["status_s"] < 1),
    Row(
        "central inference for 32 callers, a network in each",
        "central_inference",
        lambda found: f"{max(found['central'].values()):,} actions/s",
        lambda found: f"{found['local']:,} actions/s",
        lambda found: f"{_best_central(found):.2f} x",
        "> 1 x",
        lambda found: _best_central(found) > 1,
    ),
    Row(
        "prioritized sample of 512 transitions of 84 x 84 x 4 bytes, memcpy",
        "replay",
        lambda found: f"{found['sample']['sample, two threads']:.2f} ms",
        lambda found: f"{found['sample']['memcpy']:.2f} ms",
        lambda found: f"{found['sample']['ratio']:.2f} x",
        "<= 1.5 x",
        lambda found: found["sample"]["ratio"] <= 1.5,
    ),
    _alone(
        "such images through one replay shard: inserted, sampled",
        "replay",
        lambda found: "{inserted:,} /s, {sampled:,} /s".format(**found["shard"]["84 x 84 x 4 bytes"]),
        ">= 10,000 /s each",
        lambda found: min(found["shard"]["84 x 84 x 4 bytes"].values()) >= 10_000,
    ),
]


def lines_of(rows: list[Row], figures: Figures) -> Iterator[str]:
    """Yield the table."""
    yield "| what, beside what | ours | floor | ratio | goal | |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        found = figures.get(row.benchmark)
        if found is None:
            yield f"| {row.what} | not measured | | | {row.goal} | |"
            continue
        verdict = "reached" if row.reached(found) else "**missed**"
        yield f"| {row.what} | {row.ours(found)} | {row.floor(found)} | {row.ratio(found)} | {row.goal} | {verdict} |"


def codec_lines(found: Figures) -> Iterator[str]:
    """Yield the table of what values cost to encode and decode."""
    yield "| value | encode | decode | pickle 5 | a copy of the bytes |"
    yield "|---|---|---|---|---|"
    for name, us in found["microseconds"].items():
        theirs = [f"{us[f'encode {other}']:,.1f} / {us[f'decode {other}']:,.1f}" for other in ("pickle", "copy")]
        yield f"| {name} | {us['encode payload']:,.1f} us | {us['decode payload']:,.1f} us | {theirs[0]} | {theirs[1]} |"


def central_lines(found: Figures) -> Iterator[str]:
    """Yield the table of central inference by the size of a batch."""
    yield "| | actions/s | beside a network in each caller |"
    yield "|---|---|---|"
    yield f"| a network in each caller | {found['local']:,} | 1.00 x |"
    for size, rate in found["central"].items():
        yield f"| one for all, batches up to {size} | {rate:,} | {rate / found['local']:.2f} x |"


def systems_lines(figures: Figures) -> Iterator[str]:
    """Yield the table of systems beside each other."""
    systems = [figures[name] for name in ("scaling", "ray") if name in figures]
    yield "| | " + " | ".join(found["system"] for found in systems) + " |"
    yield "|---|" + "---|" * len(systems)
    yield "| blocking call | " + " | ".join(f"{found['blocking_us']:,.0f} us" for found in systems) + " |"
    yield "| first call of a new actor | " + " | ".join(f"{found['first_call_ms']:,.0f} ms" for found in systems) + " |"
    for size in systems[0]["latency_us"]:
        latencies = " | ".join(f"{found['latency_us'][size]:,.0f} us" for found in systems)
        yield f"| {int(size):,} bytes there and back | {latencies} |"
    for n_actors in systems[0]["calls_per_s"]:
        rates = " | ".join(f"{found['calls_per_s'][n_actors]:,.0f} /s" for found in systems)
        yield f"| calls to {n_actors} actors | {rates} |"


def calls_text(calls: Figures) -> str:
    """Return why calls on one machine are faster than their floor, and those across machines are not."""
    unix = calls["bare Unix socket"]["us"]
    ratio = calls["blocking no-op"]["us"] / unix
    return (
        "A round trip through ZeroMQ wakes six threads: each end has one that sends and receives for it. Calls on one machine "
        "go by a Unix socket beside the ZeroMQ connection (parl_lite/lanes.py), which wakes two, and each end looks for up to "
        "0.1 ms before it sleeps, as long as that finds something: to wake a sleeping processor takes longer than the call. A "
        f"bare ping-pong over such a socket, which sleeps, took {unix:,.1f} us in the same run; a blocking call is {ratio:.2f} x "
        "that: the rest is Python, some 7 us in the caller and 10 us in the actor, their system calls included (numbers, queue, "
        "pickle, future or none). That is also what bounds pipelined calls, where the bare echo does nothing with what it gets. "
        "Calls over tcp go through ZeroMQ and pay for both: while Python works, ZeroMQ's threads fall asleep, and are woken once "
        "more for each message where a bare stream keeps them awake."
    )


def page(figures: Figures) -> str:
    """Return the page."""
    parts = [
        "# Performance",
        f"Measured by `make bench` on one machine with {os.cpu_count()} cores; each row in one run with its floor, the median of "
        "several. The ratio is what counts: the figures themselves are those of that machine. Floors are the plainest code that "
        "does the same: bare pyzmq, a memcpy, a fork.",
        "\n".join(lines_of(ROWS, figures)),
    ]
    if "bare Unix socket" in figures.get("calls", {}):
        parts += ["## Where a call's time goes", calls_text(figures["calls"])]
    if "scaling" in figures:
        parts += ["## By size, by number of actors", "![latency by size, throughput by number of actors](performance.png)"]
        parts += ["\n".join(systems_lines(figures))]
        if "ray" in figures:
            parts += ["Ray's results are read-only views of its store; those of parl_lite are private and writable."]
    if "central_inference" in figures:
        found = figures["central_inference"]
        parts += [
            "## Central inference",
            f"{found['callers']} callers, the Nature network on 84 x 84 x 4 bytes, `@parl_lite.batched`.",
        ]
        parts += ["\n".join(central_lines(found))]
    if "codec" in figures:
        parts += ["## What a value costs", "Microseconds, encode / decode.", "\n".join(codec_lines(figures["codec"]))]
    parts += ["All figures: performance.json, beside this page."]
    return "\n\n".join(parts) + "\n"


def draw(figures: Figures, path: Path) -> None:
    """Draw latency by size and throughput by number of actors."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for found in (figures[name] for name in ("scaling", "ray") if name in figures):
        sizes = [int(size) for size in found["latency_us"]]
        left.plot(sizes, list(found["latency_us"].values()), marker="o", label=found["system"])
        if found["floor_us"]:
            left.plot(sizes, list(found["floor_us"].values()), linestyle="--", color="grey", label="bare pyzmq")
        n_actors = [int(n) for n in found["calls_per_s"]]
        right.plot(n_actors, list(found["calls_per_s"].values()), marker="o", label=found["system"])
    left.set(xscale="log", yscale="log", xlabel="bytes there and back", ylabel="microseconds", title="a blocking call")
    right.set(xscale="log", xlabel="actors", ylabel="calls a second", title="one client, 32 calls under way for each actor")
    right.set_xticks(n_actors, [str(n) for n in n_actors])
    right.set_ylim(bottom=0)
    left.legend()
    right.legend()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def write(figures: Figures, folder: Path) -> None:
    """Write the page, its picture and the figures."""
    folder.mkdir(exist_ok=True)
    (folder / "performance.json").write_text(json.dumps(figures, indent=1) + "\n")
    (folder / "performance.md").write_text(page(figures))
    if "scaling" in figures:
        draw(figures, folder / "performance.png")
