"""A job's output: all of it in the file, its end in memory, whole lines at a bounded rate to the driver."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from parl_lite.cluster.job_log import JobLog
from parl_lite.settings import Settings


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "Actor-e.1.log"


@pytest.fixture
def open_log(path: Path, clock: Clock) -> Iterator[Callable[..., JobLog]]:
    """Make a log with 100 bytes a second for the driver, and other limits as given."""
    path.parent.mkdir()
    logs = []

    def make(**limits: int) -> JobLog:
        logs.append(JobLog(str(path), Settings(log_batch=100, log_interval=1.0, **limits), clock))
        return logs[-1]

    yield make
    for log in logs:
        log.close()


Open = Callable[..., JobLog]


# The file


def test_all_output_goes_to_a_private_file_at_once(open_log: Open, path: Path) -> None:
    log = open_log()
    log.take(b"a line\nhalf a ")
    assert path.read_bytes() == b"a line\nhalf a "
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_log_that_is_there_already_goes_on(open_log: Open, path: Path) -> None:
    path.write_bytes(b"before\n")
    open_log().take(b"after\n")
    assert path.read_bytes() == b"before\nafter\n"


def test_a_log_that_grew_too_large_starts_anew_and_keeps_one_older_part(open_log: Open, path: Path) -> None:
    log = open_log(log_file_size=10)
    for part in (b"first---\n", b"second--\n", b"third---\n"):
        log.take(part)
    assert path.read_bytes() == b"third---\n"
    assert path.with_name(path.name + ".old").read_bytes() == b"second--\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_folder_that_vanished_does_not_end_the_job(open_log: Open, path: Path) -> None:
    log = open_log(log_file_size=10)
    shutil.rmtree(path.parent)
    assert log.take(b"12345\n") == "12345\n"
    assert log.take(b"67890\n") == "67890\n"
    assert log.take(b"\n") == "\n"
    assert log.tail() == "12345\n67890\n\n"


def test_a_file_that_cannot_be_opened_anew_leaves_the_log_usable(open_log: Open, path: Path) -> None:
    log = open_log(log_file_size=10)
    log.take(b"12345\n")
    path.with_name(path.name + ".old").mkdir()
    assert log.take(b"67890\n") == "67890\n"
    assert log.take(b"abc\n") == "abc\n"


# The tail


def test_the_tail_is_the_end_of_the_output(open_log: Open) -> None:
    log = open_log(log_tail=8)
    assert log.tail() == ""
    log.take(b"one\ntwo\n")
    log.take(b"three")
    assert log.tail() == "wo\nthree"


def test_what_is_no_utf_8_is_replaced(open_log: Open) -> None:
    log = open_log()
    assert log.take(b"a\xffb\n") == "a\ufffdb\n"
    assert log.tail() == "a\ufffdb\n"


# The driver


def test_the_driver_sees_whole_lines(open_log: Open) -> None:
    log = open_log()
    assert log.take(b"one\ntw") == "one\n"
    assert log.take(b"o") == ""
    assert log.take(b"\nthree") == "two\n"
    assert log.close() == "three"


def test_a_character_cut_in_two_is_whole_for_the_driver(open_log: Open) -> None:
    log = open_log()
    cut = "größe\n".encode()
    assert log.take(cut[:3]) == ""
    assert log.take(cut[3:]) == "größe\n"


def test_a_line_longer_than_a_batch_is_not_kept_in_memory_until_its_end(open_log: Open, path: Path) -> None:
    log = open_log()
    assert log.take(b"begin\n" + b"x" * 101) == "begin\n"
    assert log.take(b"x" * 49) == ""
    assert log.take(b"end\n") == f"[101 bytes of output not shown here; all is in {path}]\n{'x' * 49}end\n"


def test_more_than_the_rate_is_hidden_and_told_with_what_comes_next(open_log: Open, clock: Clock, path: Path) -> None:
    log = open_log()
    assert log.take(b"x" * 79 + b"\n") == "x" * 79 + "\n"
    assert log.take(b"y" * 29 + b"\n") == ""
    clock.now += 0.5
    assert log.take(b"z\n") == f"[30 bytes of output not shown here; all is in {path}]\nz\n"
    assert log.take(b"z\n") == "z\n"
    assert path.stat().st_size == 114


def test_the_allowance_fills_up_with_time_to_one_batch_at_most(open_log: Open, clock: Clock) -> None:
    log = open_log()
    clock.now += 1000
    assert log.take(b"x" * 100 + b"\n") == ""
    assert log.take(b"x" * 98 + b"\n") != ""


def test_what_was_hidden_is_told_at_the_end_at_the_latest(open_log: Open, path: Path) -> None:
    log = open_log()
    log.take(b"x" * 99 + b"\n")
    log.take(b"y\n")
    assert log.close() == f"[2 bytes of output not shown here; all is in {path}]\n"


def test_last_words_over_the_rate_are_counted_too(open_log: Open, path: Path) -> None:
    log = open_log()
    log.take(b"x" * 99 + b"\n")
    log.take(b"last words")
    assert log.close() == f"[10 bytes of output not shown here; all is in {path}]\n"
