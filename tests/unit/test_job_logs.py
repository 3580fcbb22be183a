"""Logs of jobs: found, read with their older part, followed until the job ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from parl_lite import hostos
from parl_lite.cluster import job_logs


@pytest.fixture
def worker_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(hostos, "runtime_folder", lambda: tmp_path)
    folder = tmp_path / "w1"
    (folder / "logs").mkdir(parents=True)
    return folder


def write(folder: Path, name: str, text: str, when: float = 0.0) -> Path:
    path = folder / "logs" / name
    path.write_text(text)
    os.utime(path, (when, when))
    return path


def test_logs_are_found_by_class_or_job_newest_first(worker_folder: Path) -> None:
    old = write(worker_folder, "My-Actor-ab.1.log", "", when=1)
    new = write(worker_folder, "My-Actor-ab.2.log", "", when=2)
    other = write(worker_folder, "Other-ab.3.log", "", when=3)
    assert job_logs.find("My-Actor") == [new, old]
    assert job_logs.find("ab.3") == [other]
    assert job_logs.find("My") == []
    assert job_logs.known_names() == ["My-Actor", "Other"]


def test_a_log_is_read_with_its_older_part_first(worker_folder: Path) -> None:
    path = write(worker_folder, "A-ab.1.log", "new\n")
    write(worker_folder, "A-ab.1.log.old", "old\n")
    assert b"".join(job_logs.read(path)) == b"old\nnew\n"
    assert job_logs.find("A") == [path]


def test_a_log_is_followed_through_a_new_start_until_its_job_ends(worker_folder: Path) -> None:
    path = write(worker_folder, "A-ab.1.log", "one\n")
    socket = worker_folder / "jab.1"
    socket.touch()

    def grow() -> None:
        with open(path, "a") as file:
            file.write("two\n")

    def start_anew() -> None:
        path.rename(f"{path}.old")
        path.write_text("three\n")

    def end() -> None:
        with open(path, "a") as file:
            file.write("four\n")
        socket.unlink()

    steps = iter([grow, start_anew, end])
    assert b"".join(job_logs.follow(path, lambda: next(steps)())) == b"one\ntwo\nthree\nfour\n"
    assert next(steps, None) is None


def test_the_log_of_an_ended_job_is_followed_to_its_end_at_once(worker_folder: Path) -> None:
    path = write(worker_folder, "A-ab.1.log", "all\n")
    assert list(job_logs.follow(path, lambda: pytest.fail("there is nothing to wait for"))) == [b"all\n"]
