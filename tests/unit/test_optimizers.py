"""The optimisers: torch's Adam without the load of its compiler."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch

from parl_lite.agents.optimizers import Adam, RMSpropTF

SCRIPT = """
import sys, torch
from parl_lite.agents.optimizers import Adam, RMSpropTF
for make in (Adam, RMSpropTF):
    weight = torch.ones(3, requires_grad=True)
    optimizer = make([weight], lr=0.1)
    (weight * weight).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.load_state_dict(optimizer.state_dict())
assert weight[0] < 1
assert "torch._dynamo" not in sys.modules
torch.optim.Adam([weight])
assert "torch._dynamo" in sys.modules, "torch has changed: WithoutCompiler is of no use any more"
"""


def test_the_optimisers_leave_the_compiler_of_torch_alone():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


def descend(optimizer: torch.optim.Optimizer, weight: torch.Tensor, n: int) -> None:
    for power in range(2, 2 + n):
        optimizer.zero_grad()
        (weight**power).sum().backward()
        optimizer.step()


@pytest.mark.parametrize("fused", [True, None])
def test_adam_is_that_of_torch_bit_by_bit_and_so_is_its_state(fused):
    weights = [torch.linspace(-1, 2, 7).requires_grad_() for _ in range(2)]
    ours, theirs = Adam([weights[0]], lr=0.1, fused=fused), torch.optim.Adam([weights[1]], lr=0.1, fused=fused)
    descend(ours, weights[0], 3)
    descend(theirs, weights[1], 3)
    assert torch.equal(*weights)
    ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
    theirs.load_state_dict(copy.deepcopy(ours.state_dict()))
    descend(ours, weights[0], 2)
    descend(theirs, weights[1], 2)
    assert torch.equal(*weights)
    assert weights[0].grad is not None and ours.state_dict().keys() == theirs.state_dict().keys()


@pytest.mark.parametrize("make", [Adam, RMSpropTF])
def test_hooks_and_schedules_of_torch_apply(make):
    weight = torch.ones(2, requires_grad=True)
    optimizer = make([weight], lr=0.5)
    steps = []
    optimizer.register_step_pre_hook(lambda *_: steps.append(weight[0].item()))
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    descend(optimizer, weight, 1)
    schedule.step()
    assert steps == [1.0]
    assert optimizer.param_groups[0]["lr"] == 0.25
    assert optimizer.step(lambda: "the loss") == "the loss"
