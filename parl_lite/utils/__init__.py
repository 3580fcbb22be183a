"""PARL's utilities by PARL's names, each loaded on first use. Names only; knows nothing of clusters, and no torch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parl_lite.utils import logger as logger
    from parl_lite.utils import machine_info as machine_info
    from parl_lite.utils import rl_utils as rl_utils
    from parl_lite.utils import scheduler as scheduler
    from parl_lite.utils import summary as summary
    from parl_lite.utils import time_stat as time_stat
    from parl_lite.utils import window_stat as window_stat
    from parl_lite.utils.csv_logger import CSVLogger as CSVLogger
    from parl_lite.utils.machine_info import get_free_tcp_port as get_free_tcp_port
    from parl_lite.utils.machine_info import get_gpu_count as get_gpu_count
    from parl_lite.utils.machine_info import get_ip_address as get_ip_address
    from parl_lite.utils.machine_info import get_port_from_range as get_port_from_range
    from parl_lite.utils.machine_info import is_gpu_available as is_gpu_available
    from parl_lite.utils.machine_info import is_port_available as is_port_available
    from parl_lite.utils.model_methods import check_model_method as check_model_method
    from parl_lite.utils.replay_memory import ReplayMemory as ReplayMemory
    from parl_lite.utils.rl_utils import calc_discount_sum_rewards as calc_discount_sum_rewards
    from parl_lite.utils.rl_utils import calc_gae as calc_gae
    from parl_lite.utils.scheduler import LinearDecayScheduler as LinearDecayScheduler
    from parl_lite.utils.scheduler import PiecewiseScheduler as PiecewiseScheduler

_MODULES = {
    **{name: name for name in ("csv_logger", "logger", "machine_info", "replay_memory", "rl_utils", "scheduler", "summary")},
    **{name: name for name in ("time_stat", "window_stat")},
    "tensorboard": "summary",
}
_HOMES = {
    "csv_logger": ("CSVLogger",),
    "machine_info": (
        "get_free_tcp_port",
        "get_gpu_count",
        "get_ip_address",
        "get_port_from_range",
        "is_gpu_available",
        "is_port_available",
    ),
    "model_methods": ("check_model_method",),
    "replay_memory": ("ReplayMemory",),
    "rl_utils": ("calc_discount_sum_rewards", "calc_gae"),
    "scheduler": ("LinearDecayScheduler", "PiecewiseScheduler"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted({*_MODULES, *_HOME_OF})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = importlib.import_module(f"parl_lite.utils.{_MODULES[name]}")
    elif name in _HOME_OF:
        value = getattr(importlib.import_module(f"parl_lite.utils.{_HOME_OF[name]}"), name)
    else:
        raise AttributeError(f"module 'parl_lite.utils' has no attribute {name!r}; it has {', '.join(__all__)}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
