"""Model: weights as copies, in and out, and towards a target."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from parl_lite.model import Model


class Net(Model):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.norm = nn.BatchNorm1d(2)


def filled(value: float) -> Net:
    net = Net()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(value)
    return net


def test_weights_are_copies_that_share_nothing_with_the_model():
    net = filled(1.0)
    weights = net.get_weights()
    weights["linear.weight"][:] = 7.0
    assert net.linear.weight.eq(1.0).all()
    net.set_weights(weights)
    weights["linear.weight"][:] = 9.0
    assert net.linear.weight.eq(7.0).all()


def test_weights_hold_parameters_and_buffers_as_numpy():
    weights = Net().get_weights()
    assert {name: (array.dtype.name, array.shape) for name, array in weights.items()} == {
        "linear.weight": ("float32", (2, 3)),
        "linear.bias": ("float32", (2,)),
        "norm.weight": ("float32", (2,)),
        "norm.bias": ("float32", (2,)),
        "norm.running_mean": ("float32", (2,)),
        "norm.running_var": ("float32", (2,)),
        "norm.num_batches_tracked": ("int64", ()),
    }


def test_weights_set_twice_are_the_same_bits():
    source, target = Net(), Net()
    source.norm(torch.randn(4, 2))
    target.set_weights(source.get_weights())
    assert pickle.dumps(target.get_weights()) == pickle.dumps(source.get_weights())


def test_set_weights_takes_read_only_arrays_and_tensors():
    net, weights = filled(0.0), filled(3.0).get_weights()
    weights["linear.weight"].flags.writeable = False
    net.set_weights({**weights, "linear.bias": torch.full((2,), 4.0)})
    assert net.linear.weight.eq(3.0).all()
    assert net.linear.bias.eq(4.0).all()


def test_set_weights_keeps_parameters_trainable_and_known_to_their_optimiser():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    net.set_weights(filled(2.0).get_weights())
    net.linear(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert net.linear.bias.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda weights: weights.pop("linear.bias"), r"missing \['linear.bias'\]"),
        (lambda weights: weights.update(extra=np.zeros(1)), r"unknown \['extra'\]"),
        (lambda weights: weights.update({"norm.bias": np.zeros(3)}), r"'norm.bias' has shape \(3,\), not \(2,\)"),
    ],
)
def test_weights_of_another_model_are_refused_by_name_and_change_nothing(change, words):
    net, weights = filled(1.0), filled(5.0).get_weights()
    change(weights)
    with pytest.raises(ValueError, match=words):
        net.set_weights(weights)
    assert all(parameter.eq(1.0).all() for parameter in net.parameters())


def test_bfloat16_weights_travel_exactly():
    net = Net().to(torch.bfloat16)
    weights = net.get_weights()
    assert weights["linear.weight"].dtype == np.float32
    other = Net().to(torch.bfloat16)
    other.set_weights(weights)
    assert torch.equal(other.linear.weight, net.linear.weight)


def test_tied_weights_stay_tied():
    net = Net()
    net.twin = net.linear
    net.set_weights({name: array + 1 for name, array in net.get_weights().items()})
    assert net.twin.weight is net.linear.weight


def test_sync_without_decay_copies_parameters_and_buffers_even_over_nan():
    source, target = filled(2.0), filled(float("nan"))
    source.norm(torch.randn(4, 2))
    source.sync_weights_to(target)
    assert target.linear.weight.eq(2.0).all()
    assert torch.equal(target.norm.running_mean, source.norm.running_mean)
    assert target.norm.num_batches_tracked == 1


def test_sync_with_decay_keeps_that_share_of_the_target():
    source, target = filled(2.0), filled(6.0)
    source.sync_weights_to(target, decay=0.75)
    assert target.linear.weight.eq(5.0).all()
    assert source.linear.weight.eq(2.0).all()


def test_sync_refuses_itself_another_shape_and_a_bad_decay():
    net = Net()
    with pytest.raises(ValueError, match="own target"):
        net.sync_weights_to(net)
    with pytest.raises(ValueError, match=r"decay=1\.5"):
        net.sync_weights_to(copy.deepcopy(net), decay=1.5)
    target = copy.deepcopy(net)
    target.extra = nn.Linear(1, 1)
    with pytest.raises(ValueError, match=r"missing \['extra.bias', 'extra.weight'\]"):
        net.sync_weights_to(target)
