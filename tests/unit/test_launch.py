"""Processes of ours say one line when they work; whatever else they do is an error that explains itself."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from parl_lite import hostos, launch
from parl_lite.errors import ParlError
from parl_lite.launch import Node

LONG = 30.0

SAY = """
import json, os, signal, sys
fd = int(sys.argv[sys.argv.index("--ready-fd") + 1])
def say(**facts):
    os.write(fd, json.dumps(facts).encode() + b"\\n")
"""
"""How a process of ours speaks."""

Run = Callable[..., Node]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Launch a few lines as the module `talker`, in a folder of their own."""
    modules, folder = tmp_path / "modules", tmp_path / "folder"
    modules.mkdir()
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(modules))
    nodes: list[Node] = []

    def start(text: str, *arguments: str, log: bool = True, detached: bool = True) -> Node:
        (modules / "talker.py").write_text(SAY + text)
        log_path = tmp_path / "talker.log" if log else None
        nodes.append(launch.launch("talker", arguments, folder, log_path, detached=detached))
        return nodes[-1]

    yield start
    for node in nodes:
        node.process.kill()
        node.end(LONG)


def ready(node: Node) -> dict[str, Any]:
    return node.await_ready(time.monotonic() + LONG)


def why(node: Node, deadline: float | None = None) -> str:
    """Return the error of a process that does not work."""
    with pytest.raises(ParlError) as caught:
        node.await_ready(time.monotonic() + LONG if deadline is None else deadline)
    return str(caught.value)


def n_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# What it says


def test_a_process_that_works_says_so(run: Run) -> None:
    node = run("say(address='here', pid=os.getpid())")
    assert ready(node) == {"address": "here", "pid": node.process.pid}
    assert node.role == "talker"


def test_a_process_that_cannot_work_says_why(run: Run) -> None:
    assert why(run("say(error='the port 8010 is in use.')")) == "the port 8010 is in use."


def test_a_process_that_ends_is_told_with_its_code_and_last_words(run: Run) -> None:
    node = run("print('ModuleNotFoundError: no gym.', flush=True); print(); sys.exit(3)")
    assert why(node) == (
        "the talker process ended with code 3 before it worked; its last words are: ModuleNotFoundError: no gym."
    )


def test_a_process_that_ends_without_a_word_is_told_too(run: Run) -> None:
    assert why(run("sys.exit(3)")) == "the talker process ended with code 3 before it worked."
    assert why(run("sys.exit(3)", log=False)) == "the talker process ended with code 3 before it worked."


def test_a_process_that_says_nothing_in_time_is_given_up(run: Run) -> None:
    assert why(run("input()"), time.monotonic()) == "the talker process did not begin to work in time."


def test_a_line_may_come_in_parts(run: Run) -> None:
    assert ready(run("os.write(fd, b'{\"pid\":'); os.write(fd, b' 7}\\n'); os.close(fd)")) == {"pid": 7}


# What it is given


def test_a_process_runs_in_its_folder_with_its_arguments_and_writes_to_its_log(run: Run, tmp_path: Path) -> None:
    node = run("print('hello'); print('oh', file=sys.stderr); say(cwd=os.getcwd(), argv=sys.argv[1:3])", "--n-cpu", "2")
    assert ready(node) == {"cwd": str(tmp_path / "folder"), "argv": ["--n-cpu", "2"]}
    node.process.wait()
    assert sorted((tmp_path / "talker.log").read_text().split()) == ["hello", "oh"]


@pytest.mark.parametrize("detached", [True, False])
def test_a_detached_process_is_deaf_to_our_terminal(run: Run, detached: bool) -> None:
    node = run("say(session=os.getsid(0))", detached=detached)
    assert ready(node) == {"session": node.process.pid if detached else os.getsid(0)}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no option -P")
def test_what_lies_in_the_folder_cannot_be_imported_by_accident(run: Run, tmp_path: Path) -> None:
    (tmp_path / "folder" / "json.py").write_text("raise SystemExit('the wrong json')")
    assert ready(run("say(path=sys.path[0])")) != {"path": str(tmp_path / "folder")}


# Its end


def test_a_process_is_asked_to_end(run: Run) -> None:
    node = run("say(); signal.pause()")
    ready(node)
    node.end(LONG)
    assert node.process.returncode == -signal.SIGTERM


def test_a_process_that_does_not_listen_is_killed(run: Run) -> None:
    node = run("signal.signal(signal.SIGTERM, signal.SIG_IGN); say(); signal.pause()")
    ready(node)
    node.end(0.01)
    assert node.process.returncode == -signal.SIGKILL


def test_a_process_can_be_ended_before_it_spoke(run: Run) -> None:
    node = run("signal.pause()")
    node.end(LONG)
    assert node.process.returncode == -signal.SIGTERM
    assert node.ready_fd == -1


def test_a_process_that_is_left_running_is_not_complained_of(run: Run) -> None:
    node = run("say(); signal.pause()")
    ready(node)
    node.leave_running()
    assert node.process.poll() == 0  # as if it had ended: subprocess warns of those that run when they are forgotten
    assert hostos.process_alive(node.process.pid)
    os.kill(node.process.pid, signal.SIGKILL)
    assert os.waitpid(node.process.pid, 0)[1] == signal.SIGKILL


@pytest.mark.skipif(not hostos.LINUX, reason="open descriptors are counted in /proc")
def test_no_descriptor_is_left_open(run: Run, tmp_path: Path) -> None:
    before = n_descriptors()
    ready(run("say()"))
    why(run("sys.exit(1)"))
    run("signal.pause()").end(LONG)
    with pytest.raises(FileNotFoundError):
        launch.launch("talker", [], tmp_path / "gone", None)
    with pytest.raises(FileNotFoundError):
        launch.launch("talker", [], tmp_path, tmp_path / "gone" / "log")
    assert n_descriptors() == before


# Its environment


@pytest.mark.parametrize("before", [None, "/theirs"])
def test_a_plain_checkout_is_importable_in_a_child_and_forgotten_in_a_job(
    before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "__file__", "/home/me/checkout/parl_lite/launch.py")
    monkeypatch.setenv("PYTHONPATH", before) if before else monkeypatch.delenv("PYTHONPATH", raising=False)
    child = launch.child_environment()
    assert child["PYTHONPATH"].split(":") == ["/home/me/checkout", *([before] if before else [])]
    assert os.environ.get("PYTHONPATH") == before
    for name in ("PYTHONPATH", "PARL_LITE_PYTHONPATH"):
        monkeypatch.setenv(name, child[name])
    launch.restore_environment()
    assert os.environ.get("PYTHONPATH") == before
    assert "PARL_LITE_PYTHONPATH" not in os.environ


def test_an_installed_package_needs_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "__file__", "/usr/lib/python3/dist-packages/parl_lite/launch.py")
    before = dict(os.environ)
    assert launch.child_environment() == before
    launch.restore_environment()
    assert os.environ == before
