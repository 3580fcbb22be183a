"""Random numbers of a job: streams of its own, however it came to be. Knows the generators of Python, numpy and torch.

A fork repeats the numbers of its parent, and torch begins with the same seed in every process. All are seeded anew,
torch when the job imports it. Whoever wants the same numbers again seeds in the constructor of the actor.
"""

from __future__ import annotations

import importlib.util
import os
import random
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def renew() -> None:
    """Seed all generators of this process from the operating system."""
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(int.from_bytes(os.urandom(4), "little"))
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.seed()
    else:
        sys.meta_path.insert(0, _SeedTorch())


class _SeedTorch:
    """Finds torch once, as the other finders do, and seeds it when it is loaded."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            _seed_after(spec.loader)
        return spec


def _seed_after(loader: Any) -> None:
    load = loader.exec_module

    def load_and_seed(module: ModuleType) -> None:
        load(module)
        module.seed()

    loader.exec_module = load_and_seed
