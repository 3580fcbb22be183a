"""Spaces: what becomes of each of gymnasium's, to a rollout and to the environment, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

from parl_lite.agents.spaces import (
    BinaryActions,
    BoxActions,
    DiscreteActions,
    MultiDiscreteActions,
    ObsSpec,
    action_kind,
    empty_obs,
    env_actions,
    obs_layout,
    spaces_from,
)
from parl_lite.agents.trees import concatenate_trees, leaves, map_tree, row, write
from parl_lite.errors import ParlError

FLOAT = np.dtype(np.float32)


# Observations


def test_each_observation_space_has_its_layout():
    assert obs_layout(Box(0, 255, (4, 84, 84), np.uint8)) == ObsSpec((4, 84, 84), np.dtype(np.uint8))
    assert obs_layout(Box(-1, 1, (3,), np.float64)) == ObsSpec((3,), FLOAT)
    assert obs_layout(Discrete(5, start=2)) == ObsSpec((), np.dtype(np.int64), (5,), (2,))
    assert obs_layout(MultiDiscrete([3, 4])) == ObsSpec((2,), np.dtype(np.int64), (3, 4), (0, 0))
    assert obs_layout(MultiBinary(6)) == ObsSpec((6,), np.dtype(np.int8))


def test_dicts_and_tuples_become_nested_dicts():
    space = Dict(image=Box(0, 1, (2, 2)), pair=Tuple((Discrete(3), Box(0, 1, (1,)))))
    layout = obs_layout(space)
    assert list(layout) == ["image", "pair"]
    assert list(layout["pair"]) == ["0", "1"]
    assert layout["pair"]["0"].n_features == 3
    assert layout["image"].n_features == 4


def test_an_observation_that_no_network_takes_is_refused_with_those_that_are():
    with pytest.raises(ParlError, match=r"Text.*are not supported, but Box, Discrete, MultiDiscrete, MultiBinary, and Dict"):
        obs_layout(Dict(words=Text(5)))


def test_only_single_arrays_and_discrete_actions_have_the_short_names():
    spaces = spaces_from(Dict(a=Box(0, 1, (1,))), Box(0, 1, (1,)))
    with pytest.raises(ParlError, match=r"one array here, these are a dict of \['a'\]"):
        _ = spaces.obs_spec
    with pytest.raises(ParlError, match=r"actions must be discrete here, these are box"):
        _ = spaces.n_actions


# Actions


def test_discrete_actions_are_counted_as_the_environment_does():
    kind = action_kind(Discrete(4, start=5))
    assert (kind, kind.n_params, kind.shape) == (DiscreteActions(4, 5), 4, ())
    assert kind.to_env(np.array([0, 3])).tolist() == [5, 8]


def test_choices_made_together_get_the_shape_of_the_environment():
    kind = action_kind(MultiDiscrete(np.array([[3, 4], [2, 5]]), start=np.array([[0, 1], [2, 3]])))
    assert kind == MultiDiscreteActions((3, 4, 2, 5), (0, 1, 2, 3), (2, 2))
    assert (kind.n_params, kind.shape) == (14, (4,))
    assert kind.to_env(np.array([[1, 1, 1, 1]])).tolist() == [[[1, 2], [3, 4]]]


def test_switches_get_the_shape_of_the_environment():
    kind = action_kind(MultiBinary((2, 2)))
    assert (kind, kind.n_params, kind.shape) == (BinaryActions(4, (2, 2)), 4, (4,))
    assert kind.to_env(np.array([[1, 0, 0, 1]], dtype=np.int8)).tolist() == [[[1, 0], [0, 1]]]


def test_numbers_are_clipped_into_their_bounds_or_squashed_into_them():
    kind = action_kind(Box(np.array([-1, 0]), np.array([1, 10]), dtype=np.float64))
    assert (kind, kind.n_params) == (BoxActions((-1.0, 0.0), (1.0, 10.0), (2,), np.dtype(np.float64)), 4)
    clipped = env_actions(kind)(np.array([[-3.0, 4.0], [0.5, 11.0]], dtype=np.float32))
    assert (clipped.tolist(), clipped.dtype) == ([[-1, 4], [0.5, 10]], np.float64)
    squashed = env_actions(kind, squash=True)(np.array([[0.0, 0.0], [-99.0, np.arctanh(0.5)]]))
    np.testing.assert_allclose(squashed, [[0, 5], [-1, 7.5]])


def test_numbers_without_bounds_are_not_clipped_and_cannot_be_squashed():
    kind = action_kind(Box(-np.inf, np.inf, (1,)))
    assert env_actions(kind)(np.array([[1e9]])).tolist() == [[1e9]]
    with pytest.raises(ParlError, match="have no bounds to be scaled to: choose clipping"):
        env_actions(kind, squash=True)(np.zeros((1, 1)))


def test_actions_of_another_kind_are_refused_with_those_that_are_not():
    with pytest.raises(
        ParlError, match=r"actions Dict.* are not supported, but Discrete, MultiDiscrete, MultiBinary and Box are"
    ):
        action_kind(Dict(a=Discrete(2)))


# Trees


def test_rows_are_written_and_read_leaf_by_leaf_and_tuples_stand_for_numbered_dicts():
    layout = obs_layout(Tuple((Box(0, 1, (2,)), Dict(a=Discrete(3)))))
    tree = empty_obs(layout, 4, 2)
    write(tree, 1, (np.ones((2, 2)), {"a": np.array([1, 2])}))
    assert row(tree, 1)["0"].tolist() == [[1, 1], [1, 1]]
    assert row(tree, 1)["1"]["a"].tolist() == [1, 2]
    assert [leaf.shape for leaf in leaves(tree)] == [(4, 2, 2), (4, 2)]


def test_trees_of_tuples_and_dicts_are_mapped_and_joined():
    tree = {"h": (np.zeros((1, 2)), np.ones((1, 3)))}
    assert map_tree(lambda a, b: (a + b).shape, tree, tree) == {"h": ((1, 2), (1, 3))}
    joined = concatenate_trees([tree, tree], axis=0)
    assert [leaf.shape for leaf in leaves(joined)] == [(2, 2), (2, 3)]
