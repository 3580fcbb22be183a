"""The whole cluster under seeded random schedules with lost messages, broken links, deaths and restarts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from town import Town

from parl_lite.messages import CATALOGUE


@pytest.mark.parametrize("seed", range(60))
def test_no_wish_and_no_slot_is_lost_whatever_breaks(seed):
    town = Town(seed)
    for _ in range(250):
        town.step()
    town.settle()
    town.check_settled()


@pytest.mark.parametrize("seed", range(20))
def test_without_faults_nothing_is_ever_lost(seed):
    town = Town(1000 + seed)
    for _ in range(250):
        town.step(faults=False)
    town.settle()
    town.check_settled()
    assert not any(client.lost for client in town.clients())


def test_the_schedules_use_every_message_of_the_catalogue():
    seen: set[str] = set()
    for seed in range(12):
        town = Town(seed)
        for _ in range(250):
            town.step()
        town.settle()
        seen |= town.seen
    only_by_command_line = {"StopCluster", "StopNode"}
    only_on_mismatch = {"Refused"}
    assert seen == set(CATALOGUE) - only_by_command_line - only_on_mismatch
