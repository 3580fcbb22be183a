"""How many threads numeric libraries use in a job: as many as it has CPUs, unless the user said otherwise. Knows no process."""

from __future__ import annotations

import sys
from collections.abc import Mapping

VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def set_by_user(environment: Mapping[str, str]) -> bool:
    """Return whether the user chose the threads before the worker was started."""
    return any(name in environment for name in VARIABLES)


def defaults(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a zygote: one thread each where the user has not chosen."""
    return {name: environment.get(name, "1") for name in VARIABLES}


def limit(n_threads: int) -> None:
    """Raise (or lower) the threads of libraries that are loaded already, as in a fork of the zygote."""
    import threadpoolctl

    threadpoolctl.threadpool_limits(n_threads)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(n_threads)
