"""How an actor comes to be: a free slot, the user's code, the constructor. Knows the client and its channels.

client              master, worker                job
  ──WantJob────────────▶ (slot, process)
  ◀─JobGranted──────────
  ──PROJECT: which folder, on which machine──────▶  this very folder: RESULT, nothing to send
  ──CODE: the packed files, if it lacks them─────▶  unpacked, first on its sys.path
  ──CREATE: class, arguments, source texts───────▶  the constructor runs
  ◀─RESULT: attributes that hide methods──────────
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any, TypeVar

import cloudpickle

from parl_lite import client, frames, refs
from parl_lite import project as projects
from parl_lite.calls import Channel
from parl_lite.class_code import sources_of
from parl_lite.futures import FIRST_COMPLETED, Future, wait
from parl_lite.links import Address, Link, RestartingLink
from parl_lite.messages import JobGranted
from parl_lite.payload import Encoder
from parl_lite.proxy import Proxy, make_proxy

if TYPE_CHECKING:
    from parl_lite.remote import RemoteClass

ValueT = TypeVar("ValueT")


Steps = Generator[Future, None, ValueT]
"""Yields futures, to be asked for more when they are done; returns a value."""
Made = tuple[Link, set[str]]
"""The way to an actor, and the names of attributes that hide methods of its class."""


def create(remote: RemoteClass, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Proxy:
    """Create an actor and return its proxy once the constructor has run; raises what the constructor raised."""
    n_restarts = remote._options.max_restarts
    if not n_restarts:
        return make_proxy(remote, *_build(remote, args, kwargs))
    kept = refs.Kept()
    fixed = Encoder(kept.reducers).encode((args, kwargs), what=what(remote))

    def build_again() -> Link:
        args, kwargs = kept.decode(fixed)
        return _build(remote, args, kwargs)[0]

    link, hidden = _build(remote, args, kwargs)
    return make_proxy(remote, RestartingLink(link, build_again, n_restarts), hidden)


def _build(remote: RemoteClass, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Made:
    [made] = finish([Creation(remote, args, kwargs)])
    return made


class Creation:
    """An actor that is coming to be. Begins when it is made; goes on in `advance`, which never waits.

    Attributes:
        awaited: the future that it waits for.
        deadline: when it gives up, on the clock of time.monotonic; only the wait for a slot ends by itself.
        made: the way to the actor, once it is there.
    """

    def __init__(self, remote: RemoteClass, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, patient: bool = True) -> None:
        """Wish for a slot; raises NotConnectedError, ResourceError.

        Args:
            patient: waits for its turn where no slot is free; if not, it fails at once with ResourceError.
        """
        here = client.current()
        self.deadline = time.monotonic() + here.timeout
        self.made: Made | None = None
        self._steps = _steps(here, self.deadline, remote, args, kwargs, patient)
        self.awaited = next(self._steps)

    def advance(self) -> bool:
        """Go as far as is possible now; return whether the actor is there. Raises what creating it raises."""
        try:
            while self.made is None and (self.awaited.done() or time.monotonic() >= self.deadline):
                self.awaited = next(self._steps)
                self.deadline = math.inf  # the slot is there
        except StopIteration as end:
            self.made = end.value
        return self.made is not None

    def abandon(self) -> None:
        """End what is there of it, and give back the slot."""
        self._steps.close()
        if self.made is not None:
            self.made[0].destroy()


def finish(creations: Sequence[Creation]) -> list[Made]:
    """Wait for all of them, whose constructors run at the same time; when one fails, abandon all and raise its error."""
    try:
        while coming := [creation for creation in creations if not creation.advance()]:
            left = min(creation.deadline for creation in coming) - time.monotonic()
            wait([creation.awaited for creation in coming], None if left == math.inf else left, FIRST_COMPLETED)
    except BaseException:
        for creation in creations:
            creation.abandon()
        raise
    return [creation.made for creation in creations if creation.made is not None]


def _steps(
    here: client.Client,
    deadline: float,
    remote: RemoteClass,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    patient: bool,
) -> Steps[Made]:
    grant = yield from _slot(here, remote, deadline, patient)
    channel = None
    try:
        channel = here.open_channel(grant, remote.__name__)
        project = yield from _give_project(channel, here)
        sources = _prepare_class(remote._original, project)
        value = (remote, args, kwargs, sources)
        hidden = yield from _answer(channel.request(frames.CREATE, "", value, what(remote)))
    except BaseException:
        here.release(grant.job)
        if channel is not None:
            channel.close()
        raise
    return Link(channel, Address(grant.job, channel.label, grant.place.boot_id, grant.addresses, channel.stores)), set(hidden)


def _slot(here: client.Client, remote: RemoteClass, deadline: float, patient: bool) -> Steps[JobGranted]:
    wish = here.wish(remote.__name__, remote._options.needs(), patient=patient)
    try:
        yield wish.granted
        if not wish.granted.done():
            raise here.no_room(wish)
        grant: JobGranted = wish.granted.result()
    except BaseException:
        here.withdraw(wish)
        raise
    return grant


def _answer(future: Future) -> Steps[Any]:
    yield future
    return future.result()


def what(remote: RemoteClass) -> str:
    """Return what is sent, for messages."""
    return f"the class or an argument of {remote.__name__}()"


def _give_project(channel: Channel, here: client.Client) -> Steps[projects.Project | None]:
    """Let the job use the user's code; return what was shipped, None where the job uses the folder itself."""
    root, paths = projects.find_folder()
    place = {"root": root, "paths": list(paths), "identity": identity_of(root, here)}
    if not here.has_distributed_files:
        value = {**place, "digest": "", "in_place": True}
        if (yield from _answer(channel.request(frames.PROJECT, "", value, "the project"))) is None:
            return None
    project = here.project()
    value = {**place, "digest": project.digest, "in_place": project.in_place}
    answer = yield from _answer(channel.request(frames.PROJECT, "", value, "the project"))
    if answer == frames.NEED_CODE:
        yield from _answer(channel.request(frames.CODE, "", projects.pack(project), "the project"))
    return project


def identity_of(folder: str, here: client.Client) -> list[object]:
    """Return what is equal for two processes exactly when the path means the same folder to both."""
    found = os.stat(folder)
    return [here.place.boot_id, found.st_dev, found.st_ino]


def _prepare_class(original: type, project: projects.Project | None) -> dict[str, str]:
    """See to it that cloudpickle sends by value what the job cannot import; return the source text of that."""
    sources: dict[str, str] = {}
    for cls in original.__mro__:
        name = cls.__module__
        by_value = not _importable(name) or (project is not None and projects.travels_by_value(name, project))
        if by_value and name != "__main__" and name in sys.modules:
            cloudpickle.register_pickle_by_value(sys.modules[name])  # for good: arguments may be of its classes, too
        if by_value or "<locals>" in cls.__qualname__:
            sources |= sources_of(cls)
    return sources


def _importable(module_name: str) -> bool:
    """Say whether `import module_name` in a process with our sys.path gives the module that we have under this name."""
    module = sys.modules.get(module_name)
    if module is None or module_name == "__main__":
        return False
    package = sys.modules.get(module_name.rpartition(".")[0])
    for finder in sys.meta_path:
        spec = finder.find_spec(module_name, getattr(package, "__path__", None))
        if spec is not None:
            file = getattr(module, "__file__", None)
            return not spec.has_location or (file is not None and os.path.realpath(file) == _path_of(spec))
    return False


def _path_of(spec: ModuleSpec) -> str:
    return os.path.realpath(spec.origin or "")
