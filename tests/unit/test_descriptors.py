"""Files a process may still open, and waiting for one of any number."""

from __future__ import annotations

import fcntl
import os
import resource
from collections.abc import Iterator

import pytest

from parl_lite import hostos


@pytest.fixture
def limit() -> Iterator[int]:
    """Let this process open 2048 files at most."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, before[1]))
    yield 2048
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_what_can_be_opened_is_not_kept_open(limit):
    before = os.listdir("/dev/fd")
    hostos.need_descriptors(100)
    assert os.listdir("/dev/fd") == before


def test_too_few_descriptors_are_an_error_with_the_limit_that_leaves_none_open(limit):
    before = os.listdir("/dev/fd")
    with pytest.raises(OSError, match=r"may have 2048: raise the limit with `ulimit -n`"):
        hostos.need_descriptors(2048)
    assert os.listdir("/dev/fd") == before


def test_a_descriptor_above_1023_can_be_waited_for(limit):
    read, write = os.pipe()
    high = fcntl.fcntl(read, fcntl.F_DUPFD, 1500)
    assert not hostos.readable(high)
    os.write(write, b"x")
    assert hostos.readable(high, 5.0)
    for fd in (read, write, high):
        os.close(fd)


def test_an_end_is_readable():
    read, write = os.pipe()
    os.close(write)
    assert hostos.readable(read, 5.0)
    os.close(read)
