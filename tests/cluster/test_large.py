"""Values above 2 GiB, which a signed 32-bit length cannot count."""

from __future__ import annotations

import numpy as np
import psutil
import pytest
from patients import Patient

import parl_lite

pytestmark = pytest.mark.large

N_BYTES = 2**31 + 17


@pytest.mark.timeout(300)
def test_arrays_above_two_gibibytes_travel_both_ways(cluster):
    if psutil.virtual_memory().available < 14 * 2**30:
        pytest.skip("needs 14 GiB of free memory")
    actor = Patient()
    array = np.zeros(N_BYTES, np.uint8)
    array[-1] = 9
    result = actor.echo(array)
    assert result.nbytes == N_BYTES and result[-1] == 9 and result.flags.writeable
    assert parl_lite.cluster_info()["n_cpu"] == 4, "nobody was taken for dead meanwhile"
    assert actor.echo(1) == 1
