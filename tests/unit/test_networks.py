"""Networks: shapes, initial weights, what they do with each observation, recurrence; models from settings."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from parl_lite.agents.distributions import DiagonalGaussian, TanhGaussian
from parl_lite.agents.models import (
    NetworkSettings,
    SeparateActorCritic,
    SharedActorCritic,
    actor_critic,
)
from parl_lite.agents.networks import Encoder, Images, LSTMCore, Vector, impala_cnn, linear, mlp, nature_cnn, small_cnn
from parl_lite.agents.spaces import BoxActions, DiscreteActions, MultiDiscreteActions, ObsSpec, Spaces
from parl_lite.errors import ParlError

FLOAT, BYTE = np.dtype(np.float32), np.dtype(np.uint8)
VECTOR = ObsSpec((3,), FLOAT)
FRAMES = ObsSpec((4, 42, 42), BYTE)
TWO = DiscreteActions(2)
TORQUES = BoxActions((-1.0, -1.0), (1.0, 1.0), (2,), FLOAT)


def make(obs=VECTOR, action=TWO, **settings):
    torch.manual_seed(0)
    return actor_critic(NetworkSettings(**{"hidden_size": 8, **settings}), Spaces(obs, action))


def frames(*leading: int, spec: ObsSpec = FRAMES) -> torch.Tensor:
    return torch.randint(256, (*leading, *spec.shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


# Layers


def test_weights_are_orthogonal_with_the_gain_and_biases_zero():
    layer = linear(8, 5, gain=0.5)
    torch.testing.assert_close(layer.weight @ layer.weight.T, 0.25 * torch.eye(5))
    assert not layer.bias.any()


def test_an_mlp_has_an_activation_behind_each_layer_but_a_linear_output():
    names = [type(layer).__name__ for layer in mlp([3, 4, 5, 2], output_gain=0.01, activation="relu")]
    assert names == ["Linear", "ReLU", "Linear", "ReLU", "Linear"]
    assert [type(layer).__name__ for layer in mlp([3, 4])] == ["Linear", "Tanh"]


def test_the_two_cnns_have_the_layers_of_their_papers():
    frames84 = Images(ObsSpec((4, 84, 84), BYTE))
    nature, impala = nature_cnn(frames84), impala_cnn(frames84)
    convolutions = [[m for m in cnn.modules() if isinstance(m, nn.Conv2d)] for cnn in (nature, impala)]
    assert [len(each) for each in convolutions] == [3, 15]
    assert nature.output[1].in_features == 64 * 7 * 7
    assert impala.output[1].in_features == 32 * 11 * 11
    assert (nature.n_features, impala.n_features) == (512, 256)


@pytest.mark.parametrize("make_cnn", [nature_cnn, impala_cnn, small_cnn])
@pytest.mark.parametrize("leading", [(), (3,), (2, 3)])
def test_cnns_take_any_leading_axes(make_cnn, leading):
    cnn = make_cnn(Images(FRAMES), n_features=6)
    images = frames(*leading)
    assert cnn(images).shape == (*leading, 6)
    torch.testing.assert_close(cnn(images).reshape(-1, 6)[-1], cnn(images.reshape(-1, 4, 42, 42)[-1]))


def test_bytes_are_scaled_and_images_of_either_order_are_the_same():
    bytes_first = frames(2)
    first, last = Images(FRAMES), Images(ObsSpec((42, 42, 4), BYTE))
    torch.testing.assert_close(first(bytes_first), bytes_first / 255)
    assert first.shape == last.shape == (4, 42, 42)
    torch.testing.assert_close(last(bytes_first.permute(0, 2, 3, 1)), bytes_first / 255)
    floats = torch.rand(2, 4, 42, 42)
    torch.testing.assert_close(Images(ObsSpec((4, 42, 42), FLOAT))(floats), floats)


def test_the_memory_layout_does_not_change_what_a_cnn_computes():
    outputs = []
    for channels_last in (True, False):
        torch.manual_seed(1)
        outputs.append(impala_cnn(Images(FRAMES, channels_last), 8)(frames(3)))
    torch.testing.assert_close(outputs[0], outputs[1], atol=1e-4, rtol=1e-4)


def test_categories_become_one_hot_from_their_start_on():
    single = Vector(ObsSpec((), np.dtype(np.int64), (3,), (5,)))
    assert single(torch.tensor([5, 7])).tolist() == [[1, 0, 0], [0, 0, 1]]
    pair = Vector(ObsSpec((2,), np.dtype(np.int64), (2, 3), (0, 1)))
    assert pair(torch.tensor([[1, 2]])).tolist() == [[0, 1, 0, 1, 0]]


def test_numbers_of_any_type_are_flattened_to_float32():
    numbers = Vector(ObsSpec((2, 2), np.dtype(bool)))(torch.tensor([[[[True, False], [True, True]]]]))
    assert (numbers.tolist(), numbers.dtype) == ([[[1, 0, 1, 1]]], torch.float32)


def test_bytes_that_are_no_image_are_scaled_too():
    assert Vector(ObsSpec((2,), BYTE))(torch.tensor([[0, 255]], dtype=torch.uint8)).tolist() == [[0, 1]]


def test_a_dict_is_encoded_part_by_part():
    layout = {"speed": VECTOR, "inner": {"gear": ObsSpec((), np.dtype(np.int64), (4,), (0,))}}
    encoder = Encoder(layout, lambda spec: None)
    obs = {"speed": torch.tensor([[1.0, 2.0, 3.0]]), "inner": {"gear": torch.tensor([2])}}
    assert encoder.n_features == 7
    assert encoder(obs).tolist() == [[1, 2, 3, 0, 0, 1, 0]]


# The LSTM


def test_the_lstm_is_that_of_torch_where_no_episode_begins():
    core, features = LSTMCore(3, 5), torch.randn(4, 2, 3)
    state = (torch.randn(2, 5), torch.randn(2, 5))
    outputs, after = core(features, torch.zeros(4, 2, dtype=torch.bool), state)
    expected, (hidden, cell) = core.lstm(features, (state[0][None], state[1][None]))
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(after, (hidden[0], cell[0]))


def test_an_episode_that_begins_forgets_what_was_before_and_no_other_does():
    core, features = LSTMCore(3, 5), torch.randn(6, 2, 3)
    first = torch.zeros(6, 2, dtype=torch.bool)
    first[0, 0] = first[2, 1] = first[3, 0] = first[5, 1] = True
    state = (torch.randn(2, 5), torch.randn(2, 5))
    together, after = core(features, first, state)
    for env in range(2):  # each alone and step by step
        one = tuple(part[env : env + 1] for part in state)
        for t in range(6):
            if first[t, env]:
                one = core.initial_state(1)
            output, one = core(features[t : t + 1, env : env + 1], torch.zeros(1, 1, dtype=torch.bool), one)
            torch.testing.assert_close(together[t, env], output[0, 0])
        torch.testing.assert_close(after[0][env], one[0][0])


def test_no_gradient_crosses_the_beginning_of_an_episode():
    core, features = LSTMCore(3, 5), torch.randn(4, 1, 3).requires_grad_()
    first = torch.tensor([[False], [False], [True], [False]])
    outputs, _ = core(features, first, core.initial_state(1))
    outputs[3].sum().backward()
    assert features.grad is not None
    assert features.grad.abs().sum(dim=(1, 2)).gt(0).tolist() == [False, False, True, True]


# Models from settings


def test_vectors_get_two_mlps_with_the_gains_of_ppo():
    model = make(hidden_size=16)
    assert isinstance(model, SeparateActorCritic)
    gains = {
        name: layer.weight.norm() / math.sqrt(min(layer.weight.shape))
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear)
    }
    expected = {"actor.0": 2**0.5, "actor.2": 2**0.5, "actor.4": 0.01}
    expected |= {"critic.0": 2**0.5, "critic.2": 2**0.5, "critic.4": 1.0}
    assert {name: gain.item() for name, gain in gains.items()} == pytest.approx(expected)
    assert len(model.get_actor_params()) + len(model.get_critic_params()) == len(list(model.parameters()))


@pytest.mark.parametrize(
    ("obs", "settings", "kind"),
    [
        (VECTOR, {}, "SeparateActorCritic"),
        (VECTOR, {"shared": True}, "SharedActorCritic"),
        (VECTOR, {"lstm_size": 4}, "SharedActorCritic"),
        (FRAMES, {}, "SharedActorCritic"),
        (FRAMES, {"network": "impala", "lstm_size": 4}, "SharedActorCritic"),
        (FRAMES, {"network": "mlp"}, "SeparateActorCritic"),
        (ObsSpec((10, 10, 4), np.dtype(bool)), {}, "SeparateActorCritic"),
        (ObsSpec((10, 10, 4), np.dtype(bool)), {"network": "impala"}, "SharedActorCritic"),
        ({"image": FRAMES, "speed": VECTOR}, {}, "SharedActorCritic"),
    ],
)
def test_every_network_gives_parameters_and_values_of_the_documented_shapes(obs, settings, kind):
    model = make(obs, MultiDiscreteActions((2, 3), (0, 0), (2,)), **settings)
    assert type(model).__name__ == kind
    rows = {"image": frames(3, 2), "speed": torch.randn(3, 2, 3)} if isinstance(obs, dict) else torch.ones(3, 2, *obs.shape)
    params, value, state = model.unroll(rows, torch.zeros(3, 2, dtype=torch.bool), model.initial_state(2))
    assert (params.shape, params.dtype, value.shape) == ((3, 2, 5), torch.float32, (3, 2))
    assert model.distribution(params).mode().shape == (3, 2, 2)
    if settings.get("lstm_size"):
        assert [part.shape for part in state] == [(2, 4), (2, 4)]
    else:
        assert state == model.initial_state(2) == ()
        torch.testing.assert_close(model.policy(rows), params)
        torch.testing.assert_close(model.value(rows), value)


def test_the_same_seed_gives_the_same_network():
    ours, theirs, other = make(), make(), actor_critic(NetworkSettings(hidden_size=8), Spaces(VECTOR, TWO))
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    assert not torch.equal(ours.actor[0].weight, other.actor[0].weight)


def test_torques_have_means_near_zero_and_a_deviation_of_their_own():
    model = make(action=TORQUES, log_std=-0.5)
    params = model.policy(torch.randn(7, 3))
    assert model.distribution is DiagonalGaussian
    assert params[:, :2].abs().max() < 0.1
    assert params[:, 2:].tolist() == [[-0.5, -0.5]] * 7
    assert any(parameter is model.actor[-1].log_std for parameter in model.get_actor_params())
    assert make(action=TORQUES, squash=True).distribution is TanhGaussian


def test_weights_travel_with_all_that_a_network_is():
    ours, theirs = make(lstm_size=4, normalize_obs=True), make(lstm_size=4, normalize_obs=True)
    ours.observe(torch.randn(5, 2, 3) + 3, torch.ones(5, 2, dtype=torch.bool))
    theirs.set_weights(ours.get_weights())
    first = torch.zeros(3, 2, dtype=torch.bool)
    for a, b in zip(*(m.unroll(torch.ones(3, 2, 3), first, m.initial_state(2))[:2] for m in (ours, theirs)), strict=True):
        assert torch.equal(a, b)


def test_a_recurrent_network_says_that_it_must_be_unrolled():
    model = make(lstm_size=4)
    for method in (model.policy, model.value, model):
        with pytest.raises(ParlError, match=r"call unroll\(\)"):
            method(torch.zeros(1, 3))


@pytest.mark.parametrize(
    ("obs", "settings", "words"),
    [
        (VECTOR, {"network": "transformer"}, "network is 'transformer'; it can be auto, mlp, nature, impala, small"),
        (VECTOR, {"network": "nature"}, "network is nature, but no observation is an image.*try mlp"),
        (ObsSpec((10, 10, 4), BYTE), {"network": "nature"}, "too small for network nature .36 pixels.: try impala"),
        (VECTOR, {"activation": "sine"}, "activation is 'sine'; it can be tanh, relu"),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_what_would(obs, settings, words):
    with pytest.raises(ParlError, match=words):
        make(obs, **settings)


def test_shared_is_the_only_reader_of_the_trunk_once():
    model = make(FRAMES)
    assert isinstance(model, SharedActorCritic)
    calls = []
    model.encoder.register_forward_hook(lambda *_: calls.append(1))
    model(frames(2))
    model.unroll(frames(2, 2), torch.zeros(2, 2, dtype=torch.bool))
    assert len(calls) == 2
