"""Buffers of transitions equal plain ones, over random episodes in all modes; windows, gaps and the write head by hand."""

from __future__ import annotations

import numpy as np
import pytest
from fake_rollouts import MODES, FakeEnvs, key, window
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from parl_lite.agents.replay import PrioritizedSampler, TransitionReplay, pack_frames
from parl_lite.agents.replay.n_step import n_step_windows
from parl_lite.errors import ParlError


def items_of(buffer: TransitionReplay) -> list[dict]:
    """Return all transitions that can be drawn."""
    rows = np.flatnonzero(buffer.sampler.present)
    batch = buffer._read(rows)
    return [{name: pick(column, i) for name, column in batch.items()} for i in range(len(rows))]


def pick(column, i):
    return {name: pick(child, i) for name, child in column.items()} if isinstance(column, dict) else column[i]


def assert_equal(items: list[dict], expected: list[dict]) -> None:
    """Compare transitions of which no two begin with the same observation."""
    mine, plain = ({key(item["obs"]): item for item in part} for part in (items, expected))
    assert mine.keys() == plain.keys()
    for name, item in mine.items():
        other = plain[name]
        assert key(item["next_obs"]) == key(other["next_obs"])
        assert item["action"] == other["action"]
        np.testing.assert_allclose([item["reward"], item["discount"]], [other["reward"], other["discount"]], rtol=1e-6)


# Hand-made numbers


def counting(first: int, n: int, *, terminated=(), truncated=(), final: int | None = None) -> dict:
    """Return a rollout of one environment with reward 1 whose observations count from `first`."""
    rollout = {
        "obs": np.arange(first, first + n + 1, dtype=np.float32)[:, None, None],
        "action": np.zeros((n, 1), np.int64),
        "reward": np.ones((n, 1), np.float32),
        "terminated": np.isin(np.arange(n), terminated)[:, None],
        "truncated": np.isin(np.arange(n), truncated)[:, None],
    }
    if final is not None:
        rollout |= {"final_row": np.array([n - 1]), "final_obs": np.full((1, 1), final, np.float32)}
    return rollout


def by_obs(buffer: TransitionReplay) -> dict[int, tuple[float, float, float]]:
    """Return {observation: (reward, discount, next observation)}."""
    return {
        int(item["obs"][0]): (round(float(item["reward"]), 5), round(float(item["discount"]), 5), float(item["next_obs"][0]))
        for item in items_of(buffer)
    }


def test_windows_end_with_the_episode_and_bootstrap_where_it_was_cut_off():
    buffer = TransitionReplay(100, n_step=3, gamma=0.9)
    terminates = counting(0, 5, terminated=[4], final=5)
    terminates["obs"][5] = 100  # the first observation of the next episode
    buffer.add(terminates)
    cut_off = counting(100, 4, truncated=[3], final=104)
    cut_off["obs"][4] = 200
    buffer.add(cut_off)
    found = by_obs(buffer)
    assert found[1] == (2.71, 0.729, 4.0)
    assert found[2] == (2.71, 0.0, 5.0)
    assert found[3] == (1.9, 0.0, 5.0)
    assert found[100] == (2.71, 0.729, 103.0)
    assert found[102] == (1.9, 0.81, 104.0)
    assert found[103] == (1.0, 0.9, 104.0)


def test_windows_at_the_write_head_grow_with_the_next_rollout():
    buffer = TransitionReplay(100, n_step=3, gamma=0.5)
    buffer.add(counting(0, 2))
    assert by_obs(buffer) == {0: (1.5, 0.25, 2.0), 1: (1.0, 0.5, 2.0)}
    buffer.add(counting(2, 1))
    assert by_obs(buffer) == {0: (1.75, 0.125, 3.0), 1: (1.5, 0.25, 3.0), 2: (1.0, 0.5, 3.0)}


def test_rows_that_are_no_step_have_windows_of_nothing():
    flags = np.zeros((3, 1), bool)
    windows = n_step_windows(np.ones((3, 1)), flags, flags, np.array([[True], [False], [True]]), 0.9, 5)
    assert windows.reward.tolist() == [[1], [0], [1]]
    np.testing.assert_allclose(windows.discount, [[0.9], [0], [0.9]])
    assert windows.last.tolist() == [[0], [1], [2]]


def test_no_window_joins_the_newest_rows_with_the_oldest():
    buffer = TransitionReplay(8, n_step=3, gamma=1.0)
    for first in range(13):
        buffer.add(counting(first, 1))
    found = by_obs(buffer)
    assert sorted(found) == list(range(6, 13))  # and row 13 is open
    assert all(following == min(obs + 3, 13) for obs, (_, _, following) in found.items())


def test_a_lost_life_terminates_and_the_game_goes_on_without_a_final_observation():
    buffer = TransitionReplay(100, n_step=2, gamma=0.5)
    rollout = counting(0, 4, terminated=[1, 3], final=4)
    rollout["obs"][4] = 50
    buffer.add(rollout)
    assert by_obs(buffer) == {0: (1.5, 0, 2), 1: (1, 0, 2), 2: (1.5, 0, 4), 3: (1, 0, 4)}


# Equal to a plain buffer


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", ["repeat", "zeros", "history"])
@seed(1)
@settings(max_examples=25, deadline=None, database=None)
@given(data=st.data())
def test_memory_saving_buffers_hold_what_a_plain_one_does(mode, padding, data):
    kind = data.draw(st.sampled_from(["vector", "stack", "dict"]))
    n = data.draw(st.integers(1, 4))
    envs = FakeEnvs(data.draw(st.integers(0, 10**6)), data.draw(st.integers(1, 3)), mode, kind, padding)
    buffer = TransitionReplay(10_000, n_step=n, gamma=0.9, frame_stack=4)
    for n_steps in data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=6)):
        rollout = envs.rollout(n_steps)
        buffer.add(pack_frames(rollout, 4) if data.draw(st.booleans()) else rollout)
    assert_equal(items_of(buffer), envs.windows(n, 0.9))
    assert len(buffer) == buffer.n_inserted == sum(map(len, envs.steps))


@pytest.mark.parametrize("mode", MODES)
@seed(2)
@settings(max_examples=60, deadline=None, database=None)
@given(data=st.data())
def test_what_a_small_ring_has_left_is_right(mode, data):
    """Several sources of different paces write over each other; what is left is a plain transition, and the newest are."""
    kind = data.draw(st.sampled_from(["vector", "stack", "dict"]))
    n, capacity = data.draw(st.integers(1, 4)), data.draw(st.integers(40, 90))
    sources = [FakeEnvs(i, data.draw(st.integers(1, 2)), mode, kind, "zeros") for i in range(3)]
    buffer = TransitionReplay(capacity, n_step=n, gamma=0.9, frame_stack=4)
    for source in data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=30)):
        buffer.add(sources[source].rollout(data.draw(st.integers(1, 4))), source)
    plain = {key(steps[i].obs): (steps, i) for envs in sources for steps in envs.steps for i in range(len(steps))}
    found = {key(item["obs"]): item for item in items_of(buffer)}
    assert len(found) == len(buffer) <= capacity
    newest = sources[source].steps[0][-1]
    assert key(newest.obs) in found or mode != "same_step"
    for name, item in found.items():
        steps, i = plain[name]
        fits = [window(steps[: i + k], i, n, 0.9) for k in range(1, n + 1)]  # shorter where a chain was broken
        assert any(
            key(item["next_obs"]) == key(other["next_obs"])
            and np.isclose(item["reward"], other["reward"])
            and np.isclose(item["discount"], other["discount"])
            for other in fits
        )


def test_frames_of_a_stack_are_kept_once():
    envs = FakeEnvs(1, 4, "same_step", "stack", "repeat", longest=50)
    buffer = TransitionReplay(1000, frame_stack=4)
    for _ in range(10):
        buffer.add(envs.rollout(20))
    n_final = sum(step.terminated or step.truncated for steps in envs.steps for step in steps)
    assert buffer.store.ring.n_written == 10 * 20 * 4 + 4 + n_final  # a frame for each observation, and no more
    (column,) = buffer.store.obs.values()
    assert column.arrays["frame"].shape == (1000, 2, 3)


def test_a_stack_of_four_frames_takes_the_memory_of_one():
    buffer = TransitionReplay(1000, sampler=PrioritizedSampler(), frame_stack=4)
    buffer.add({**counting(0, 2), "obs": np.zeros((3, 1, 4, 84, 84), np.uint8)})
    tables, _ = buffer._state()
    bytes_of_a_row = sum(array.itemsize * array[0].size for array in tables["rows"].values())
    assert bytes_of_a_row < 1.02 * 84 * 84


def test_packed_frames_are_sent_once_and_need_a_buffer_that_keeps_them_once():
    rollout = FakeEnvs(1, 4, "next_step", "stack", longest=50).rollout(50)
    packed = pack_frames(rollout, 4)
    assert sum(part.nbytes for part in packed["obs"].values()) < 0.45 * rollout["obs"].nbytes
    with pytest.raises(ParlError, match="the frames of 'obs' came packed, and this buffer has frame_stack 0"):
        TransitionReplay(1000).add(packed)
    packed["obs"]["~whole"] = packed["obs"]["~whole"][1:]
    with pytest.raises(ParlError, match="the packed frames of 'obs' do not fit together"):
        TransitionReplay(1000, frame_stack=4).add(packed)


def test_stacks_that_are_none_are_kept_all_the_same():
    random = np.random.default_rng(0)
    rollout = counting(0, 6)
    rollout["obs"] = random.integers(0, 256, (7, 1, 4, 5)).astype(np.uint8)
    buffer = TransitionReplay(100, frame_stack=4)
    buffer.add(rollout)
    batch = buffer._read(np.flatnonzero(buffer.sampler.present))
    np.testing.assert_array_equal(batch["obs"], rollout["obs"][:-1, 0])
    np.testing.assert_array_equal(batch["next_obs"], rollout["obs"][1:, 0])


# Sources and repeats


def test_a_rollout_that_is_sent_again_is_not_stored_again():
    buffer = TransitionReplay(100)
    assert buffer.add(counting(0, 3), source=7, number=0) == 3
    assert buffer.add(counting(3, 3), source=7, number=1) == 3
    assert buffer.add(counting(3, 3), source=7, number=1) == 0
    assert buffer.add(counting(0, 3), source=7, number=0) == 0
    assert buffer.add(counting(50, 3), source=8, number=0) == 3
    assert (len(buffer), buffer.n_inserted) == (9, 9)


def test_no_window_reaches_over_a_rollout_that_is_missing():
    buffer = TransitionReplay(100, n_step=3, gamma=0.5)
    buffer.add(counting(0, 2), source=0, number=0)
    buffer.add(counting(4, 2), source=0, number=2)
    assert by_obs(buffer)[1] == (1.0, 0.5, 2.0)
    assert by_obs(buffer)[4] == (1.5, 0.25, 6.0)


def test_rollouts_that_do_not_go_on_where_the_one_before_ended_are_kept_apart():
    buffer = TransitionReplay(100, n_step=3, gamma=0.5)
    buffer.add(counting(0, 2))
    buffer.add(counting(30, 2))
    assert by_obs(buffer)[1] == (1.0, 0.5, 2.0)


def test_a_source_whose_open_row_is_written_over_begins_anew():
    buffer = TransitionReplay(12, n_step=2, gamma=1.0)
    buffer.add(counting(0, 3), source=0)  # rows 0 to 3
    buffer.add(counting(50, 4), source=1)  # rows 4 to 8
    buffer.add(counting(3, 8), source=0)  # rows 9 to 5: over the open row 3
    found = by_obs(buffer)
    assert {obs: found[obs][2] for obs in range(3, 11)} == {**{obs: obs + 2 for obs in range(3, 10)}, 10: 11}


def test_windows_that_wait_for_more_are_left_alone_when_their_rows_are_written_over():
    buffer = TransitionReplay(14, n_step=7, gamma=1.0)
    buffer.add(counting(0, 7), source=0)  # rows 0 to 7, of which 1 to 6 wait
    pair = [counting(50, 5), counting(70, 5)]
    buffer.add({name: np.concatenate([one[name] for one in pair], axis=1) for name in pair[0]}, source=1)  # 8 to 13, 0 to 5
    buffer.add(counting(7, 1), source=0)  # row 6
    found = by_obs(buffer)
    assert {obs: found[obs] for obs in (53, 54, 73, 74)} == {53: (2, 1, 55), 54: (1, 1, 55), 73: (2, 1, 75), 74: (1, 1, 75)}
    assert found[7] == (1, 1, 8)


def test_frames_are_not_shared_over_a_final_observation():
    """The frames of the next episode equal those before, as with a black screen: they are kept apart all the same."""
    buffer = TransitionReplay(9, frame_stack=3)
    for value in (0, 0, 0, 0, 200, 201):
        rollout = counting(0, 1, terminated=[0])
        rollout["obs"] = np.full((2, 1, 3, 1), value, np.uint8)
        rollout |= {"final_row": np.array([0]), "final_obs": np.full((1, 3, 1), value, np.uint8)}
        buffer.add(rollout)
        assert all((item["obs"] == item["obs"][0]).all() for item in items_of(buffer))


# Wrong use


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reward": np.array([[1.0], [np.nan]], np.float32)}, r"column 'reward' has nan at \[1, 0\]"),
        ({"obs": np.full((3, 1, 1), np.inf, np.float32)}, r"column 'obs' has inf at \[0, 0, 0\]"),
        ({"obs": np.zeros((2, 1, 1), np.float32)}, r"column 'obs' has shape \(2, 1, 1\), and must begin with \(3, 1\)"),
        ({"action": np.zeros(2, np.int64)}, r"column 'action' has shape \(2,\), and must begin with \(2, 1\)"),
        ({"terminated": np.zeros((2, 1))}, "column 'terminated' has dtype float64: it must be bool"),
        ({"reward": np.zeros((0, 1))}, r"column 'reward' has shape \(0, 1\): a rollout has at least one step"),
        (
            {"final_row": np.array([1]), "final_obs": np.zeros((1, 1), np.float32)},
            r"final_row is \[1\], but episodes end in rows \[\]",
        ),
        ({"priority": np.array([[1.0], [-2.0]])}, "priority 1 is -2.0: a priority must be 0 or more"),
        ({"priority": np.ones(2)}, r"column 'priority' has shape \(2,\)"),
        ({"obs": np.zeros((3, 1, 1), object)}, "column 'obs' has dtype object"),
    ],
)
def test_a_malformed_rollout_is_refused_and_nothing_is_stored(change, said):
    buffer = TransitionReplay(100, sampler=PrioritizedSampler())
    with pytest.raises(ParlError, match=said):
        buffer.add({**counting(0, 2), **change})
    assert (len(buffer), buffer.store.ring.n_written) == (0, 0)


def test_a_rollout_of_other_shapes_than_the_first_is_refused():
    buffer = TransitionReplay(100)
    buffer.add(counting(0, 2))
    other = {**counting(0, 2), "obs": np.zeros((3, 1, 2), np.float32)}
    with pytest.raises(ParlError, match=r"'obs' has rows of float32 \(2,\), and this buffer has rows of float32 \(1,\)"):
        buffer.add(other)
    with pytest.raises(ParlError, match="a rollout has no column 'action'"):
        buffer.add({name: column for name, column in counting(0, 2).items() if name != "action"})


def test_a_rollout_bigger_than_the_buffer_is_refused():
    with pytest.raises(ParlError, match="a rollout of 9 steps of 1 environments takes 10 rows, and the buffer has 8"):
        TransitionReplay(8).add(counting(0, 9))


def test_sampling_before_there_is_enough_says_how_much_is_missing():
    buffer = TransitionReplay(100, min_size=5)
    buffer.add(counting(0, 3))
    with pytest.raises(ParlError, match="there are 3 items to draw from, and 5 are needed"):
        buffer.sample(2)
    buffer.add(counting(3, 2))
    assert buffer.sample(32)["obs"].shape == (32, 1)  # more than there are: drawn with replacement


def test_settings_that_make_no_sense_are_refused():
    for arguments in ({"capacity": 1}, {"capacity": 8, "n_step": 0}, {"capacity": 8, "gamma": 2}, {"capacity": 8, "min_size": 9}):
        with pytest.raises(ParlError):
            TransitionReplay(**arguments)
    with pytest.raises(ParlError, match="frame_stack is 1"):
        TransitionReplay(8, frame_stack=1)


def test_columns_asked_for_come_with_the_batch():
    buffer = TransitionReplay(100, extra=["behaviour_log_prob", "version"])
    buffer.add({**counting(0, 2), "behaviour_log_prob": np.array([[-1.0], [-2.0]], np.float32), "version": np.array(7)})
    batch = buffer.sample(50)
    assert set(batch["version"].tolist()) == {7}
    np.testing.assert_array_equal(batch["behaviour_log_prob"], -1 - batch["obs"][:, 0])
