"""connect() and disconnect(): this process's place in a cluster, and its control connection on one background loop.

    any thread ──post(event)──▶ Loop thread: ClientState ──Granted, Denied, Joined ...──▶ the wish that it answers
                                                         ──Lost──▶ the channel of that job
Calls do not pass here: see calls.py.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import json
import logging
import os
import queue
import secrets
import sys
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import zmq

from parl_lite import client_state, hostos, keys, lending, sockets, stores
from parl_lite import project as projects
from parl_lite.calls import Channel
from parl_lite.client_state import ClientState
from parl_lite.embedded import EmbeddedCluster
from parl_lite.errors import (
    ActorLostError,
    NotConnectedError,
    OutOfMemoryError,
    ParlError,
    ResourceError,
    VersionError,
)
from parl_lite.line import Line
from parl_lite.listener import why_silent
from parl_lite.loop import Loop, run_in_thread
from parl_lite.messages import JobGranted, JobLost, JobPrinted, Needs, Place, WantJob
from parl_lite.refs import Packer
from parl_lite.security import ClusterKey
from parl_lite.settings import Settings
from parl_lite.sockets import control_dealer, data_dealer, parse_address
from parl_lite.versions import own_versions
from parl_lite.wishes import Wish

logger = logging.getLogger("parl_lite")

_DESCRIPTORS = 16
"""An actor is wished only when so many files could be opened: its sockets need four, those of a few threads at once more."""
_NOBODY = "no cluster: call parl_lite.connect() first; without an address it starts one on this machine."


class Client:
    """The connection of this process to one cluster."""

    def __init__(
        self,
        address: str,
        *,
        key: ClusterKey | None,
        cluster: EmbeddedCluster | None,
        distributed_files: Sequence[str],
        show_logs: bool,
        trusted: bool,
        timeout: float,
        settings: Settings,
    ) -> None:
        self.address = address
        self.key = key
        self.timeout = timeout
        self.settings = settings
        self.place = Place(hostos.host_name(), os.getpid(), hostos.boot_id())
        self._cluster = cluster
        self._distributed_files = tuple(distributed_files)
        self.trusted = trusted
        hostos.raise_descriptor_limit()  # each handle needs four
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 65535)
        self._channels: weakref.WeakValueDictionary[str, Channel] = weakref.WeakValueDictionary()
        self._wishes: dict[int, Wish] = {}
        self._numbers = itertools.count(1)  # of wishes
        self._joined: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._reports: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._asking = threading.Lock()  # guards _reports: one thread asks for the status at a time
        self._identity = secrets.token_bytes(8).replace(b"\0", b"\1")
        dealer = control_dealer(self._context, settings, self._identity)
        self.state = ClientState(own_versions(), self.place, show_logs)
        self._loop = Loop(dealer, self.state, self._perform, settings)
        sockets.connect(dealer, address, key)
        self._thread = run_in_thread(self._loop, "parl_lite-client")
        self._await_joined(min(timeout, settings.liveness_timeout))

    # --- what remote.py needs ------------------------------------------------------------------------------

    def wish(self, name: str, needs: Needs, *, patient: bool = True) -> Wish:
        """Ask the cluster for a job, without waiting; `withdraw` the wish when its grant is no longer of use.

        Raises ResourceError when this process has too few file descriptors left. One that is not patient is refused
        as soon as it would have to wait for a slot.
        """
        try:
            hostos.need_descriptors(_DESCRIPTORS)
        except OSError as error:
            raise ResourceError(f"cannot create {name}: {error.strerror}, or destroy other actors.") from None
        wish = Wish(next(self._numbers), name, self.settings.poll_slice, patient=patient)
        self._wishes[wish.number] = wish
        self._loop.post(client_state.Wished(WantJob(wish.number, name, needs)))
        return wish

    def withdraw(self, wish: Wish) -> None:
        """Give up a wish, or the job that it was granted; a refused one is gone already."""
        grant = wish.withdraw()
        self._wishes.pop(wish.number, None)
        self._loop.post(client_state.GaveUp(wish.number) if grant is None else client_state.Released(grant.job))

    def no_room(self, wish: Wish) -> ResourceError:
        """Return the error for a wish that waited for `timeout` in vain."""
        if not self.state.joined:
            return ResourceError(f"cannot create {wish.name}: the master at {self.address} does not answer.")
        reason = wish.reason or "no worker had room"
        hint = "add a machine with `parl-lite connect`, end other actors, or connect with a longer timeout"
        return ResourceError(f"cannot create {wish.name}: no slot for it within {self.timeout:g} s ({reason}); {hint}.")

    def open_channel(self, grant: JobGranted, name: str) -> Channel:
        """Return the connection to a granted job; the job is released when the channel is gone."""
        label = f"{name} {grant.place.host} {grant.place.pid}"
        address = self.nearest(grant.addresses, grant.place.boot_id)

        def explain() -> ActorLostError:
            self._loop.post(client_state.Released(grant.job))
            return ActorLostError(f"{label} is lost: the connection to its process broke.")

        line = Line(data_dealer(self._context, self.settings), self.settings)
        packer = Packer(self.key, local=address.startswith("ipc://"))
        channel = Channel(line, label, self.settings, trusted=self.trusted, packer=packer, explain_loss=explain)
        line.connect(address, self.key)
        channel.introduce()
        self._channels[grant.job] = channel
        weakref.finalize(channel, self._loop.post, client_state.Released(grant.job)).atexit = False
        return channel

    def nearest(self, addresses: Sequence[str], boot_id: str) -> str:
        """Return the address to call a job at: its file when it is on this machine, else tcp."""
        return nearest(addresses, boot_id, self.place.boot_id)

    def release(self, job: str) -> None:
        """Let the cluster end a job."""
        self._loop.post(client_state.Released(job))

    @property
    def has_distributed_files(self) -> bool:
        """Whether the user named files beyond the project's own code."""
        return bool(self._distributed_files)

    def project(self) -> projects.Project:
        """Return the user's code as it is now; raises ParlError, for instance when it is too large."""
        return projects.find_project(self._distributed_files, limit=self.settings.max_project_size)

    def status(self, timeout: float) -> dict[str, Any]:
        """Return what the cluster looks like; raises NotConnectedError when the master does not answer."""
        with self._asking:
            while not self._reports.empty():
                self._reports.get_nowait()
            self._loop.post(client_state.AskedStatus())
            try:
                report: dict[str, Any] = json.loads(self._reports.get(timeout=timeout))
            except queue.Empty:
                raise NotConnectedError(f"the master at {self.address} does not answer.") from None
        return report

    def leave(self) -> None:
        """End all actors of this process, wait until they are gone, and close; ends an embedded cluster."""
        self._loop.post(client_state.Left())
        self._thread.join(self.settings.job_grace + 1.0)
        if self._thread.is_alive():
            self._loop.post(client_state.Quit())
            self._thread.join(1.0)
        for wish in list(self._wishes.values()):
            wish.refuse(NotConnectedError(f"{wish.name} is not created: this process disconnected from the cluster."))
        for channel in list(self._channels.values()):
            channel.lose(ActorLostError(f"{channel.label} is gone: this process disconnected from the cluster."))
            channel.close()
        self._loop.close()
        self._context.destroy(0)
        stores.disconnect()
        lending.trim()
        if self._cluster is not None:
            self._cluster.end()

    # --- the loop's actions --------------------------------------------------------------------------------

    def _perform(self, action: Any) -> None:
        match action:
            case client_state.Joined() | client_state.Rejected():
                self._joined.put(action)
            case client_state.Granted(grant):
                self._grant(grant)
            case client_state.Denied(number, never):
                self._refuse(number, never)
            case client_state.Waits(number, reason):
                self._delay(number, reason)
            case client_state.Lost(loss):
                channel = self._channels.get(loss.job)
                if channel is not None:
                    channel.lose(lost_error(channel.label, loss))
            case client_state.Print(printed):
                _print(printed)
            case client_state.Reported(report):
                self._reports.put(report)
            case _:
                raise AssertionError(f"unhandled: {action!r}")

    def _grant(self, grant: JobGranted) -> None:
        wish = self._wishes.pop(grant.wish, None)
        if wish is None or not wish.grant(grant):
            self.release(grant.job)

    def _refuse(self, number: int, reason: str) -> None:
        wish = self._wishes.pop(number, None)
        if wish is not None:
            wish.refuse(ResourceError(f"cannot create {wish.name}: {reason}."))

    def _delay(self, number: int, reason: str) -> None:
        wish = self._wishes.get(number)
        if wish is not None:
            wish.delay(reason)
            if not wish.patient:
                self.withdraw(wish)

    # --- joining -------------------------------------------------------------------------------------------

    def _await_joined(self, timeout: float) -> None:
        try:
            answer = self._joined.get(timeout=timeout)
        except queue.Empty:
            self._abandon()
            raise why_silent(self.address, self.key is not None, timeout) from None
        except BaseException:
            self._abandon()
            raise
        if isinstance(answer, client_state.Rejected):
            self._abandon()
            if answer.kind == "handshake":
                raise why_silent(self.address, self.key is not None, timeout)
            raise VersionError(f"{answer.reason}.") if answer.kind == "version" else ParlError(f"{answer.reason}.")

    def _abandon(self) -> None:
        self._loop.post(client_state.Quit())
        self._thread.join(5.0)
        self._loop.close()
        self._context.destroy(0)


def nearest(addresses: Sequence[str], boot_id: str, own_boot_id: str) -> str:
    """Return the ipc address when its file is on this machine, else the tcp address."""
    for address in addresses:
        if address.startswith("ipc://"):
            if boot_id == own_boot_id and os.path.exists(address.removeprefix("ipc://")):
                return address
        else:
            return address
    raise ActorLostError(f"the actor cannot be reached from this machine: it is at {', '.join(addresses)} only.")


def lost_error(label: str, loss: JobLost) -> ActorLostError:
    """Return the error for a lost job, with all that is known of its end."""
    kind = OutOfMemoryError if loss.out_of_memory else ActorLostError
    text = f"{label} is lost: its process {loss.reason}."
    if loss.log_tail.strip():
        text += f"\n--- its last output ---\n{loss.log_tail.rstrip()}"
    if loss.log_path:
        text += f"\n--- its log is {loss.log_path} on {loss.place.host} ---"
    error = kind(text)
    error.host, error.pid = loss.place.host, loss.place.pid
    error.exit_code, error.signal, error.log_path = loss.exit_code, loss.signal, loss.log_path
    return error


def _print(printed: JobPrinted) -> None:
    head = f"({printed.name} {printed.place.host} {printed.place.pid})"
    try:
        for line in printed.text.splitlines():
            sys.stdout.write(f"{head} {line}\n")
        sys.stdout.flush()
    except (ValueError, OSError):
        pass  # the driver closed its own output


# --- this process's client ---------------------------------------------------------------------------------

_current: Client | None = None
_lock = threading.Lock()  # guards _current while connect() and disconnect() run


def connect(
    address: str | None = None,
    distributed_files: Sequence[str] = (),
    *,
    n_cpu: int | None = None,
    gpu: Sequence[int] | None = None,
    key: str | None = None,
    log_to_driver: bool = True,
    allow_pickle: bool = True,
    timeout: float = 30.0,
) -> None:
    """Join a cluster; without an address start a private one on this machine, which ends with this process.

    Args:
        address: "HOST:PORT" of a master; None takes the environment variable PARL_LITE_ADDRESS, or starts a cluster.
        distributed_files: globs of further files that actors on other machines need, relative to the script's folder.
        n_cpu: slots of the private cluster, all cores by default.
        gpu: GPU ids of the private cluster, none by default.
        key: the cluster's key, as `parl-lite key` prints it; None: that of PARL_LITE_KEY or PARL_LITE_KEY_FILE, or the
            one that a cluster of this user on this machine keeps.
        log_to_driver: whether what actors print appears here.
        allow_pickle: whether results may be pickles; False accepts arrays, numbers and text only.
        timeout: seconds to wait for the cluster here, and for a free slot when an actor is created.

    Raises:
        NotConnectedError: no master answers, or this process is connected already.
        AuthenticationError: the cluster needs a key, or refuses this one.
        VersionError: this process and the master cannot work together.
    """
    global _current
    _check_arguments(n_cpu, distributed_files, timeout)
    with _lock:
        if _current is not None:
            raise NotConnectedError(f"already connected to {_current.address}: call parl_lite.disconnect() first.")
        settings = Settings.from_environment()
        address = address or os.environ.get("PARL_LITE_ADDRESS") or None
        if address is not None and (n_cpu is not None or gpu is not None):
            raise ValueError("n_cpu and gpu are for a private cluster: leave them out with an address.")
        cluster = None if address is not None else EmbeddedCluster(n_cpu, gpu, timeout, settings)

        def join(found_key: ClusterKey | None) -> Client:
            return Client(
                master,
                key=found_key,
                cluster=cluster,
                distributed_files=distributed_files,
                show_logs=log_to_driver,
                trusted=allow_pickle,
                timeout=timeout,
                settings=settings,
            )

        try:
            master = cluster.address if cluster is not None else parse_address(address or "")
            _current = keys.with_key_for(master, key, join)
            if distributed_files:
                _current.project()  # a pattern that matches nothing is told now, not at the first actor
        except BaseException:
            _discard(cluster)
            raise
    atexit.register(disconnect)
    _forget_in_children()


def disconnect() -> None:
    """Leave the cluster: all actors of this process end. Without a connection it does nothing."""
    global _current
    atexit.unregister(disconnect)
    with _lock:
        client, _current = _current, None
        if client is not None:
            client.leave()


def current() -> Client:
    """Return this process's client; raises NotConnectedError."""
    if _current is None:
        raise NotConnectedError(_NOBODY)
    return _current


def cluster_info() -> dict[str, Any]:
    """Return what the cluster looks like: address, n_cpu, free_cpu, workers with their jobs, waiting wishes, last deaths."""
    client = current()
    return client.status(client.settings.liveness_timeout)


def _discard(cluster: EmbeddedCluster | None) -> None:
    global _current
    client, _current = _current, None
    if client is not None:
        client.leave()
    elif cluster is not None:
        cluster.end()


@functools.cache
def _forget_in_children() -> None:
    os.register_at_fork(after_in_child=_forget)


def _forget() -> None:
    """In a forked child the connection is the parent's: its sockets must not be touched."""
    global _current
    _current = None


def _check_arguments(n_cpu: int | None, distributed_files: Sequence[str], timeout: float) -> None:
    if n_cpu is not None and (isinstance(n_cpu, bool) or not isinstance(n_cpu, int) or n_cpu < 1):
        raise ValueError(f"n_cpu is {n_cpu!r}: it must be a whole number of at least 1.")
    if isinstance(distributed_files, str):
        raise TypeError(f"distributed_files is the text {distributed_files!r}: it must be a list of patterns.")
    if not timeout > 0:
        raise ValueError(f"timeout is {timeout!r}: it must be a number of seconds above 0.")
