"""The command line `parl-lite`: start, connect, status, key, stop, logs. Says what was done and what to type next.

Knows no protocol. Success is only claimed after it was seen. An error is one sentence, with the remedy, on
standard error, and exit code 1.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from parl_lite import keys
from parl_lite.errors import ParlError
from parl_lite.messages import AskStatus, Status
from parl_lite.security import ClusterKey
from parl_lite.settings import Settings
from parl_lite.sockets import ip_of, parse_address
from parl_lite.version import __version__

from . import addresses, job_logs, nodes, standing
from .ask import ask, insist_on_listener, plain, somebody_listens
from .nodes import Cluster
from .options import checked, offer_options, port_number
from .standing import Manner, Offer, Standing
from .status_view import view

_PORT = 8010
_LOOK_TIMEOUT = 1.0
_FOLLOW_PAUSE = 0.1
_WIDTH_OF_A_PIPE = 160


class Commands(click.Group):
    """Our errors end a command with one sentence; PARL's spelling of options is understood."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except (ParlError, OSError) as error:
            raise click.ClickException(str(error)) from None


def _spelling(name: str) -> str:
    return {"cpu_num": "n-cpu"}.get(name, name.replace("_", "-"))


@click.group(cls=Commands, context_settings={"token_normalize_func": _spelling, "help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="parl-lite")
def main() -> None:
    """Clusters for parl_lite: start one, add machines, look at it, stop it."""


# --- start and connect -------------------------------------------------------------------------------------


@main.command()
@click.option("--host", default=addresses.LOOPBACK, show_default=True, help="Where to listen; 0.0.0.0 for all networks.")
@click.option("--port", default=str(_PORT), show_default=True, callback=checked(port_number), help="0 for any free one.")
@click.option("--insecure", is_flag=True, help="No key: whoever reaches the port can run programs on the machines.")
@offer_options
def start(
    host: str,
    port: int,
    insecure: bool,
    key_file: Path | None,
    n_cpu: int | None,
    gpu: tuple[str, ...],
    ports: str | None,
    advertise: str | None,
    block: bool,
) -> None:
    """Start a cluster: a master, and a worker of this machine (none with --n-cpu 0).

    Its key is that of --key-file, PARL_LITE_KEY or PARL_LITE_KEY_FILE, or else a new one, which `parl-lite key` shows.
    """
    settings = _settings()
    host = _listening_host(host)
    if insecure:
        click.echo(standing.warning_about(host), err=True)
    manner = Manner(block, None if insecure else _given_key(key_file) or ClusterKey.new(), settings)
    offer = Offer(n_cpu, gpu, ports, _advertised(advertise or addresses.advertised(host)))
    with _ending_on_signals(block) as started:
        started.append(_master(addresses.join(host, port), manner))
        port = addresses.split(started[0].said["address"])[1]
        if n_cpu != 0:
            from_here = addresses.join(addresses.reachable(host), port)
            parent = started[0].node.process.pid
            started.append(standing.start_worker(from_here, offer, parent, manner))
        _say_started(addresses.join(offer.advertise or host, port), port, started[1:])
        if not insecure and not addresses.is_loopback(host):
            click.echo("Other machines need its key: there set PARL_LITE_KEY to what `parl-lite key` prints here.")
        if block:
            _stay(started)
    _leave_running(started)


@main.command()
@click.argument("address", required=False)
@click.option("--address", "spelled_out", hidden=True)
@offer_options
def connect(
    address: str | None,
    spelled_out: str | None,
    key_file: Path | None,
    n_cpu: int | None,
    gpu: tuple[str, ...],
    ports: str | None,
    advertise: str | None,
    block: bool,
) -> None:
    """Add this machine as a worker to the cluster whose master listens at ADDRESS (HOST:PORT)."""
    settings = _settings()
    master = _address(address or spelled_out or "")
    if n_cpu == 0:
        raise click.ClickException("--n-cpu 0 offers nothing: leave it out to offer all cores.")
    offer = Offer(n_cpu, gpu, ports, _advertised(advertise) if advertise else None)
    given = _given_key(key_file)
    ask(master, AskStatus(), Status, settings.liveness_timeout, settings, given)  # it may be starting just now
    key = given or keys.key_for(master)
    parent = os.getpid() if block else None
    with _ending_on_signals(block) as started:
        started.append(standing.start_worker(plain(master), offer, parent, Manner(block, key, settings)))
        click.echo(f"This machine joined the cluster at {plain(master)} with {_offered(started[0])}.")
        click.echo(f"Next: `parl-lite status --address {plain(master)}` shows it, `parl-lite stop` ends it.")
        if block:
            _stay(started)
    _leave_running(started)


def _master(address: str, manner: Manner) -> Standing:
    try:
        return standing.start_master(address, manner)
    except ParlError as error:
        raise _why_not(address, error, manner.settings) from None


def _given_key(key_file: Path | None) -> ClusterKey | None:
    return ClusterKey.from_file(key_file) if key_file is not None else ClusterKey.from_environment()


def _why_not(address: str, error: ParlError, settings: Settings) -> ParlError:
    """Return the error of a master that did not start; who holds the port is asked, not guessed."""
    host, port = addresses.split(address)
    from_here = f"tcp://{addresses.join(addresses.reachable(host), port)}"
    if port == 0 or not somebody_listens(from_here):
        return error
    try:
        ask(from_here, AskStatus(), Status, _LOOK_TIMEOUT, settings)
    except ParlError:
        return ParlError(f"port {port} on {host} is in use by another program: choose a free one with --port.")
    return ParlError(
        f"a cluster runs at {plain(from_here)} already, so port {port} is in use: use that one, stop it with "
        f"`parl-lite stop --port {port}`, or start another with --port."
    )


def _listening_host(text: str) -> str:
    host = ip_of(text.strip("[]"))
    if not addresses.is_of_this_machine(host):
        raise ParlError(
            f"--host {text} is no address of this machine: write one it has, for instance {addresses.outward()}, "
            "or 0.0.0.0 for all."
        )
    return host


def _advertised(text: str) -> str:
    host = ip_of(text.strip("[]"))
    if not addresses.is_of_this_machine(host):
        note = f"note: {text} is no address of this machine: actors listen on all it has, and are called at that one"
        click.echo(f"{note}; what stands there must hand the connections on, port by port (see --ports).", err=True)
    return host


def _say_started(address: str, port: int, workers: Sequence[Standing]) -> None:
    if workers:
        click.echo(f"A cluster runs at {address}, with {_offered(workers[0])} of this machine.")
        click.echo(f"Next: `PARL_LITE_ADDRESS={address} python SCRIPT.py` uses it,", nl=False)
    else:
        click.echo(f"A master runs at {address}, without any worker yet.")
        click.echo(f"Next: `parl-lite connect {address}` adds a machine,", nl=False)
    click.echo(f" `parl-lite status` shows it, `parl-lite stop --port {port}` ends it.")


def _offered(worker: Standing) -> str:
    n_cpu, n_gpu = worker.said["n_cpu"], len(worker.said["gpus"])
    return f"{n_cpu} CPU{'s' * (n_cpu != 1)}" + (f" and {n_gpu} GPU{'s' * (n_gpu != 1)}" if n_gpu else "")


@contextmanager
def _ending_on_signals(block: bool) -> Iterator[list[Standing]]:
    """Collect started nodes; end them, the last first, when anything goes wrong or SIGTERM or SIGINT comes.

    A signal is the regular end of nodes in the foreground.
    """
    started: list[Standing] = []
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield started
    except BaseException as error:
        settings = _settings()
        for node in reversed(started):
            node.end(settings)
        if not (block and started and isinstance(error, KeyboardInterrupt)):
            raise
        started.clear()
    finally:
        signal.signal(signal.SIGTERM, before)


def _stay(started: Sequence[Standing]) -> None:
    """Wait until the nodes end by themselves, because their cluster was stopped; raises ParlError when one broke.

    A worker is waited for first: it ends with its master, but not the other way round.
    """
    for node in reversed(started):
        code = node.node.process.wait()
        if code:
            raise ParlError(f"the {node.node.role} process ended with code {code}; what it wrote is above.")


def _leave_running(started: Sequence[Standing]) -> None:
    for node in started:
        node.node.leave_running()


# --- status ------------------------------------------------------------------------------------------------


@main.command()
@click.option("--address", metavar="HOST:PORT", help="The master; the one of this machine by default.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON.")
def status(address: str | None, as_json: bool) -> None:
    """Show workers, jobs, waiting wishes and the last deaths."""
    settings = _settings()
    given = address or os.environ.get("PARL_LITE_ADDRESS")
    master = _address(given or _the_one_cluster("--address HOST:PORT").address)
    insist_on_listener(master)
    report = json.loads(ask(master, AskStatus(), Status, settings.liveness_timeout, settings).report)
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE, highlight=False)
    for part in view(report, plain(master)):
        console.print(part, soft_wrap=isinstance(part, Text))


def _the_one_cluster(option: str) -> Cluster:
    """Return the cluster of this machine when there is exactly one."""
    found = nodes.clusters()
    if not found:
        raise ParlError("no cluster runs on this machine: start one with `parl-lite start`.")
    if len(found) > 1:
        where = ", ".join(cluster.address for cluster in found)
        raise ParlError(f"{len(found)} clusters run on this machine, at {where}: say which one with {option}.")
    return found[0]


# --- key ---------------------------------------------------------------------------------------------------


@main.command()
@click.option("--port", callback=checked(port_number), help="The master's; needed when several clusters run here.")
def key(port: int | None) -> None:
    """Print the key of the cluster of this machine, for other machines: PARL_LITE_KEY, or a file of mode 0600."""
    port = port if port is not None else _the_one_cluster("--port").port
    found = keys.kept_key(port)
    if found is None:
        raise ParlError(f"no node with a key of a cluster at port {port} runs on this machine (see `parl-lite status`).")
    click.echo(found.text)


# --- stop --------------------------------------------------------------------------------------------------


@main.command()
@click.option("--port", callback=checked(port_number), help="The master's; needed when several clusters run here.")
def stop(port: int | None) -> None:
    """Stop the cluster of this machine, and no other; on a machine that only joined one, leave it."""
    settings = _settings()
    try:
        _stop(port, settings)
    finally:
        nodes.sweep()


def _stop(port: int | None, settings: Settings) -> None:
    cluster = _cluster_at(port) if port is not None else _the_one_cluster("--port")
    if cluster is None:
        address = addresses.join(addresses.LOOPBACK, port or _PORT)
        if not somebody_listens(f"tcp://{address}"):
            raise ParlError(f"no cluster runs at port {port} of this machine: `parl-lite status` finds the one that does.")
        standing.stop_stranger(address, settings)
        click.echo(f"Stopped the cluster at {address}. Next: `parl-lite start --port {port}` starts a new one.")
        return
    standing.stop(cluster, settings)
    ended = f"{len(cluster.nodes)} node{'s' * (len(cluster.nodes) != 1)} of this machine ended"
    if cluster.has_its_master_here:
        click.echo(f"Stopped the cluster at {cluster.address}: {ended}.")
        click.echo(f"Next: `parl-lite start --port {cluster.port}` starts a new one.")
    else:
        click.echo(f"This machine left the cluster at {cluster.address}: {ended}; the cluster goes on.")
        click.echo(f"Next: `parl-lite connect {cluster.address}` joins it again.")


def _cluster_at(port: int) -> Cluster | None:
    """Return the cluster with this port of which nodes run here; one with its master here comes first."""
    found = sorted(nodes.clusters(), key=lambda cluster: not cluster.has_its_master_here)
    return next((cluster for cluster in found if cluster.port == port), None)


# --- logs --------------------------------------------------------------------------------------------------


@main.command()
@click.argument("actor")
@click.option("--follow", "-f", is_flag=True, help="Go on with the newest one until its actor has ended.")
def logs(actor: str, follow: bool) -> None:
    """Print what actors of a class, or one job, wrote on this machine; the newest first."""
    found = job_logs.find(actor)
    if not found:
        known = ", ".join(job_logs.known_names())
        there = f"there are logs of {known}" if known else "no actor has run here"
        raise ParlError(f"no log of {actor!r} on this machine ({there}): name a class or a job as `parl-lite status` does.")
    if follow:
        _copy(job_logs.follow(found[0], lambda: threading.Event().wait(_FOLLOW_PAUSE)))
        return
    for path in found:
        if len(found) > 1:
            click.echo(f"==> {path} <==")
        _copy(job_logs.read(path))


def _copy(parts: Iterator[bytes]) -> None:
    for part in parts:
        click.echo(part, nl=False)


# --- common ------------------------------------------------------------------------------------------------


def _settings() -> Settings:
    try:
        return Settings.from_environment()
    except ValueError as error:
        raise ParlError(f"{error}.") from None


def _address(text: str) -> str:
    try:
        return parse_address(text)
    except ValueError as error:
        raise ParlError(str(error)) from None
