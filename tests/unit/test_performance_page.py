"""The page about performance says what was measured: ratios, goals, and where one is missed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import performance


def call(us: float, floor_us: float) -> dict[str, float]:
    return {"us": us, "floor_us": floor_us, "ratio": us / floor_us}


CALLS = {"blocking no-op": call(90.0, 80.0), "blocking, 64 B array": call(120.0, 80.0), "pipelined": call(40.0, 10.0)}
MASTER = {"workers": 1000, "wishes_per_s": 2500, "idle_share": 0.06, "status_s": 0.3}
ONE = {"system": "parl_lite", "blocking_us": 90.0, "first_call_ms": 30.0, "calls_per_s": {"1": 9000, "8": 30000}}
SCALING = {**ONE, "latency_us": {"64": 90.0, "1024": 95.0}, "floor_us": {"64": 80.0, "1024": 81.0}}
RAY = {**SCALING, "system": "ray", "blocking_us": 900.0, "floor_us": {}}


def rows_of(text: str) -> dict[str, list[str]]:
    """Return the cells of the first table by what they are about."""
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in lines}


def test_a_row_has_the_floor_the_ratio_and_the_verdict() -> None:
    rows = rows_of(performance.page({"calls": CALLS}))
    blocking = rows["blocking call without argument, bare pyzmq ping-pong"]
    assert blocking == ["90.0 us", "80.0 us", "1.12 x", "<= 1.2 x", "reached"]
    pipelined = rows["calls a second, pipelined, bare pyzmq pipelined"]
    assert pipelined == ["25,000 /s", "100,000 /s", "0.25 x", ">= 0.5 x", "**missed**"]


def test_what_was_not_measured_is_said_to_be_so() -> None:
    rows = rows_of(performance.page({"master": MASTER}))
    assert rows["100 MB argument, memcpy"][0] == "not measured"
    assert rows["that master when nothing happens"] == ["6.0% of a core", "", "", "< 5 %", "**missed**"]


def test_systems_stand_beside_each_other() -> None:
    text = performance.page({"scaling": SCALING, "ray": RAY})
    assert rows_of(text)["blocking call"] == ["90 us", "900 us"]
    assert rows_of(text)["calls to 8 actors"] == ["30,000 /s", "30,000 /s"]
    assert "performance.png" in text


def test_the_machine_is_named_by_its_cores_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 13)
    assert "one machine with 13 cores" in performance.page({})


def test_page_picture_and_figures_are_written(tmp_path: Path) -> None:
    performance.write({"calls": CALLS, "scaling": SCALING, "ray": RAY}, tmp_path / "docs")
    assert (tmp_path / "docs" / "performance.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in (tmp_path / "docs").iterdir()) == [
        "performance.json",
        "performance.md",
        "performance.png",
    ]


def test_calls_are_explained_beside_a_bare_unix_socket() -> None:
    assert "Unix socket" not in performance.page({"calls": CALLS})
    text = performance.page({"calls": {**CALLS, "bare Unix socket": {"us": 60.0}}})
    assert "took 60.0 us in the same run; a blocking call is 1.50 x that" in text


def test_central_inference_is_reported_by_the_size_of_a_batch() -> None:
    central = {"callers": 32, "local": 800, "central": {"1": 400, "64": 1600}}
    text = performance.page({"central_inference": central})
    assert "| one for all, batches up to 1 | 400 | 0.50 x |" in text
    assert "| one for all, batches up to 64 | 1,600 | 2.00 x |" in text
    assert rows_of(text)["central inference for 32 callers, a network in each"][-1] == "reached"


def test_replay_is_beside_a_memcpy() -> None:
    shard = {"84 x 84 x 4 bytes": {"inserted": 9000, "sampled": 12000}}
    rows = rows_of(
        performance.page({"replay": {"sample": {"sample, two threads": 4.0, "memcpy": 2.0, "ratio": 2.0}, "shard": shard}})
    )
    assert rows["prioritized sample of 512 transitions of 84 x 84 x 4 bytes, memcpy"][-1] == "**missed**"
    assert rows["such images through one replay shard: inserted, sampled"][0] == "9,000 /s, 12,000 /s"
