"""What only an operating system can tell or do: identity of this host, folders, deaths of processes. Linux first, with fallbacks.

Everything that exists on Linux only stands here: pidfd, prctl, boot id. Knows nothing of clusters.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import select
import signal
import socket
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil

from parl_lite.errors import ParlError

LINUX = sys.platform.startswith("linux")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LONGEST_SOCKET_PATH = 100


def refuse_windows() -> None:
    """Raise ParlError on Windows, in one sentence."""
    if sys.platform == "win32":
        raise ParlError("parl_lite runs on Linux (and embedded on macOS), not on Windows: use WSL 2.")


def host_name() -> str:
    """Return the name of this machine."""
    return socket.gethostname()


def boot_id() -> str:
    """Return what is equal for two processes exactly when they run on one kernel."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"{socket.gethostname()}"


def address_towards(host: str, port: int) -> str:
    """Return the own IP address from which `host` is reached; no packet is sent and no other network is needed."""
    family, _, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])


# --- folders -----------------------------------------------------------------------------------------------


def runtime_folder() -> Path:
    """Return this user's folder for sockets and logs, mode 0700; raises ParlError when a stranger owns it."""
    base = tempfile.gettempdir()
    if len(base) > _LONGEST_SOCKET_PATH - 40:
        base = "/tmp"
    folder = Path(base) / f"parl_lite-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError:
        pass  # it is no folder, and refused below
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise ParlError(f"{folder} does not belong to you: remove it, or set TMPDIR to a folder of yours.")
    if found.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


# --- descriptors -------------------------------------------------------------------------------------------


def need_descriptors(n: int) -> None:
    """Raise OSError, with the limit, unless this process may open `n` more files: C code aborts where Python would raise."""
    spare: list[int] = []
    try:
        for _ in range(n):
            spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        text = f"too many open files, this process may have {limit}: raise the limit with `ulimit -n` before it starts"
        raise OSError(errno.EMFILE, text) from None
    finally:
        for fd in spare:
            os.close(fd)


def raise_descriptor_limit(most: int = 65536) -> None:
    """Let this process and its children open as many files as the system allows it, up to `most`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def readable(fd: int, timeout: float = 0.0) -> bool:
    """Return whether a descriptor, of any number, is readable within `timeout` seconds."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(timeout * 1000))


# --- processes ---------------------------------------------------------------------------------------------


def process_alive(pid: int) -> bool:
    """Return whether a process runs (a zombie does not)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        if LINUX:
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True
    return text.rpartition(")")[2].split()[0] not in "ZX"


def open_process(pid: int) -> int:
    """Return a descriptor that becomes readable when the process ends; raises ProcessLookupError when it is gone."""
    if hasattr(os, "pidfd_open"):
        return os.pidfd_open(pid)
    return _watch_by_thread(pid)


def _watch_by_thread(pid: int) -> int:
    os.kill(pid, 0)
    read, write = os.pipe()

    def wait() -> None:
        pause = threading.Event()
        while process_alive(pid):
            pause.wait(0.2)
        os.close(write)

    threading.Thread(target=wait, daemon=True, name=f"parl_lite-watch-{pid}").start()
    return read


def wait_for_end(pid: int, timeout: float) -> bool:
    """Return whether a process ended within `timeout` seconds."""
    try:
        fd = open_process(pid)
    except ProcessLookupError:
        return True
    try:
        return readable(fd, timeout)
    finally:
        os.close(fd)


def end_process(pid: int, grace: float) -> None:
    """Ask a process to end, and kill it when it is still there after `grace` seconds."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return
        if wait_for_end(pid, grace):
            return


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent, which must be `parent` now, ends."""
    if not LINUX:
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> bool:
    """Become the parent of descendants whose own parent ends; return whether the system can."""
    if not LINUX:
        return False
    return int(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) == 0


def unbuffer_c_output() -> None:
    """Let printf of C code reach the descriptor at once, so that a crash loses nothing."""
    libc = ctypes.CDLL(None)
    for name in ("stdout", "stderr") if LINUX else ("__stdoutp", "__stderrp"):
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, name), None, 2, 0)  # 2 is _IONBF


def children_of(parent: int) -> Iterator[int]:
    """Yield the direct children of a process, zombies included."""
    for pid, fields in _all_processes():
        if int(fields[1]) == parent:
            yield pid


def descendants_of(parent: int) -> set[int]:
    """Return the children of a process, their children, and so on."""
    children: dict[int, list[int]] = {}
    for pid, fields in _all_processes():
        children.setdefault(int(fields[1]), []).append(pid)
    found: set[int] = set()
    waiting = [parent]
    while waiting:
        new = set(children.get(waiting.pop(), ())) - found
        found |= new
        waiting.extend(new)
    return found


def own_memory(pid: int) -> int:
    """Return the bytes that only this process uses: what it shares with the zygote it was forked from does not count."""
    try:
        if LINUX:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) * 1024
        return int(psutil.Process(pid).memory_full_info().uss)
    except (OSError, psutil.Error):
        return 0  # it ended meanwhile


def available_memory() -> int:
    """Return how many bytes this process and others could still use: of the machine, and of the control group."""
    available = int(psutil.virtual_memory().available)
    try:
        most = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text()
    except OSError:
        return available
    return available if most == "max" else min(available, max(0, int(most) - int(used)))


def session_members(session: int) -> Iterator[int]:
    """Yield the living processes of a session."""
    for pid, fields in _all_processes():
        if int(fields[3]) == session and fields[0] not in "ZX":
            yield pid


def _all_processes() -> Iterator[tuple[int, list[str]]]:
    """Yield (pid, fields of its stat from the state on: state, parent, group, session, ...)."""
    for entry in os.listdir("/proc") if LINUX else ():
        if not entry.isdigit():
            continue
        try:
            yield int(entry), Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
