"""Which GPU a job sees."""

from __future__ import annotations

import pytest

from parl_lite.cluster.gpus import behind_mask


@pytest.mark.parametrize(
    ("ids", "mask", "devices"),
    [
        (["0", "1"], None, ("0", "1")),
        (["0", "1"], "3,5", ("3", "5")),
        (["1"], " 3 , 5 ", ("5",)),
        (["GPU-abc"], "GPU-abc,GPU-def", ("GPU-abc",)),
        (["1"], "GPU-abc,GPU-def", ("GPU-def",)),
        ([], "", ()),
    ],
)
def test_ids_are_counted_behind_the_hosts_mask(ids, mask, devices):
    assert behind_mask(ids, mask) == devices


@pytest.mark.parametrize("mask", ["", "3"])
def test_a_gpu_that_the_mask_hides_is_refused(mask):
    with pytest.raises(ValueError, match="--gpu 1 is hidden"):
        behind_mask(["1"], mask)
