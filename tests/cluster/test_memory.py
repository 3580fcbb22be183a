"""max_memory: the guilty job dies with the figures, nobody else, and nobody by mistake."""

from __future__ import annotations

import gc

import pytest
from conftest import until
from patients import Eater, Patient

import parl_lite


@pytest.mark.parametrize("where", ["in the job", "in a child of the job"])
def test_a_job_over_its_limit_is_killed_with_figures(cluster, where):
    other, eater = Patient(), Eater()
    eater.pause(0.7)  # its memory at the start is measured
    with pytest.raises(parl_lite.OutOfMemoryError, match=r"\d{3} MB more memory than at its start, max_memory is 200 MB"):
        if where == "in the job":
            for _ in range(3):  # once is enough, unless its memory at the start was measured very late
                eater.grow(400)
                eater.pause(5)
        else:
            eater.grow_in_child(400)
    assert other.echo(1) == 1
    gc.collect()  # the caught errors of earlier tests hold frames, and these their actors
    until(lambda: parl_lite.cluster_info()["free_cpu"] == 3, 5, "the slot is free")
    assert "max_memory is 200 MB" in parl_lite.cluster_info()["deaths"][-1]["reason"]


def test_a_job_below_its_limit_lives(cluster):
    eater = Eater()
    eater.pause(0.7)
    assert eater.grow(100) == 1
    assert eater.pause(1.2) == "here"
