"""Scripts in the style of PARL's examples run as they are, but for the name of the package, and their agents learn."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import parl_lite

SCRIPTS = Path(__file__).parent / "parl_scripts"
Results = list[list[str]]
Run = Callable[..., Results]


@pytest.fixture(scope="module")
def address(nothing_left: Path) -> Iterator[str]:
    """Give all scripts one embedded cluster, whose jobs share what they import of torch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PARL_LITE_PRELOAD")
        parl_lite.connect(n_cpu=2, log_to_driver=False)
    yield parl_lite.cluster_info()["address"]
    parl_lite.disconnect()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a copy of a script in a folder of its own; return the words of its lines RESULT."""

    def run(script: str, *arguments: str, **environment: str) -> Results:
        shutil.copytree(SCRIPTS, tmp_path, dirs_exist_ok=True)
        command = [sys.executable, Path(script).name, *arguments]
        environment = os.environ | environment | {"OMP_NUM_THREADS": "1"}
        folder = (tmp_path / script).parent
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        return [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("RESULT")]

    return run


LOGGING = """
import logging
import parl_lite as parl

def look():
    return [str(handler) for handler in logging.getLogger().handlers], logging.getLogger().level

@parl.remote_class
class Actor:
    def __init__(self):
        before = look()
        from parl_lite.utils import logger
        self.same = look() == before
        logger.info("a line of the actor")

parl.connect(log_to_driver=True)
assert Actor().same
parl.disconnect()
"""


def learnt(results: Results, factor: float) -> str:
    """Check that the last returns are `factor` times the first; return what else the script says."""
    ((first, last, more),) = results
    assert float(last) > factor * float(first)
    return more


def test_policy_gradient_as_in_the_quick_start(run, tmp_path):
    assert learnt(run("quickstart.py"), 1.5) == "True"
    assert (tmp_path / "model_dir" / "model.ckpt").exists()


def test_dqn_with_a_replay_memory(run, tmp_path):
    assert int(learnt(run("dqn.py"), 1.5)) >= 2000
    assert (tmp_path / "rpm.npz").exists()


def test_a2c_with_actors_that_are_written_in_modules(run, address, tmp_path):
    assert learnt(run("a2c/train.py", PARL_LITE_ADDRESS=address), 1.5) == "True"
    logs = tmp_path / "a2c" / "train_log"
    assert (logs / "result.csv").read_text().startswith("steps,mean_episode_rewards,total_loss\n")
    assert "Waiting for 2 remote actors" in (logs / "log.log").read_text()
    assert list(logs.glob("events.*"))


def test_ppo_with_an_actor_for_each_environment(run, address):
    assert learnt(run("ppo.py", PARL_LITE_ADDRESS=address), 1.5) == "True"


@pytest.mark.slow
def test_ppo_of_continuous_actions(run, address):
    ((_, _, finite),) = run("ppo.py", "--continuous_action", PARL_LITE_ADDRESS=address)
    assert finite == "True"


def test_a_line_that_an_actor_logs_appears_once_and_the_logging_of_the_actor_stays_as_it_is(address, tmp_path):
    environment = os.environ | {"PARL_LITE_ADDRESS": address}
    (tmp_path / "script.py").write_text(LOGGING)
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "a line of the actor" in line]
    assert line.startswith("(Actor ")
    assert sorted(os.listdir(tmp_path)) == ["script.py"]


@pytest.mark.slow
def test_impala_with_a_thread_for_each_actor(run, address):
    assert learnt(run("impala.py", PARL_LITE_ADDRESS=address), 1.2) == "True"


def test_ddpg_td3_and_sac_save_and_restore(run, tmp_path):
    results = run("continuous.py", "DDPG", "TD3", "SAC")
    assert [(name, same) for name, *_, same in results] == [(name, "True") for name in ("DDPG", "TD3", "SAC")]
    assert {path.name for path in (tmp_path / "train_log" / "continuous").glob("events.*")}
