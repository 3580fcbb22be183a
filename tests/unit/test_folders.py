"""Private folders stay while somebody lives in them, and are swept when nobody does."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from parl_lite import folders, hostos


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime folder of its own, with a path short enough for sockets."""
    short = tempfile.mkdtemp(prefix="pl", dir="/tmp")
    monkeypatch.setattr("tempfile.tempdir", short)
    yield hostos.runtime_folder()
    shutil.rmtree(short)


def test_a_new_folder_is_private_and_none_like_another(base: Path) -> None:
    one, one_lock = folders.make_folder("e")
    two, two_lock = folders.make_folder("e")
    assert one != two
    assert {one.parent, two.parent} == {base}
    assert one.name.startswith("e")
    assert stat.S_IMODE(one.stat().st_mode) == 0o700
    os.close(one_lock)
    os.close(two_lock)


def test_a_folder_that_somebody_lives_in_is_not_swept(base: Path) -> None:
    folder, lock = folders.make_folder("e")
    folders.sweep(base)
    assert folder.is_dir()
    os.close(lock)


def test_a_folder_that_nobody_lives_in_is_swept_with_all_it_holds(base: Path) -> None:
    folder, lock = folders.make_folder("e")
    (folder / "logs").mkdir()
    (folder / "logs" / "a.log").write_text("words")
    os.close(lock)
    folders.sweep(base)
    assert not folder.exists()


def test_making_a_folder_sweeps_those_that_were_left(base: Path) -> None:
    left, lock = folders.make_folder("e")
    os.close(lock)
    new, lock = folders.make_folder("e")
    assert sorted(base.glob("e*")) == [new]
    assert left != new
    os.close(lock)


def test_the_last_one_who_leaves_removes_the_folder(base: Path) -> None:
    folder, first = folders.make_folder("e")
    second = folders.move_in(folder)
    os.close(first)
    folders.remove_if_empty_of_life(folder)
    assert folder.is_dir()
    os.close(second)
    folders.remove_if_empty_of_life(folder)
    assert not folder.exists()


def test_a_folder_that_is_gone_already_is_no_error(base: Path) -> None:
    folders.remove_if_empty_of_life(base / "gone")
    folders.sweep(base)
    assert [path.name for path in base.iterdir()] == [".making"]


def test_what_is_no_folder_of_ours_is_left_alone(base: Path) -> None:
    (base / "theirs").mkdir()
    (base / "file").write_text("theirs")
    folders.sweep(base)
    assert sorted(path.name for path in base.iterdir()) == ["file", "theirs"]


def test_a_child_process_does_not_inherit_the_lock(base: Path) -> None:
    folder, lock = folders.make_folder("e")
    assert not os.get_inheritable(lock)
    assert stat.S_IMODE((folder / "lock").stat().st_mode) == 0o600
    os.close(lock)
