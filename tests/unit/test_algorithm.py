"""Algorithm: weights through the model, and the state needed to go on."""

from __future__ import annotations

import random
from collections import deque

import numpy as np
import pytest
import torch
from torch import nn

from parl_lite.algorithm import Algorithm
from parl_lite.errors import ParlError
from parl_lite.model import Model


class Net(Model):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 1)


class Everything(Algorithm):
    """One attribute of each kind that is saved; sets some before super().__init__(), as users do."""

    def __init__(self) -> None:
        self.n_updates = 0
        super().__init__(Net())
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.optimizer = torch.optim.Adam([*self.model.parameters(), self.log_alpha], lr=0.1)
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        self.pair = [Net(), Net()]
        self.mean = np.zeros(2)
        self.recent = deque([0.0], maxlen=3)
        self.streams = {
            "torch": torch.Generator().manual_seed(1),
            "numpy": np.random.default_rng(1),
            "legacy": np.random.RandomState(1),
            "python": random.Random(1),
        }
        self.device = torch.device("cpu")
        self.loss = nn.functional.mse_loss

    def draws(self) -> list[float]:
        streams = self.streams
        return [
            torch.rand(1, generator=streams["torch"]).item(),
            streams["numpy"].random(),
            streams["legacy"].random(),
            streams["python"].random(),
        ]

    def learn(self, inputs: torch.Tensor) -> float:
        loss = (self.model.linear(inputs) ** 2).mean() + (self.log_alpha - 1).square().sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.n_updates += 1
        self.mean += 1
        self.recent.append(loss.item())
        self.pair[0].sync_weights_to(self.pair[1], 0.5)
        return loss.item()


def test_everything_goes_on_bit_by_bit_after_its_state_was_loaded():
    inputs = torch.randn(40, 5, 2, generator=torch.Generator().manual_seed(0))
    straight, first, second = Everything(), Everything(), Everything()
    first.load_state_dict(straight.state_dict())
    for batch in inputs:
        straight.learn(batch)
    for batch in inputs[:20]:
        first.learn(batch)
    first.draws()
    second.load_state_dict(first.state_dict())
    assert second.draws() == first.draws()
    for batch in inputs[20:]:
        second.learn(batch)
    assert second.n_updates == 40
    assert second.recent == straight.recent
    assert second.recent.maxlen == 3
    assert second.mean.tolist() == [40.0, 40.0]
    assert torch.equal(second.log_alpha, straight.log_alpha)
    assert second.optimizer.param_groups[0]["lr"] == straight.optimizer.param_groups[0]["lr"]
    for ours, theirs in zip([second.model, *second.pair], [straight.model, *straight.pair], strict=True):
        assert torch.equal(ours.linear.weight, theirs.linear.weight)


def test_what_only_one_side_has_is_named():
    source, target = Everything(), Everything()
    del source.optimizer
    target.loss_scale = 1.0
    source.only_here = 2
    with pytest.warns(UserWarning, match=r"only_here is in the checkpoint only.*optimizer \(Adam\).*loss_scale \(float\)"):
        target.load_state_dict(source.state_dict())


def test_an_attribute_that_cannot_be_saved_is_named():
    algorithm = Everything()
    algorithm.buffer = object()
    with pytest.warns(UserWarning, match=r"the state of Everything lacks buffer \(object\)"):
        assert "buffer" not in algorithm.state_dict()


def test_an_algorithm_needs_no_super_init():
    class Bare(Algorithm):
        def __init__(self, model):
            self.model = model

    bare = Bare(Net())
    weights = bare.get_weights()
    weights["linear.bias"][:] = 3.0
    bare.set_weights(weights)
    assert bare.model.linear.bias.tolist() == [3.0]
    assert list(bare.state_dict()) == ["model"]


def test_without_a_model_the_weights_are_refused_with_the_remedy():
    class NoModel(Algorithm):
        def __init__(self):
            pass

    with pytest.raises(ParlError, match=r"NoModel has no model: set self\.model"):
        NoModel().get_weights()


@pytest.mark.parametrize("name", ["learn", "predict", "sample"])
def test_methods_that_are_not_written_say_so(name):
    with pytest.raises(NotImplementedError, match=rf"Algorithm does not define {name}\(\)"):
        getattr(Algorithm(Net()), name)(1)
