"""A saved buffer goes on bit by bit; files are Arrow's and can be mapped; what cannot be read says so."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
from fake_rollouts import FakeEnvs
from test_replay_sequences import with_state

from parl_lite import Rollout
from parl_lite.agents.replay import PrioritizedSampler, SequenceReplay, TransitionReplay, UniformSampler
from parl_lite.errors import ParlError

TRANSITIONS = partial(TransitionReplay, n_step=3, gamma=0.9, frame_stack=4, seed=5)
SEQUENCES = partial(SequenceReplay, length=8, burn_in=2, period=4, frame_stack=4, seed=5)


def flat(batch, name="batch") -> dict[str, np.ndarray]:
    if isinstance(batch, dict):
        return {path: array for key, child in batch.items() for path, array in flat(child, f"{name}/{key}").items()}
    if isinstance(batch, tuple):
        return {path: array for key, child in enumerate(batch) for path, array in flat(child, f"{name}/{key}").items()}
    return {name: np.asarray(batch)}


def assert_same(mine, other) -> None:
    mine, other = flat(mine), flat(other)
    assert mine.keys() == other.keys()
    for name, array in mine.items():
        assert (array.dtype, array.shape, array.tobytes()) == (other[name].dtype, other[name].shape, other[name].tobytes()), name


@pytest.mark.parametrize("make", [TRANSITIONS, SEQUENCES])
@pytest.mark.parametrize("make_sampler", [UniformSampler, partial(PrioritizedSampler, beta_end=1.0, beta_draws=100)])
@pytest.mark.parametrize("n_rollouts", [3, 40])
def test_a_saved_buffer_goes_on_bit_by_bit(tmp_path, make, make_sampler, n_rollouts):
    one, other = make(150, sampler=make_sampler()), make(150, sampler=make_sampler())
    sources = [FakeEnvs(i, 1 + i, "same_step", "dict", longest=20) for i in range(2)]
    random = np.random.default_rng(0)

    def go_on(buffers, i):
        rollout = with_state(sources[i % 2].rollout(5), float(i))
        if i % 3:
            rollout["priority"] = random.random(rollout["reward"].shape)
        for buffer in buffers:
            buffer.add(rollout, source=i % 2)
        if len(buffers[0]) > 8:
            batches = [buffer.sample(16) for buffer in buffers]
            if buffers[0].sampler.prioritized:
                error = random.random(16)
                for buffer, batch in zip(buffers, batches, strict=True):
                    buffer.update_priorities(batch["index"], error)
            for batch in batches[1:]:
                assert_same(batches[0], batch)

    for i in range(n_rollouts):
        go_on([one], i)
    one.save(tmp_path / "buffer", {"env_steps": 7})
    assert other.restore(tmp_path / "buffer") == {"env_steps": 7}
    assert (len(other), other.n_inserted, other.n_drawn) == (len(one), one.n_inserted, one.n_drawn)
    for i in range(n_rollouts, n_rollouts + 50):
        go_on([one, other], i)


def full(n_rollouts: int = 10, **settings) -> TransitionReplay:
    buffer, envs = TRANSITIONS(150, **settings), FakeEnvs(1, 2, "next_step", "stack")
    for _ in range(n_rollouts):
        buffer.add(envs.rollout(10))
    return buffer


def test_the_file_is_an_arrow_table_that_can_be_mapped(tmp_path):
    buffer = full()
    buffer.save(tmp_path)
    (path,) = tmp_path.glob("rows-*.arrow")
    rollout = Rollout.load(path)
    frames = rollout["obs"]["frame"]
    assert not frames.flags.owndata and not frames.flags.writeable
    np.testing.assert_array_equal(frames, buffer.store.obs["obs"].arrays["frame"])
    np.testing.assert_array_equal(rollout["step"]["reward"], buffer.store.columns["reward"])


def test_only_the_rows_in_use_are_written(tmp_path):
    full(2).save(tmp_path)
    (path,) = tmp_path.glob("rows-*.arrow")
    assert len(Rollout.load(path)) < 60


def test_a_second_save_replaces_the_first_and_an_unfinished_one_is_not_seen(tmp_path):
    full(2).save(tmp_path)
    before = json.loads((tmp_path / "replay.json").read_text())
    buffer = full(5)
    buffer.save(tmp_path)
    (tmp_path / "rows-dead.arrow").write_bytes(b"half a fi")  # as a crash leaves it
    assert json.loads((tmp_path / "replay.json").read_text())["files"] != before["files"]
    other = TRANSITIONS(150)
    other.restore(tmp_path)
    assert len(other) == len(buffer)
    buffer.save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_buffer_made_with_other_settings_says_which(tmp_path):
    full().save(tmp_path)
    with pytest.raises(ParlError, match="holds a buffer with capacity = 150, and this one has 99"):
        TRANSITIONS(99).restore(tmp_path)
    with pytest.raises(ParlError, match="n_step = 3, and this one has 1"):
        TransitionReplay(150, gamma=0.9, frame_stack=4).restore(tmp_path)
    with pytest.raises(ParlError, match=r"sampler = \{'kind': 'uniform'\}, and this one has"):
        TRANSITIONS(150, sampler=PrioritizedSampler()).restore(tmp_path)
    other = TRANSITIONS(150)
    other.add(FakeEnvs(0, 1, "next_step", "vector").rollout(3))
    with pytest.raises(ParlError, match=r"column 'obs' has rows of uint8 \(4, 2, 3\), and this buffer has rows of float32"):
        other.restore(tmp_path)


def test_what_is_no_saved_buffer_says_so(tmp_path):
    with pytest.raises(ParlError, match="holds no saved replay buffer"):
        TRANSITIONS(150).restore(tmp_path)
    full().save(tmp_path)
    (path,) = tmp_path.glob("rows-*.arrow")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ParlError, match="cannot be read as part of a saved replay buffer"):
        TRANSITIONS(150).restore(tmp_path)


def test_an_empty_buffer_can_be_saved(tmp_path):
    TRANSITIONS(150).save(tmp_path)
    other = TRANSITIONS(150)
    other.restore(tmp_path)
    assert len(other) == 0
    assert other.add(FakeEnvs(1, 2, "next_step", "stack").rollout(4)) > 0
