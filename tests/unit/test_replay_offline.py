"""Data sets of episodes: written and read in each format, drawn from like a buffer that the same episodes were added to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from fake_rollouts import FakeEnvs, key
from test_replay_transitions import assert_equal, items_of, pick

from parl_lite.agents.replay import OfflineReplay, SequenceReplay, TransitionReplay, save_episodes
from parl_lite.errors import ParlError


def episodes_of(envs: FakeEnvs) -> list[dict]:
    """Return the whole episodes of a log, and the last of each environment as far as it got."""
    found = []
    for steps in envs.steps:
        begin = 0
        for i, step in enumerate(steps):
            if step.terminated or step.truncated or i == len(steps) - 1:
                found.append(episode(steps[begin : i + 1]))
                begin = i + 1
    return found


def episode(steps) -> dict:
    obs = [step.obs for step in steps] + [steps[-1].next_obs]
    is_dict = isinstance(obs[0], dict)
    return {
        "observations": {name: np.stack([o[name] for o in obs]) for name in obs[0]} if is_dict else np.stack(obs),
        "actions": np.array([step.action for step in steps]),
        "rewards": np.array([step.reward for step in steps]),
        "terminations": np.array([step.terminated for step in steps]),
        "truncations": np.array([step.truncated for step in steps]),
    }


def some_envs(kind: str = "dict") -> FakeEnvs:
    envs = FakeEnvs(3, 2, "same_step", kind)
    envs.rollout(40)
    return envs


@pytest.mark.parametrize("suffix", [".feather", ".arrow", ".parquet"])
@pytest.mark.parametrize("kind", ["vector", "stack", "dict"])
def test_transitions_of_a_file_are_those_of_its_episodes(tmp_path, suffix, kind):
    envs = some_envs(kind)
    save_episodes(tmp_path / f"data{suffix}", episodes_of(envs))
    replay = OfflineReplay(tmp_path / f"data{suffix}", n_step=3, gamma=0.9)
    (part,) = replay._parts
    batch = part.read(np.arange(len(replay)))
    items = [{name: pick(column, i) for name, column in batch.items()} for i in range(len(replay))]
    assert_equal(items, envs.windows(3, 0.9))


def test_a_feather_file_is_mapped_and_not_read(tmp_path):
    save_episodes(tmp_path / "data.feather", episodes_of(some_envs()))
    before = pa.total_allocated_bytes()
    replay = OfflineReplay(tmp_path / "data.feather")
    assert all(not array.flags.owndata and not array.flags.writeable for array in replay._parts[0]._obs.values())
    assert pa.total_allocated_bytes() == before
    assert replay.sample(4)["obs"]["image"].flags.writeable  # a batch is the learner's own


def test_batches_over_several_files_come_in_the_order_drawn_and_go_on_from_a_state(tmp_path):
    episodes = episodes_of(some_envs("vector"))
    save_episodes(tmp_path / "one.feather", episodes)
    (tmp_path / "many").mkdir()
    for i in range(0, len(episodes), 3):
        save_episodes(tmp_path / "many" / f"{i:03}.parquet", episodes[i : i + 3], first_id=i)
    one, many = OfflineReplay(tmp_path / "one.feather", seed=2), OfflineReplay(tmp_path / "many", seed=2)
    assert len(one) == len(many) == 80
    np.testing.assert_array_equal(one.sample(50)["obs"], many.sample(50)["obs"])
    state = one.state()
    expected = one.sample(50)["next_obs"]
    many.restore(state)
    np.testing.assert_array_equal(many.sample(50)["next_obs"], expected)
    assert many.n_drawn == 100


def test_episodes_can_be_added_to_any_buffer(tmp_path):
    envs = some_envs()
    save_episodes(tmp_path / "data.feather", episodes_of(envs))
    data = OfflineReplay(tmp_path / "data.feather")
    transitions = TransitionReplay(1000, n_step=3, gamma=0.9, frame_stack=4)
    sequences = SequenceReplay(1000, length=6, cross_episodes=False)
    for rollout in data.rollouts():
        transitions.add(rollout)
        sequences.add(rollout)
    assert_equal(items_of(transitions), envs.windows(3, 0.9))
    assert len(sequences) > 5
    starts = {key(episode_["obs"]) for episode_ in items_of(transitions)}
    batch = sequences.sample(20)
    assert all(key(pick(pick(batch["obs"], 0), j)) in starts for j in range(20))


def test_a_folder_of_one_file_an_episode_with_other_columns_is_read(tmp_path):
    """As Minari writes them: the number of the episode is the folder's name, boxes are plain lists, infos are structures."""
    episodes = episodes_of(some_envs("vector"))
    for i, one in enumerate(episodes):
        n_rows = len(one["observations"])
        flat = pa.FixedSizeListArray.from_arrays(pa.array(one["observations"].reshape(-1)), 2)
        columns = {"observations": flat, "infos": pa.array([{"lives": 3}] * n_rows)}
        for name in ("actions", "rewards", "terminations", "truncations"):
            columns[name] = pa.array(np.append(one[name], one[name][:1]))
        (tmp_path / f"episode_id={i:03}").mkdir()
        pyarrow.parquet.write_table(pa.table(columns), tmp_path / f"episode_id={i:03}" / "part-0.parquet")
    replay = OfflineReplay(tmp_path, n_step=2, gamma=0.9)
    assert len(replay) == 80
    save_episodes(tmp_path.parent / "one.feather", episodes)
    np.testing.assert_array_equal(
        replay.sample(50)["reward"], OfflineReplay(tmp_path.parent / "one.feather", n_step=2, gamma=0.9).sample(50)["reward"]
    )


def test_what_is_no_data_set_says_so(tmp_path):
    with pytest.raises(ParlError, match="is no data set of episodes: FileNotFoundError"):
        OfflineReplay(tmp_path / "none.feather")
    with pytest.raises(ParlError, match="its name must end in"):
        OfflineReplay(tmp_path)
    with pytest.raises(ParlError, match="at least one file"):
        OfflineReplay([])
    (one, *_) = episodes_of(some_envs())
    with pytest.raises(ParlError, match=r"episode 0 has .* steps by column"):
        save_episodes(tmp_path / "data.feather", [{**one, "rewards": np.zeros(99)}])
    with pytest.raises(ParlError, match="no episodes to write"):
        save_episodes(tmp_path / "data.feather", [])
    with pytest.raises(ParlError, match=r"rewards has nan at \[0\]"):
        save_episodes(tmp_path / "nan.feather", [{**one, "rewards": np.full(len(one["rewards"]), np.nan)}])
        OfflineReplay(tmp_path / "nan.feather")
