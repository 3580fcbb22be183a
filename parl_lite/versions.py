"""What this process tells of its versions in a handshake. Knows the messages."""

from __future__ import annotations

import platform

import numpy as np

from parl_lite.messages import PROTOCOL, Versions
from parl_lite.version import __version__


def own_versions() -> Versions:
    """Return the versions that must agree between all sides: protocol, package, Python minor, numpy major."""
    python = ".".join(platform.python_version_tuple()[:2])
    return Versions(PROTOCOL, __version__, python, np.__version__.split(".")[0])
