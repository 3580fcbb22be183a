"""What the operating system tells of this host, its folders and its processes, and how processes end."""

from __future__ import annotations

import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from parl_lite import hostos
from parl_lite.errors import ParlError

LONG = 30.0
"""Far longer than anything here takes; waiting ends as soon as it happened."""
MB = 1024 * 1024

linux_only = pytest.mark.skipif(not hostos.LINUX, reason="only Linux has it")


@pytest.fixture
def waiting() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits until its input is closed, in a session of its own."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True) as process:
        yield process
        process.kill()


@pytest.fixture
def deaf() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits and ignores SIGTERM."""
    command = ["sh", "-c", "trap '' TERM; echo; read line"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def run_python(text: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a few lines that may change their process for good."""
    text = f"import os, subprocess, sys\nfrom parl_lite import hostos\n{text}"
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=200, check=check)


# This host


def test_windows_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    hostos.refuse_windows()
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ParlError, match="not on Windows: use WSL 2"):
        hostos.refuse_windows()


def test_two_looks_at_this_host_agree() -> None:
    assert hostos.boot_id() == hostos.boot_id() != ""
    assert hostos.host_name() != ""


def test_a_host_without_boot_id_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_file(path: Path) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", no_file)
    assert hostos.boot_id() == hostos.host_name()


def test_loopback_is_reached_from_loopback() -> None:
    assert hostos.address_towards("127.0.0.1", 9) == "127.0.0.1"


# The runtime folder


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder with a path short enough for sockets."""
    folder = tempfile.mkdtemp(prefix="pl", dir="/tmp")
    monkeypatch.setattr("tempfile.tempdir", folder)
    yield Path(folder)
    shutil.rmtree(folder)


def test_the_runtime_folder_is_private_and_always_the_same(short: Path) -> None:
    folder = hostos.runtime_folder()
    assert folder == hostos.runtime_folder() == short / f"parl_lite-{os.getuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_runtime_folder_that_is_open_to_others_is_closed(short: Path) -> None:
    hostos.runtime_folder().chmod(0o755)
    assert stat.S_IMODE(hostos.runtime_folder().stat().st_mode) == 0o700


@pytest.mark.parametrize("trap", ["link", "dangling link", "file"])
def test_what_a_stranger_put_in_place_of_the_runtime_folder_is_refused(short: Path, trap: str) -> None:
    place = short / f"parl_lite-{os.getuid()}"
    if trap == "file":
        place.write_text("")
    else:
        place.symlink_to(short if trap == "link" else short / "nowhere")
    with pytest.raises(ParlError, match="does not belong to you: remove it, or set TMPDIR"):
        hostos.runtime_folder()


def test_a_runtime_folder_of_another_user_is_refused(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 987_654)
    with pytest.raises(ParlError, match="parl_lite-987654 does not belong to you"):
        hostos.runtime_folder()


# Lives of processes


def test_a_process_is_alive_until_it_ends_even_before_it_is_reaped(waiting: subprocess.Popen[bytes]) -> None:
    assert hostos.process_alive(waiting.pid)
    waiting.kill()
    assert hostos.wait_for_end(waiting.pid, LONG)
    assert not hostos.process_alive(waiting.pid)
    waiting.wait()
    assert not hostos.process_alive(waiting.pid)


@pytest.mark.parametrize("has_pidfd", [True, False])
def test_a_descriptor_is_readable_when_its_process_ends(
    has_pidfd: bool, waiting: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_pidfd:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    fd = hostos.open_process(waiting.pid)
    assert select.select([fd], [], [], 0)[0] == []
    waiting.kill()
    assert select.select([fd], [], [], LONG)[0] == [fd]
    os.close(fd)


@pytest.mark.parametrize("has_pidfd", [True, False])
def test_a_process_that_is_gone_cannot_be_opened(has_pidfd: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    if not has_pidfd:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    with pytest.raises(ProcessLookupError):
        hostos.open_process(process.pid)


def test_waiting_for_an_end_has_an_end(waiting: subprocess.Popen[bytes]) -> None:
    assert not hostos.wait_for_end(waiting.pid, 0.0)
    waiting.kill()
    waiting.wait()
    assert hostos.wait_for_end(waiting.pid, 0.0)


def test_a_process_is_asked_to_end_first(waiting: subprocess.Popen[bytes]) -> None:
    hostos.end_process(waiting.pid, LONG)
    assert waiting.wait() == -signal.SIGTERM
    hostos.end_process(waiting.pid, LONG)


def test_a_process_that_ignores_that_is_killed(deaf: subprocess.Popen[bytes]) -> None:
    hostos.end_process(deaf.pid, 0.05)
    assert deaf.wait() == -signal.SIGKILL


# Families of processes


@linux_only
def test_children_descendants_and_sessions_are_found() -> None:
    family = ["sh", "-c", "exec 3<&0; cat <&3 & echo $!; wait"]
    with subprocess.Popen(family, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert parent.pid in hostos.children_of(os.getpid())
        assert list(hostos.children_of(parent.pid)) == [child]
        assert {parent.pid, child} <= hostos.descendants_of(os.getpid())
        assert sorted(hostos.session_members(parent.pid)) == sorted([parent.pid, child])
        os.killpg(parent.pid, signal.SIGKILL)


@linux_only
def test_a_zombie_is_a_child_but_no_member_of_its_session(waiting: subprocess.Popen[bytes]) -> None:
    waiting.kill()
    assert hostos.wait_for_end(waiting.pid, LONG)
    assert waiting.pid in hostos.children_of(os.getpid())
    assert list(hostos.session_members(waiting.pid)) == []


@linux_only
def test_a_process_dies_with_its_parent() -> None:
    child = "import os; from parl_lite import hostos; hostos.die_with_parent(os.getppid()); print('up', flush=True); input()"
    command = ["sh", "-c", 'exec 3<&0; "$0" -c "$1" <&3 & echo $!; wait', sys.executable, child]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert parent.stdout.readline() == "up\n"
        parent.kill()
        assert hostos.wait_for_end(pid, LONG)


@linux_only
def test_a_process_whose_parent_died_before_dies_at_once() -> None:
    assert run_python("hostos.die_with_parent(1)", check=False).returncode == -signal.SIGKILL


@linux_only
def test_orphans_of_descendants_become_children() -> None:
    found = run_python(
        "assert hostos.adopt_orphans()\n"
        "command = ['sh', '-c', 'exec 3<&0; cat <&3 >/dev/null & echo $!']\n"
        "shell = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "orphan = int(shell.stdout.readline())\n"
        "shell.wait()\n"
        "print(orphan in hostos.children_of(os.getpid()))\n"
        "os.kill(orphan, 9)"
    )
    assert found.stdout == "True\n"


def test_what_c_code_prints_survives_a_crash() -> None:
    crash = "import ctypes\nhostos.unbuffer_c_output()\nctypes.CDLL(None).printf(b'last words')\nos.abort()"
    found = run_python(crash, check=False)
    assert (found.stdout, found.returncode) == ("last words", -signal.SIGABRT)


@linux_only
def test_own_memory_grows_with_what_is_used() -> None:
    before = hostos.own_memory(os.getpid())
    kept = b"x" * (64 * MB)
    assert hostos.own_memory(os.getpid()) >= before + len(kept) - MB
    del kept


def test_a_process_that_is_gone_uses_no_memory() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert hostos.own_memory(process.pid) == 0
