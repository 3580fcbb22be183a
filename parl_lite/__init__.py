"""parl_lite: a ZeroMQ actor-learner cluster framework for reinforcement learning in PyTorch.

    import parl_lite as parl
    parl.connect()                     # a private cluster on this machine; connect("HOST:8010") joins a running one

    @parl.remote_class
    class Actor: ...

Names are loaded on first use (PEP 562): the master and the command line need neither torch nor anything that unpickles.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from parl_lite.version import __version__

if TYPE_CHECKING:
    from parl_lite import algorithms as algorithms
    from parl_lite import utils as utils
    from parl_lite.agent import Agent as Agent
    from parl_lite.algorithm import Algorithm as Algorithm
    from parl_lite.batching import batched as batched
    from parl_lite.client import cluster_info as cluster_info
    from parl_lite.client import connect as connect
    from parl_lite.client import disconnect as disconnect
    from parl_lite.errors import ActorLostError as ActorLostError
    from parl_lite.errors import AuthenticationError as AuthenticationError
    from parl_lite.errors import NotConnectedError as NotConnectedError
    from parl_lite.errors import OutOfMemoryError as OutOfMemoryError
    from parl_lite.errors import ParlError as ParlError
    from parl_lite.errors import RemoteError as RemoteError
    from parl_lite.errors import ResourceError as ResourceError
    from parl_lite.errors import SerializationError as SerializationError
    from parl_lite.errors import VersionError as VersionError
    from parl_lite.futures import Future as Future
    from parl_lite.futures import as_completed as as_completed
    from parl_lite.futures import get as get
    from parl_lite.futures import wait as wait
    from parl_lite.model import Model as Model
    from parl_lite.pool import ActorPool as ActorPool
    from parl_lite.refs import Ref as Ref
    from parl_lite.refs import put as put
    from parl_lite.remote import remote_class as remote_class
    from parl_lite.rollout import Rollout as Rollout

_HOMES = {
    "agent": ("Agent",),
    "algorithm": ("Algorithm",),
    "batching": ("batched",),
    "client": ("cluster_info", "connect", "disconnect"),
    "errors": (
        "ActorLostError",
        "AuthenticationError",
        "NotConnectedError",
        "OutOfMemoryError",
        "ParlError",
        "RemoteError",
        "ResourceError",
        "SerializationError",
        "VersionError",
    ),
    "futures": ("Future", "as_completed", "get", "wait"),
    "model": ("Model",),
    "pool": ("ActorPool",),
    "refs": ("Ref", "put"),
    "remote": ("remote_class",),
    "rollout": ("Rollout",),
}
_PACKAGES = ("algorithms", "utils")
"""Sub-packages with PARL's names; `import parl_lite` reaches them, but does not load them."""
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME_OF)]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"parl_lite.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'parl_lite' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"parl_lite.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF, *_PACKAGES})
