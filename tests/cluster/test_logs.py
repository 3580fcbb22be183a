"""What actors print: at the driver with their name in front, in a file of their own, and nothing lost before a crash."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from conftest import until
from patients import Printer, Threads

import parl_lite

SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from patients import Printer
import parl_lite
parl_lite.connect(n_cpu=1, log_to_driver={show})
actor = Printer()
actor.say("from python")
actor.write_by_c("from c\\n")
actor.say_by_child("from a child")
print("end of script", flush=True)
"""


@pytest.mark.parametrize("show", [True, False])
def test_prints_appear_at_the_driver_unless_switched_off(run_script, nothing_left, show):
    done = run_script(SCRIPT.format(folder=os.path.dirname(__file__), show=show))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "end of script" in lines
    printed = [line for line in lines if line != "end of script"]
    if show:
        assert [line.rpartition(") ")[2] for line in printed] == ["from python", "from c", "from a child"]
        assert all(re.match(r"\(Printer \S+ \d+\) ", line) for line in printed)
    else:
        assert printed == []


def test_a_log_file_keeps_everything(cluster):
    actor = Printer()
    actor.say("one")
    actor.write_by_c("two")
    [job] = [job for job in parl_lite.cluster_info()["workers"][0]["jobs"] if job["actor"] == "Printer"]
    until(lambda: Path(job["log"]).read_text() == "one\ntwo", 5, "both lines are in the log")
    assert Path(job["log"]).stat().st_mode & 0o077 == 0


def test_nothing_written_before_a_crash_is_lost(cluster):
    actor = Printer()
    with pytest.raises(parl_lite.ActorLostError) as caught:
        actor.die_after("my last words")
    assert "my last words" in str(caught.value)
    assert "my last words" in Path(caught.value.log_path).read_text()
    assert caught.value.exit_code == 9


def test_a_segmentation_fault_tells_where_it_was(cluster):
    actor = Printer()
    with pytest.raises(parl_lite.ActorLostError, match="SIGSEGV") as caught:
        actor.crash_after("before the fault")
    assert "before the fault" in str(caught.value)
    assert "crash_after" in str(caught.value), "faulthandler names the method"


def test_a_flood_of_output_neither_blocks_nor_floods_the_driver(cluster):
    actor = Printer()
    actor.flood(20_000)
    [job] = [job for job in parl_lite.cluster_info()["workers"][0]["jobs"] if job["actor"] == "Printer"]
    until(lambda: Path(job["log"]).read_text().endswith(f"line 19999 {'x' * 80}\n"), 10, "the log has it all")


def test_a_job_has_one_thread_and_more_when_it_reserves_more(cluster):
    one, two = Threads(), Threads.options(n_cpu=2)()
    assert set(one.variables().values()) == {"1"}
    assert set(two.variables().values()) == {"2"}
    assert (one.of_torch(), two.of_torch()) == (1, 2)
    assert set(one.of_blas()) <= {1} and set(two.of_blas()) <= {2}


def test_the_users_own_choice_of_threads_wins(run_script, nothing_left, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    script = (
        f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
        "from patients import Threads\n"
        "import parl_lite\n"
        "parl_lite.connect(n_cpu=2)\n"
        "print(Threads.options(n_cpu=2)().variables()['OMP_NUM_THREADS'])\n"
    )
    assert run_script(script).stdout.split() == ["3"]


def test_importing_changes_nothing(run_script, nothing_left):
    script = (
        "import logging, multiprocessing, os, signal, sys, threading, warnings\n"
        "def state():\n"
        "    root = logging.getLogger()\n"
        "    return (dict(os.environ), root.level, root.handlers[:], warnings.filters[:], threading.active_count(),\n"
        "            [signal.getsignal(n) for n in (2, 15, 17)], multiprocessing.get_start_method(allow_none=True))\n"
        "import numpy, pyarrow, zmq\n"
        "before = state()\n"
        "import parl_lite\n"
        "assert state() == before, (before, state())\n"
        "assert 'torch' not in sys.modules\n"
        "print('unchanged')\n"
    )
    done = run_script(script)
    assert done.stdout == "unchanged\n", done.stderr
