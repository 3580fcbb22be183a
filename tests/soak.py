"""A standing cluster under load and random kills, for minutes or hours: python tests/soak.py --minutes 20 --seed 1.

Threads create actors, call them with small and large values, by futures and from several threads, and broadcast weights. Beside
them somebody kills and freezes jobs, workers and the master, which come again. At the end every call must have ended with the
right value or a typed error, nothing may be left, and no process may have grown; exit code 1 tells that a promise was broken.
"""

from __future__ import annotations

import argparse
import collections
import gc
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parent / "cluster"))

from daemons import StandingCluster, freeze, kill, n_descriptors, thaw

import parl_lite
from parl_lite import ActorLostError, RemoteError, ResourceError

N_SLOTS = 4
"""Of each worker."""
N_THREADS = 3
LIMIT = 60.0
"""A call that has not ended after so many seconds hangs."""
GROWTH = 24 * 1024 * 1024
"""Memory that a process may gain between the first look, when all parts have been in use, and the end."""
WARM_UP = 20.0
"""A process is measured first at this age, in seconds."""
SHORT = {"LIVENESS_TIMEOUT": 3, "HEARTBEAT_INTERVAL": 0.5, "REJOIN_GRACE": 1, "JOB_GRACE": 1, "MASTER_PATIENCE": 20}


@parl_lite.remote_class
class Subject:
    """Does what actors do."""

    def __init__(self, start: int = 0) -> None:
        self.n = start
        self.version = -1
        self.weights: dict = {}

    def add(self, k: int) -> int:
        self.n += k
        return self.n

    def echo(self, value):
        return value

    def double(self, value):
        return value * 2

    def set_weights(self, version: int, weights: dict) -> None:
        self.version, self.weights = version, weights

    def sample(self) -> tuple[int, float]:
        return self.version, float(self.weights["w"].sum())

    def fail(self, text: str) -> None:
        raise KeyError(text)

    def pause(self, seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    def leave(self) -> None:
        sys.exit(3)


class Tally:
    """What happened, counted by all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the counters below
        self.done: collections.Counter[str] = collections.Counter()
        self.errors: collections.Counter[str] = collections.Counter()
        self.faults: collections.Counter[str] = collections.Counter()
        self.violations: list[str] = []

    def count(self, counter: collections.Counter[str], what: str) -> None:
        with self._lock:
            counter[what] += 1

    def violation(self, text: str) -> None:
        with self._lock:
            self.violations.append(text)
        print(f"VIOLATION: {text}", flush=True)


class Load:
    """One thread of a user: does one thing after the other until told to stop."""

    def __init__(self, tally: Tally, seed: int, stop: threading.Event) -> None:
        self._tally = tally
        self._dice = random.Random(seed)
        self._stop = stop
        self._scenes: list[Callable[[], None]] = [
            self._few_small_calls,
            self._values_of_all_kinds,
            self._large_values,
            self._many_futures,
            self._two_threads_one_handle,
            self._broadcast,
            self._errors_of_the_actor,
            self._restarting_actor,
            self._cancelled_calls,
        ]

    def run(self) -> None:
        while not self._stop.is_set():
            scene = self._dice.choice(self._scenes)
            try:
                scene()
                self._tally.count(self._tally.done, scene.__name__.strip("_"))
            except (ActorLostError, ResourceError) as error:
                self._tally.count(self._tally.errors, _kind(error))
            except Wrong as error:
                self._tally.violation(f"{scene.__name__}: wrong value: {error}")
            except TimeoutError as error:
                self._tally.violation(f"{scene.__name__}: a hang: {error}")
            except BaseException as error:
                self._tally.violation(f"{scene.__name__}: {type(error).__name__}: {error}")
            self._stop.wait(self._dice.uniform(0, 0.1))

    def _expect(self, got: object, wanted: object) -> None:
        self._tally.count(self._tally.done, "calls")
        if got != wanted:
            raise Wrong(f"{got!r} instead of {wanted!r}")

    # --- scenes --------------------------------------------------------------------------------------------

    def _few_small_calls(self) -> None:
        actor = Subject(5)
        for i in range(self._dice.randrange(1, 200)):
            self._expect(actor.add(1), 6 + i)
        if self._dice.random() < 0.5:
            actor.destroy()

    def _values_of_all_kinds(self) -> None:
        actor = Subject()
        for value in (None, 3, "text", [1, (2.5, {"a": b"x"})], {"k": [True, None]}, 2**70):
            self._expect(actor.echo(value), value)
        actor.n = 7
        self._expect(actor.n, 7)

    def _large_values(self) -> None:
        actor = Subject()
        for _ in range(self._dice.randrange(1, 6)):
            value = np.arange(self._dice.randrange(1, 1_000_000), dtype=np.float32)
            self._expect(bool(np.array_equal(actor.double(value), value * 2)), True)

    def _many_futures(self) -> None:
        actors = [Subject() for _ in range(2)]
        futures = {actor.futures.echo(i): i for i in range(50) for actor in actors}
        for future in parl_lite.as_completed(list(futures), timeout=LIMIT):
            self._expect(future.result(), futures[future])
        sums = [actors[0].futures.add(1) for _ in range(100)]
        _, waiting = parl_lite.wait(sums, timeout=LIMIT)
        self._expect(len(waiting), 0)
        self._expect([future.result(LIMIT) for future in sums], list(range(1, 101)))

    def _two_threads_one_handle(self) -> None:
        actor = Subject()
        outcomes: list[object] = []

        def call(name: str) -> None:
            try:
                outcomes.extend(actor.echo((name, i)) == (name, i) for i in range(50))
            except ActorLostError:
                outcomes.append("lost")

        threads = [threading.Thread(target=call, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
            self._expect(thread.is_alive(), False)
        self._expect(False in outcomes, False)

    def _broadcast(self) -> None:
        actors = [Subject() for _ in range(2)]
        for version in range(self._dice.randrange(2, 10)):
            weights = {"w": np.full(self._dice.randrange(1, 300_000), version, np.float64), "b": np.zeros(10, np.float32)}
            sent = [actor.futures.set_weights(version, weights) for actor in actors]
            samples = [actor.futures.sample() for actor in actors]
            total = float(weights["w"].sum())
            weights["w"][:] = -1  # too late: a value is fixed when the call is made
            for future, sample in zip(sent, samples, strict=True):
                self._expect(future.result(LIMIT), None)
                self._expect(tuple(sample.result(LIMIT)), (version, total))

    def _errors_of_the_actor(self) -> None:
        actor = Subject()
        for i in range(5):
            try:
                actor.fail(f"number {i}")
            except KeyError as error:
                self._expect((isinstance(error, RemoteError), f"number {i}" in str(error)), (True, True))
        self._expect(actor.add(1), 1)
        if self._dice.random() < 0.3:
            with suppress(ActorLostError):
                actor.leave()
                raise Wrong("an actor that left answered")

    def _restarting_actor(self) -> None:
        actor = parl_lite.remote_class(max_restarts=5)(Subject._original)(11)
        for i in range(30):
            with suppress(ActorLostError):
                self._expect(actor.futures.echo(i).result(LIMIT), i)
            self._stop.wait(0.02)

    def _cancelled_calls(self) -> None:
        actor = Subject()
        first = actor.futures.pause(0.1)
        rest = [actor.futures.add(1) for _ in range(20)]
        for future in rest:  # one that has begun, was answered or was lost meanwhile is not cancelled, and says so
            self._expect(future.cancel() or future.running() or future.done(), True)
        self._expect(first.result(LIMIT), 0.1)
        self._expect(actor.add(0) <= 20, True)


def _kind(error: Exception) -> str:
    """Return the type and the words of an error without numbers and names, so that equal ones are counted together."""
    return f"{type(error).__name__}: {re.sub(r'[^ ]*[0-9][^ ]*', '#', str(error).splitlines()[0])[:110]}"


class Wrong(Exception):
    """A value is not what it must be."""


class Fate:
    """Kills and freezes what it finds, and lets workers and masters come again."""

    def __init__(self, tally: Tally, seed: int, cluster: StandingCluster) -> None:
        self._tally = tally
        self._dice = random.Random(seed)
        self._cluster = cluster
        self._strokes = [
            (60, self._kill_a_job),
            (15, self._freeze_a_job_for_a_moment),
            (5, self._freeze_a_worker),
            (6, self._kill_a_worker),
            (5, self._end_a_worker_in_order),
            (3, self._kill_the_master),
            (2, self._freeze_the_master),
            (3, self._kill_a_zygote),
            (3, self._kill_another_client),
        ]

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(self._dice.uniform(0.3, 3.0)):
            weights, strokes = zip(*self._strokes, strict=True)
            [stroke] = self._dice.choices(strokes, weights)
            try:
                stroke()
                self._tally.count(self._tally.faults, stroke.__name__.strip("_"))
            except ProcessLookupError:
                pass  # it ended by itself
            except BaseException as error:
                self._tally.violation(f"{stroke.__name__}: {type(error).__name__}: {error}")

    def _family(self) -> tuple[list[int], list[int]]:
        """Return (jobs, zygotes) of all workers."""
        jobs, zygotes = [], []
        for worker in self._cluster.workers:
            for child in psutil.Process(worker.process.pid).children():
                (zygotes if _is_zygote(child.pid) else jobs).append(child.pid)
        return jobs, zygotes

    def _a_job(self) -> int:
        jobs, _ = self._family()
        if not jobs:
            raise ProcessLookupError
        return self._dice.choice(jobs)

    def _kill_a_job(self) -> None:
        kill(self._a_job())

    def _freeze_a_job_for_a_moment(self) -> None:
        pid = self._a_job()
        freeze(pid)
        time.sleep(self._dice.uniform(0, 0.5))
        thaw(pid)

    def _freeze_a_worker(self) -> None:
        pid = self._dice.choice(self._cluster.workers).process.pid
        freeze(pid)
        time.sleep(self._dice.choice([0.5, 6.0]))
        thaw(pid)

    def _kill_a_worker(self) -> None:
        self._cluster.kill(self._dice.choice(self._cluster.workers))
        self._cluster.start_worker(N_SLOTS)

    def _end_a_worker_in_order(self) -> None:
        self._cluster.end_worker(self._dice.choice(self._cluster.workers))
        self._cluster.start_worker(N_SLOTS)

    def _kill_the_master(self) -> None:
        self._cluster.kill(self._cluster.master)
        time.sleep(self._dice.uniform(0, 2.0))
        self._cluster.start_master()

    def _freeze_the_master(self) -> None:
        pid = self._cluster.master.process.pid
        freeze(pid)
        time.sleep(self._dice.choice([0.5, 5.0]))
        thaw(pid)

    def _kill_another_client(self) -> None:
        lines = [
            "import parl_lite",
            f"parl_lite.connect({self._cluster.address!r}, log_to_driver=False, timeout=20)",
            "actor = parl_lite.remote_class(type('Other', (), {'pause': lambda self, s: __import__('time').sleep(s)}))()",
            "future = actor.futures.pause(1000)",
            "print('works', flush=True)",
            "future.result()",
        ]
        client = subprocess.Popen([sys.executable, "-c", "\n".join(lines)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        client.stdout.readline()
        client.kill()
        client.communicate()

    def _kill_a_zygote(self) -> None:
        _, zygotes = self._family()
        kill(self._dice.choice(zygotes))


def _is_zygote(pid: int) -> bool:
    """Return whether a child of a worker is its zygote: that hears its worker on standard input, jobs hear nothing."""
    try:
        return os.readlink(f"/proc/{pid}/fd/0").startswith("socket:")
    except OSError:
        return False


class Watch:
    """Looks at the memory and descriptors of every process, from the time on when all parts have been in use."""

    def __init__(self, cluster: StandingCluster) -> None:
        self._cluster = cluster
        self._first: dict[tuple[str, int], tuple[int, int]] = {}
        self._last: dict[tuple[str, int], tuple[int, int]] = {}

    def look(self) -> str:
        """Measure all; return the sums as a line."""
        roles = [("client", os.getpid()), ("master", self._cluster.master.process.pid)]
        for worker in list(self._cluster.workers):
            roles.append(("worker", worker.process.pid))
            with suppress(psutil.Error):
                children = [child.pid for child in psutil.Process(worker.process.pid).children()]
                roles += [("zygote", pid) for pid in children if _is_zygote(pid)]
        for role, pid in roles:
            with suppress(psutil.Error):
                found = psutil.Process(pid)
                if time.time() - found.create_time() > WARM_UP:
                    self._last[role, pid] = found.memory_info().rss, n_descriptors(pid)
                    self._first.setdefault((role, pid), self._last[role, pid])
        return " ".join(f"{role} {self._last[role, pid][0] >> 20} MB" for role, pid in roles if (role, pid) in self._last)

    def table(self, tally: Tally) -> list[str]:
        """Return a line for each role, with its processes that grew most; more than GROWTH is a violation."""
        lines = []
        for role in ("client", "master", "worker", "zygote"):
            grown = {pid: self._last[name, pid][0] - first[0] for (name, pid), first in self._first.items() if name == role}
            if not grown:
                continue
            most = max(grown, key=lambda pid: grown[pid])
            (before, n_before), (memory, n_open) = self._first[role, most], self._last[role, most]
            figures = f"memory {before >> 20:4} -> {memory >> 20:4} MB, files {n_before:3} -> {n_open:3}"
            lines.append(f"  {role:8} {len(grown):4} lived long enough; grew most: {figures}")
            if grown[most] > GROWTH:
                tally.violation(f"{role} {most} grew from {before >> 20} to {memory >> 20} MB")
        return lines


# --- the whole --------------------------------------------------------------------------------------------


def main() -> int:
    """Run; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    os.nice(10)
    folder = tempfile.mkdtemp(prefix="pl", dir="/tmp")
    os.environ.update({f"PARL_LITE_{name}": str(value) for name, value in SHORT.items()})
    os.environ.update(TMPDIR=folder, PARL_LITE_PRELOAD="")
    tempfile.tempdir = None
    tally = Tally()
    try:
        _soak(arguments.minutes * 60, arguments.seed, arguments.workers, tally)
        _check_nothing_is_left(Path(folder), tally)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{'violations':12} {len(tally.violations)}", *tally.violations, sep="\n  ", flush=True)
    return 1 if tally.violations else 0


def _soak(seconds: float, seed: int, n_workers: int, tally: Tally) -> None:
    shared_before = set(os.listdir("/dev/shm"))
    cluster = StandingCluster()
    try:
        cluster.start_master()
        for _ in range(n_workers):
            cluster.start_worker(N_SLOTS)
        parl_lite.connect(cluster.address, log_to_driver=False)
        watch = Watch(cluster)
        _rage(seconds, seed, cluster, watch, tally)
        _check_all_is_free(n_workers * N_SLOTS, tally)
        watch.look()
        _print_table(watch, tally)
        parl_lite.disconnect()
    finally:
        cluster.end()
    if set(os.listdir("/dev/shm")) - shared_before:
        tally.violation(f"shared memory is left: {set(os.listdir('/dev/shm')) - shared_before}")


def _rage(seconds: float, seed: int, cluster: StandingCluster, watch: Watch, tally: Tally) -> None:
    calm, over = threading.Event(), threading.Event()
    loads = [threading.Thread(target=Load(tally, seed * 100 + i, over).run) for i in range(N_THREADS)]
    fate = threading.Thread(target=Fate(tally, seed, cluster).run, args=(calm,))
    begin = time.monotonic()
    for thread in (*loads, fate):
        thread.start()
    while (passed := time.monotonic() - begin) < seconds and not tally.violations:
        over.wait(min(10.0, seconds - passed))
        counts = f"{tally.done['calls']} calls, {tally.errors.total()} errors, {tally.faults.total()} faults"
        print(f"{time.monotonic() - begin:6.0f} s  {counts}  {watch.look()}", flush=True)
    calm.set()
    fate.join(LIMIT)
    over.set()
    for thread in loads:
        thread.join(2 * LIMIT)
        if thread.is_alive():
            tally.violation("a thread of the load hangs")


def _check_all_is_free(n_cpu: int, tally: Tally) -> None:
    """Wait until all slots are free, and count once."""
    gc.collect()
    deadline = time.monotonic() + 20
    while True:
        with suppress(parl_lite.NotConnectedError):
            info = parl_lite.cluster_info()
            if (info["free_cpu"], info["n_cpu"]) == (n_cpu, n_cpu):
                return
        if time.monotonic() > deadline:
            tally.violation(f"slots are not free: {info}")
            return
        time.sleep(0.1)


def _check_nothing_is_left(folder: Path, tally: Tally) -> None:
    deadline = time.monotonic() + 10
    while (left := _processes_in(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    files = [str(path) for path in folder.glob("parl_lite-*/*") if path.name != ".making"]
    for thing in (*left, *files):
        tally.violation(f"is left: {thing}")


def _processes_in(folder: Path) -> list[str]:
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "environ"]):
        if process.pid != os.getpid() and (process.info["environ"] or {}).get("TMPDIR") == str(folder):
            found.append(f"process {process.pid} {' '.join(process.info['cmdline'] or ())}")
    return found


def _print_table(watch: Watch, tally: Tally) -> None:
    for title, counter in (("scenes", tally.done), ("errors", tally.errors), ("faults", tally.faults)):
        print(title, *(f"  {n:6} {name}" for name, n in sorted(counter.items())), sep="\n")
    print("processes", *watch.table(tally), sep="\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
