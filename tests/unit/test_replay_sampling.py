"""Sum tree, uniform and prioritized draws, importance weights: by hand, and against plain sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from test_replay_transitions import counting

from parl_lite.agents.replay import PrioritizedSampler, TransitionReplay, UniformSampler, importance_weights
from parl_lite.agents.replay.sum_tree import SumTree
from parl_lite.errors import ParlError

# The tree


@pytest.mark.parametrize("capacity", [1, 3, 5, 100, 1000])
def test_leaves_keep_their_order_at_any_capacity(capacity):
    tree = SumTree(capacity)
    tree.set(np.arange(capacity), 1.0)
    assert tree.find(np.arange(capacity) + 0.5).tolist() == list(range(capacity))
    assert tree.total == capacity


@seed(3)
@settings(max_examples=100, deadline=None, database=None)
@given(data=st.data())
def test_the_tree_finds_what_a_running_sum_finds(data):
    capacity = data.draw(st.integers(1, 50))
    leaves, tree = np.zeros(capacity), SumTree(capacity)
    for _ in range(data.draw(st.integers(1, 5))):
        index = np.array(data.draw(st.lists(st.integers(0, capacity - 1), min_size=1, max_size=150)))
        value = np.array(data.draw(st.lists(st.integers(0, 9), min_size=len(index), max_size=len(index))), float)
        tree.set(index, value)
        for i, v in zip(index, value, strict=True):
            leaves[i] = v  # of equal indices the last counts
    assert tree.leaves.tolist() == leaves.tolist()
    assert tree.total == leaves.sum()
    mass = np.arange(tree.total) + 0.5
    assert tree.find(mass).tolist() == np.searchsorted(np.cumsum(leaves), mass, side="right").tolist()


def test_many_masses_are_found_where_each_is_found_by_itself():
    random = np.random.default_rng(1)
    tree = SumTree(1000)
    tree.set(np.arange(1000), random.integers(0, 4, 1000).astype(float))
    mass = random.integers(0, int(tree.total), 300) + 0.5
    assert tree.find(mass).tolist() == [tree.find(one).item() for one in mass[:, None]]
    assert (tree.get(tree.find(mass)) > 0).all()


def test_sums_do_not_drift():
    random = np.random.default_rng(0)
    tree, again = SumTree(37), SumTree(37)
    for _ in range(2000):
        tree.set(random.integers(0, 37, 8), 10.0 ** random.integers(-9, 9, 8))
    again.replace(tree.leaves)
    assert again.total == tree.total
    np.testing.assert_array_equal(again._nodes, tree._nodes)
    tree.set(np.arange(37), 0.0)
    assert tree.total == 0.0


def test_a_leaf_of_zero_is_never_found():
    tree = SumTree(5)
    tree.set(np.array([1, 3]), np.array([0.1, 0.2]))
    borders = np.array([0.0, 0.1, np.nextafter(0.1, 0), tree.total, np.nextafter(tree.total, 0), 1.0])
    assert tree.find(borders).tolist() == [1, 3, 1, 3, 3, 3]


def test_a_draw_is_stratified():
    tree = SumTree(10)
    tree.set(np.arange(10), 1.0)
    assert tree.sample(10, np.random.default_rng(0)).tolist() == list(range(10))


# Samplers


def prioritized(priorities, **settings) -> PrioritizedSampler:
    sampler = PrioritizedSampler(**settings)
    sampler.open(len(priorities))
    sampler.insert(np.arange(len(priorities)), np.array(priorities, float))
    return sampler


def test_the_exponent_is_applied_once():
    sampler = prioritized([1, 4, 9], alpha=0.5, epsilon=0.0)
    assert sampler.total == 6.0
    rows, probability = sampler.draw(600, np.random.default_rng(0))
    assert np.bincount(rows).tolist() == [100, 200, 300]
    np.testing.assert_allclose(probability, (rows + 1) / 6)


def test_weights_by_hand():
    np.testing.assert_allclose(importance_weights(np.array([0.25, 0.75]), 2, 1.0), [1, 1 / 3], rtol=1e-6)
    np.testing.assert_allclose(importance_weights(np.array([0.25, 0.75]), 2, 0.5), [1, 3**-0.5], rtol=1e-6)
    assert importance_weights(np.array([0.1, 0.9]), 2, 0.0).tolist() == [1, 1]


def test_beta_grows_with_the_draws():
    sampler = prioritized([1, 1], beta=0.4, beta_end=1.0, beta_draws=4)
    betas = []
    for _ in range(6):
        betas.append(round(sampler.weight_exponent(), 6))
        sampler.draw(1, np.random.default_rng(0))
    assert betas == [0.4, 0.55, 0.7, 0.85, 1.0, 1.0]


def test_a_new_item_without_a_priority_has_the_highest_so_far():
    buffer = TransitionReplay(100, sampler=PrioritizedSampler(alpha=1.0, epsilon=0.0))
    buffer.add({**counting(0, 2), "priority": np.array([[3.0], [5.0]])})
    buffer.add(counting(2, 1))
    assert buffer.sampler.tree.leaves[:3].tolist() == [3, 5, 5]
    buffer.update_priorities(np.array([0]), np.array([7.0]))
    buffer.add(counting(3, 1))
    assert buffer.sampler.tree.leaves[:4].tolist() == [7, 5, 5, 7]


def test_of_equal_indices_the_last_priority_counts_and_lost_rows_are_left_alone():
    buffer = TransitionReplay(8, sampler=PrioritizedSampler(alpha=1.0, epsilon=0.0))
    buffer.add(counting(0, 5))
    assert buffer.update_priorities(np.array([3, 3]), np.array([1.0, 9.0])) == 2
    assert buffer.sampler.tree.leaves[3] == 9
    buffer.add(counting(5, 6))  # rows 0, 1, 2 and 3 are written over
    assert buffer.update_priorities(np.array([0, 3, 4, 99]), np.array([50.0, 50.0, 2.0, 50.0])) == 1
    assert sorted(buffer.sampler.tree.leaves[buffer.sampler.present]) == [2.0] + [9.0] * 6
    assert buffer.sampler.total == 56.0


def test_a_share_of_the_draws_can_be_uniform():
    sampler = prioritized([0, 0, 1], alpha=1.0, epsilon=0.0, uniform_mix=0.3)
    rows, probability = sampler.draw(30_000, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(rows) / 30_000, [0.1, 0.1, 0.8], atol=0.01)
    np.testing.assert_allclose(probability, np.array([0.1, 0.1, 0.8])[rows])


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_a_priority_that_is_none_is_refused(value):
    buffer = TransitionReplay(100, sampler=PrioritizedSampler())
    buffer.add(counting(0, 3))
    with pytest.raises(ParlError, match=f"priority 1 is {value}: a priority must be 0 or more, and finite"):
        buffer.update_priorities(np.array([0, 1]), np.array([1.0, value]))


def test_priorities_of_the_wrong_shape_or_all_zero_are_refused():
    buffer = TransitionReplay(100, sampler=PrioritizedSampler(epsilon=0.0))
    buffer.add({**counting(0, 3), "priority": np.zeros((3, 1))})
    with pytest.raises(ParlError, match="the priorities of all 3 items are 0"):
        buffer.sample(2)
    with pytest.raises(ParlError, match=r"index int64 \(2,\) and priority \(3,\)"):
        buffer.update_priorities(np.arange(2), np.ones(3))
    with pytest.raises(ParlError, match="this buffer is uniform"):
        uniform = TransitionReplay(100)
        uniform.add(counting(0, 3))
        uniform.update_priorities(np.arange(2), np.ones(2))


def test_settings_of_priorities_that_make_no_sense_are_refused():
    for settings_ in ({"alpha": -1}, {"beta": np.nan}, {"epsilon": np.inf}, {"uniform_mix": 2}, {"beta_draws": 0}):
        with pytest.raises(ParlError):
            PrioritizedSampler(**settings_)


@pytest.mark.parametrize("members", [[0, 3, 4, 9], [9]])
def test_uniform_draws_are_uniform_over_what_is_there(members):
    sampler = UniformSampler()
    sampler.open(10_000)
    sampler.insert(np.array([*members, 9_999]))
    sampler.remove(np.array([9_999, 9_999, 5]))
    rows, probability = sampler.draw(10_000, np.random.default_rng(0))
    assert sorted(set(rows.tolist())) == members
    assert np.bincount(rows)[members].min() > 10_000 / len(members) * 0.9
    assert (probability == 1 / len(members)).all()
    assert len(sampler.present) == 10_000 and sampler.n_items == len(members)


def test_a_buffer_with_one_row_can_be_sampled():
    for sampler in (UniformSampler(), PrioritizedSampler()):
        buffer = TransitionReplay(2, sampler=sampler)
        buffer.add(counting(0, 1))
        assert buffer.sample(1)["obs"].tolist() == [[0.0]]
        assert buffer.sample(3)["index"].tolist() == [0, 0, 0]


def test_draws_are_the_same_with_the_same_seed_and_others_with_another():
    def draws(seed_: int) -> list[int]:
        buffer = TransitionReplay(1000, sampler=PrioritizedSampler(), seed=seed_)
        buffer.add(counting(0, 500))
        return buffer.sample(100)["index"].tolist()

    assert draws(1) == draws(1)
    assert draws(1) != draws(2)
