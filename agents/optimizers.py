"""Adam, and RMSProp as TensorFlow has it, without the load of torch's compiler. Knows torch only."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class WithoutCompiler(torch.optim.Optimizer):
    """An optimiser that leaves torch.compile alone.

    The methods of torch's own import torch._dynamo when they are first called, to tell it to keep out of them. That takes
    70 MB and some seconds in each process, and is of use within torch.compile only.
    """

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)


class Adam(WithoutCompiler, torch.optim.Adam):
    """torch's Adam."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make a step against the gradients; return what `closure`, which may compute them, does."""
        return inspect.unwrap(torch.optim.Adam.step)(self, closure)


class RMSpropTF(WithoutCompiler):
    """RMSProp without momentum, with epsilon under the root and a mean square that begins at 1.

        m <- decay m + (1 - decay) g^2          w <- w - lr g / sqrt(m + epsilon)

    torch's RMSprop divides by sqrt(m) + epsilon and begins with m = 0: a first step with a tenfold rate, and another
    meaning of large epsilons, such as A3C's 0.1.

    Args:
        parameters: to optimise.
        lr: learning rate.
        decay: of the mean square.
        epsilon: added to it.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float, decay: float = 0.99, epsilon: float = 1e-5) -> None:
        super().__init__(parameters, {"lr": lr, "decay": decay, "epsilon": epsilon})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make a step against the gradients; return what `closure`, which may compute them, does."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self._step_group(group)
        return loss

    def _step_group(self, group: dict[str, Any]) -> None:
        parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
        if not parameters:
            return
        gradients = [parameter.grad for parameter in parameters]
        means = [self._mean_square(parameter) for parameter in parameters]
        torch._foreach_mul_(means, group["decay"])
        torch._foreach_addcmul_(means, gradients, gradients, value=1 - group["decay"])
        roots = torch._foreach_add(means, group["epsilon"])
        torch._foreach_sqrt_(roots)
        torch._foreach_addcdiv_(parameters, gradients, roots, value=-group["lr"])

    def _mean_square(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if "mean_square" not in state:
            state["mean_square"] = torch.ones_like(parameter)
        mean: Tensor = state["mean_square"]
        return mean
