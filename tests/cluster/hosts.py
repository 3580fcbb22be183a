"""Several machines on this one: network namespaces at one switch, each with a name, an address and files of its own.

    alpha 10.77.0.1 ──┐
    beta  10.77.0.2 ──┼── switch          each sees its own TMPDIR and none of the others'
    gamma 10.77.0.3 ──┘

Needs root and iproute2. All of them share one kernel, so the boot id is equal: what tells the machines apart is that files
of the one do not exist on the other.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from daemons import Surroundings

_ENTER = 'hostname "$0"; while [ "$1" != -- ]; do mount -t tmpfs none "$1"; shift; done; shift; exec "$@"'


def why_impossible() -> str:
    """Return why there can be no such machines here, "" when there can."""
    tools = [name for name in ("ip", "unshare", "mount", "hostname") if shutil.which(name) is None]
    if tools:
        return f"network namespaces need the commands {', '.join(tools)}"
    probe = ["unshare", "--net", "--mount", "--uts", "ip", "link", "add", "name", "probe", "type", "bridge"]
    tried = subprocess.run(probe, capture_output=True, text=True)
    return f"network namespaces need root: {tried.stderr.strip()}" if tried.returncode else ""


@dataclass
class Host:
    """One machine."""

    name: str
    address: str
    namespace: str
    folder: Path
    """Its TMPDIR."""
    hidden: list[Path] = field(default_factory=list)
    """Folders that are empty for it."""

    def surroundings(self) -> Surroundings:
        """Return how to start something here."""
        head = ("ip", "netns", "exec", self.namespace, "unshare", "--uts", "sh", "-c", _ENTER, self.name)
        return Surroundings((*head, *map(str, self.hidden), "--"), self.folder)

    def cut(self) -> None:
        """Pull the network cable."""
        _ip("-n", self.namespace, "link", "set", "eth0", "down")

    def heal(self) -> None:
        """Plug it in again."""
        _ip("-n", self.namespace, "link", "set", "eth0", "up")

    def processes(self) -> list[int]:
        """Return what runs here."""
        found = subprocess.run(["ip", "netns", "pids", self.namespace], capture_output=True, text=True, check=True)
        return [int(word) for word in found.stdout.split() if psutil.pid_exists(int(word))]


class Network:
    """Machines at one switch, with addresses 10.77.0.1 and so on."""

    def __init__(self, names: Sequence[str], base: Path) -> None:
        """Make them, with TMPDIRs below `base`."""
        self._token = f"pl{secrets.token_hex(3)}"
        self._switch = f"{self._token}-switch"
        self.hosts: dict[str, Host] = {}
        self._make(self._switch)
        _ip("-n", self._switch, "link", "add", "switch", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "switch", "up")
        for number, name in enumerate(names, 1):
            self.hosts[name] = self._plug_in(name, f"10.77.0.{number}", base / name)
        for host in self.hosts.values():
            host.hidden = [other.folder for other in self.hosts.values() if other is not host]

    def close(self) -> list[int]:
        """Take them all away, and kill what still runs on them; return the pids of that."""
        left = [pid for host in self.hosts.values() for pid in host.processes()]
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for namespace in (*(host.namespace for host in self.hosts.values()), self._switch):
            _ip("netns", "del", namespace)
        return left

    def _plug_in(self, name: str, address: str, folder: Path) -> Host:
        namespace = f"{self._token}-{name}"
        self._make(namespace)
        _ip("link", "add", "eth0", "netns", namespace, "type", "veth", "peer", "name", name, "netns", self._switch)
        _ip("-n", self._switch, "link", "set", name, "master", "switch", "up")
        _ip("-n", namespace, "address", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", namespace, "link", "set", "eth0", "up")
        folder.mkdir()
        return Host(name, address, namespace, folder)

    def _make(self, namespace: str) -> None:
        _ip("netns", "add", namespace)
        _ip("-n", namespace, "link", "set", "lo", "up")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


_CONSOLE = """
import json, sys
sys.argv = [""]
for line in sys.stdin:
    source = json.loads(line)
    try:
        try:
            code = compile(source, "console", "eval")
        except SyntaxError:
            code = compile(source, "console", "exec")
        answer = {"value": eval(code)}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)
"""


class RemoteFailure(Exception):
    """What was asked of a console raised."""


class Console:
    """A script that runs on a machine, and then does what it is told, line by line."""

    def __init__(self, host: Host, script: Path, environment: dict[str, str]) -> None:
        """Start it; its text is that of the file, and a loop behind it."""
        script.write_text(script.read_text() + _CONSOLE)
        where = host.surroundings()
        self._process = subprocess.Popen(
            [*where.through, sys.executable, str(script)],
            env={**where.environment(), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, source: str) -> Any:
        """Return the value of an expression there (None of statements); raises RemoteFailure with its error."""
        self._process.stdin.write(json.dumps(source) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise RemoteFailure(answer["error"])
        return answer["value"]

    def close(self) -> int:
        """End the script as it would end by itself; return its exit code."""
        self._process.communicate(timeout=200)
        return self._process.returncode

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.communicate()
