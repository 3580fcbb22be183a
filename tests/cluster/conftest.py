"""Real clusters for tests, and the check that nothing of them is left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import parl_lite
from parl_lite import hostos

PATIENCE = 60.0
"""Seconds that a loaded machine may take longer than an idle one; below the limit of a test."""


def processes_of_ours() -> dict[int, str]:
    """Return {pid: command} of all processes of parl_lite with this process's TMPDIR: not those of other tests beside."""
    found = {}
    for process in psutil.process_iter(["pid", "cmdline", "environ"]):
        command = " ".join(process.info["cmdline"] or ())
        folder = (process.info["environ"] or {}).get("TMPDIR")
        if "parl_lite.cluster." in command and folder == os.environ.get("TMPDIR"):
            found[process.info["pid"]] = command
    return found


def until(condition: Callable[[], object], seconds: float, what: str) -> object:
    """Return the first true value of a condition that other processes bring about; fail when it does not come.

    It has `seconds` and a good deal more: on a machine with much else to do everything takes longer, and is right all the same.
    """
    seconds += PATIENCE
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds} s: {what}")
        pause.wait(0.02)


@pytest.fixture(autouse=True, scope="module")
def nothing_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give each module its own TMPDIR; afterwards no process and no file of a cluster may be left.

    Jobs share no torch here (PARL_LITE_PRELOAD), so that a cluster starts in a fraction of a second.
    """
    tmp_path_factory.getbasetemp()  # made now, or it would be made in this TMPDIR and go with it
    short = Path(tempfile.mkdtemp(prefix="pl", dir="/tmp"))  # a socket's path has room for 107 bytes
    before = processes_of_ours()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(short))
        patch.setattr("tempfile.tempdir", None)
        patch.setenv("PARL_LITE_PRELOAD", "")
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(short / "torch"))  # torch would keep it for good, and make it anew
        yield short
        parl_lite.disconnect()
        until(lambda: not (processes_of_ours().keys() - before.keys()), 10, "all processes of the cluster ended")
    left = [str(path) for path in short.glob("parl_lite-*/*") if path.name != ".making"]
    shutil.rmtree(short)
    assert left == []


@pytest.fixture(scope="module")
def cluster(nothing_left: Path) -> Iterator[None]:
    """Connect this process to an embedded cluster with four slots, one for all tests of the module."""
    parl_lite.connect(n_cpu=4, log_to_driver=False)
    yield
    parl_lite.disconnect()


@pytest.fixture
def fresh_cluster(nothing_left: Path) -> Iterator[None]:
    """Connect this process to an embedded cluster of its own with two slots."""
    parl_lite.connect(n_cpu=2, log_to_driver=False)
    yield
    parl_lite.disconnect()


@pytest.fixture
def run_script(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a text as a script in a process of its own; return what it printed and its exit code."""

    def run(text: str, *arguments: str, cwd: Path | None = None, timeout: float = 200) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "script.py"
        path.write_text(text)
        return subprocess.run([sys.executable, str(path), *arguments], cwd=cwd, capture_output=True, text=True, timeout=timeout)

    return run


def alive(pid: int) -> bool:
    """Return whether a process runs."""
    return hostos.process_alive(pid)


def helpers_rest(pid: int) -> bool:
    """Return whether all threads but the main one sleep: those of ZeroMQ have passed on all they were given."""
    tasks = [task for task in Path(f"/proc/{pid}/task").iterdir() if task.name != str(pid)]
    return all((task / "stat").read_text().rpartition(")")[2].split()[0] == "S" for task in tasks)
