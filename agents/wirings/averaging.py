"""Averages gradients among learners, before each step of each optimiser. Knows torch.distributed; no actors, no wiring.

An algorithm need not know: every `torch.optim.Optimizer` among its attributes gets a hook, which replaces the gradients by
their mean over all learners that make this step. Learners may make different numbers of steps, because their batches are
not of the same size or one has none: who is through with its own takes part in those of the others, with nothing of its
own, until all are through (`join`), and then takes over the state of one who made them all.

Each step is two sums over all learners: a header, who steps with which optimiser, and the gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from parl_lite.algorithm import Algorithm
from parl_lite.errors import ParlError

TIMEOUT = 60.0
"""Seconds that a learner waits for the others; a killed one is noticed at once, this is for one that has stopped."""


class PeerLostError(ParlError):
    """Another learner is gone, or does not answer."""


class GradientAverage:
    """Keeps the optimisers of an algorithm in step with those of its peers. One for each process; see `form`."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        values = vars(algorithm).values()
        self.optimizers = [value for value in values if isinstance(value, torch.optim.Optimizer)]
        self.n_steps = 0
        if not self.optimizers:
            raise ParlError(f"{type(algorithm).__name__} has no optimiser of torch, so several learners cannot average.")
        for index, optimizer in enumerate(self.optimizers):
            optimizer.register_step_pre_hook(partial(self._before_step, index))

    def form(self, host: str, port: int, generation: int, rank: int, size: int) -> None:
        """Join a group of `size` learners, and take over the state of rank 0.

        Args:
            host, port: where the coordinator's TCPStore listens.
            generation: number of the group; a store is used for many.
        """
        self.leave()
        timeout = timedelta(seconds=TIMEOUT)
        with _peers_may_be_lost():
            store = TCPStore(host, port, is_master=False, timeout=timeout)
            group = PrefixStore(f"generation {generation}", store)
            dist.init_process_group("gloo", store=group, rank=rank, world_size=size, timeout=timeout)
            self._copy_state(0)

    def leave(self) -> None:
        """Leave the group, if there is one."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def join(self) -> None:
        """Take part in the steps of others until all are through, and have the state of one who made the most."""
        own, self.n_steps = self.n_steps, 0
        with _peers_may_be_lost():
            while True:
                n_active, index = self._header(None)
                if not n_active:
                    break
                dist.all_reduce(torch.zeros(sum(parameter.numel() for parameter in _parameters(self.optimizers[index]))))
            counts = [torch.zeros(1) for _ in range(dist.get_world_size())]
            dist.all_gather(counts, torch.tensor([float(own)]))
            steps = [int(count) for count in counts]
            if len(set(steps)) > 1:
                self._copy_state(steps.index(max(steps)))
            else:
                self._copy_buffers()

    def _before_step(self, index: int, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if not dist.is_initialized():
            return
        with _peers_may_be_lost():
            n_active, _ = self._header(index)
            parameters = _parameters(optimizer)
            flat = torch.cat([_gradient(parameter).reshape(-1).cpu() for parameter in parameters])
            dist.all_reduce(flat)
        flat /= n_active
        for parameter, mean in zip(parameters, flat.split([each.numel() for each in parameters]), strict=True):
            parameter.grad = mean.view_as(parameter).to(parameter.device, parameter.dtype)
        self.n_steps += 1

    def _header(self, index: int | None) -> tuple[int, int]:
        """Return how many learners make this step, and with which optimiser; `index` is that of this one, None without."""
        header = torch.zeros(len(self.optimizers))
        if index is not None:
            header[index] = 1
        dist.all_reduce(header)
        if (header > 0).sum() > 1:
            raise ParlError(f"learners are at different optimisers, {header.tolist()}: `learn` must step them in one order.")
        return int(header.sum()), int(header.argmax())

    def _copy_state(self, source: int) -> None:
        """Take over everything from one learner."""
        state = [self.algorithm.state_dict() if dist.get_rank() == source else None]
        dist.broadcast_object_list(state, src=source)
        if dist.get_rank() != source:
            self.algorithm.load_state_dict(state[0])  # type: ignore[arg-type]

    def _copy_buffers(self) -> None:
        """Take over the buffers of rank 0, such as running means: each learner has seen other observations."""
        for buffer in self._buffers():
            shared = buffer.detach().cpu()
            dist.broadcast(shared, src=0)
            buffer.copy_(shared)

    def _buffers(self) -> list[Tensor]:
        modules = [value for value in vars(self.algorithm).values() if isinstance(value, torch.nn.Module)]
        return [buffer for module in modules for buffer in module.buffers()]


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _gradient(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


@contextmanager
def _peers_may_be_lost() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # gloo knows no other
        raise PeerLostError(f"another learner is lost: {error}") from error
