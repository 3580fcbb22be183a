"""Vector environments: what is asked of them and how they tell of failures."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from learning_envs import Counter, Faulty

from parl_lite.agents.envs import autoreset_mode_of, make_envs, spaces_of
from parl_lite.agents.spaces import DiscreteActions, ObsSpec, Spaces
from parl_lite.errors import ParlError


def third_faulty(where: str):
    index = itertools.count()
    return lambda: Faulty(where if next(index) == 2 else "")


def test_a_gymnasium_id_is_enough():
    envs = make_envs("CartPole-v1", 3)
    assert envs.num_envs == 3
    assert spaces_of(envs) == Spaces(ObsSpec((4,), np.dtype("float32")), DiscreteActions(2))
    assert autoreset_mode_of(envs) == AutoresetMode.NEXT_STEP


@pytest.mark.parametrize("mode", AutoresetMode)
def test_the_autoreset_mode_is_read_from_the_environments(mode):
    assert autoreset_mode_of(make_envs(lambda: Counter(3), 2, mode)) == mode


@pytest.mark.parametrize("mode", [None, "Sometimes"])
def test_an_unknown_autoreset_mode_is_an_error_not_a_guess(mode):
    envs = make_envs(lambda: Counter(3), 2)
    envs.metadata = {"autoreset_mode": mode}
    with pytest.raises(ParlError, match=rf"is {mode!r}: set it to one of AutoresetMode\.NEXT_STEP"):
        autoreset_mode_of(envs)


def test_a_constructor_that_raises_is_told_with_its_index_and_cause():
    words = r"environment 2 \(<lambda>\) could not be made: ValueError: no display"
    with pytest.raises(ParlError, match=words) as caught:
        make_envs(third_faulty("constructor"), 4)
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_unknown_id_is_told():
    with pytest.raises(ParlError, match=r"environment 0 \(NoSuchEnv-v0\) could not be made: NameNotFound"):
        make_envs("NoSuchEnv-v0", 1)


def test_a_reset_and_a_step_that_raise_are_told_with_index_and_cause():
    envs = make_envs(third_faulty("reset"), 4)
    with pytest.raises(ParlError, match=r"environment 2 \(<lambda>\) raised ValueError in reset\(\): no level"):
        envs.reset()
    envs = make_envs(third_faulty("step"), 4)
    envs.reset()
    with pytest.raises(ParlError, match=r"environment 2 .* raised ValueError in step\(\): no floor") as caught:
        envs.step(np.zeros(4, dtype=np.int64))
    assert isinstance(caught.value.__cause__, ValueError)
    envs.close()
    envs.close()
