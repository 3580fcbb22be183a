"""Jobs where there is no zygote: each in a new interpreter, as on systems that cannot adopt orphans."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import PATIENCE, alive, until
from patients import Patient

import parl_lite
from parl_lite import folders
from parl_lite.launch import launch

WORKER_WITHOUT_ZYGOTE = """
import functools
from parl_lite.cluster import worker
worker.Children = functools.partial(worker.Children, use_zygote=False)
worker.main()
"""


@pytest.fixture
def cluster_without_zygote(nothing_left: Path):
    folder, lock = folders.make_folder("e")
    address = f"ipc://{folder}/master"
    master = launch("parl_lite.cluster.master", ["--address", address], folder, folder / "master.log")
    master.await_ready(time.monotonic() + 30)
    worker = subprocess.Popen([sys.executable, "-c", WORKER_WITHOUT_ZYGOTE, address, "--folder", str(folder), "--n-cpu", "2"])
    parl_lite.disconnect()
    parl_lite.connect(address, log_to_driver=False)
    yield
    parl_lite.disconnect()
    worker.terminate()
    worker.wait(PATIENCE)
    master.end(5.0)
    os.close(lock)
    folders.remove_if_empty_of_life(folder)


def test_an_actor_lives_in_an_interpreter_of_its_own_and_its_death_is_known(cluster_without_zygote):
    actor = Patient()
    assert actor.echo([1, "two"]) == [1, "two"]
    pids = [actor.pid(), actor.start_child()]
    with pytest.raises(parl_lite.ActorLostError, match="exit code 7") as caught:
        actor.die()
    assert caught.value.exit_code == 7
    until(lambda: not any(map(alive, pids)), 5, "the job and its child ended")
    again = Patient()
    pid = again.pid()
    del again
    until(lambda: not alive(pid), 5, "a released job ended")
