"""The project as bytes: digest, archive, unpacking, and what an unpacking refuses."""

from __future__ import annotations

import io
import os
import random
import stat
import zipfile
from pathlib import Path

import pytest

from parl_lite import project_archive
from parl_lite.errors import SerializationError
from parl_lite.project import Project, installed, pack, unpack
from parl_lite.project_archive import ContentDigest, read_file

LIMIT = 1 << 20


def project(root: Path, **contents: str) -> Project:
    digest = ContentDigest()
    files = []
    root.mkdir(exist_ok=True)
    for name, content in sorted(contents.items()):
        (root / name).write_text(content)
        digest.add(name, *read_file(str(root / name)))
        files.append((name, str(root / name)))
    return Project(str(root), (), digest.hex(), tuple(files))


def archive(*entries: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for entry, content in entries:
            file.writestr(entry, content)
    return buffer.getvalue()


def test_what_is_packed_is_unpacked(tmp_path: Path) -> None:
    sent = project(tmp_path / "sent", a="one", b="", c="\u00e9" * 3000)
    unpack(pack(sent), str(tmp_path / "cache" / "got"), limit=LIMIT)
    for name, path in sent.files:
        assert (tmp_path / "cache" / "got" / name).read_bytes() == Path(path).read_bytes()
    assert installed(str(tmp_path / "cache" / "got"))
    assert os.listdir(tmp_path / "cache") == ["got"]


def test_the_unpacked_folder_is_private_and_keeps_the_executable_bit(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o755)
    digest = ContentDigest()
    digest.add("bin/run.sh", *read_file(str(tmp_path / "run.sh")))
    sent = Project(str(tmp_path), (), digest.hex(), (("bin/run.sh", str(tmp_path / "run.sh")),))
    unpack(pack(sent), str(tmp_path / "got"), limit=LIMIT)
    assert stat.S_IMODE((tmp_path / "got").stat().st_mode) == 0o700
    assert os.access(tmp_path / "got" / "bin" / "run.sh", os.X_OK)


def test_an_empty_project_travels_too(tmp_path: Path) -> None:
    unpack(pack(project(tmp_path / "sent")), str(tmp_path / "got"), limit=LIMIT)
    assert installed(str(tmp_path / "got"))


def test_the_same_content_is_packed_to_the_same_bytes(tmp_path: Path) -> None:
    first = project(tmp_path / "first", a="one", b="two")
    second = project(tmp_path / "second", a="one", b="two")
    os.utime(tmp_path / "second" / "a", (1, 1))
    assert first.digest == second.digest
    assert pack(first) == pack(second)


@pytest.mark.parametrize("other", [{"a": "one", "b": "2"}, {"a": "onet", "b": "wo"}, {"a": "one", "c": "two"}, {"a": "one"}])
def test_other_content_or_names_give_another_digest(tmp_path: Path, other: dict[str, str]) -> None:
    assert project(tmp_path / "first", a="one", b="two").digest != project(tmp_path / "second", **other).digest


def test_files_that_change_or_vanish_before_they_are_packed_are_an_error(tmp_path: Path) -> None:
    sent = project(tmp_path / "sent", a="one")
    (tmp_path / "sent" / "a").write_text("two")
    with pytest.raises(SerializationError, match="were changed"):
        pack(sent)
    (tmp_path / "sent" / "a").unlink()
    with pytest.raises(SerializationError, match=r"sent/a of the project cannot be read any more: No such file"):
        pack(sent)


def test_a_folder_that_lost_a_file_is_not_installed_and_is_replaced(tmp_path: Path) -> None:
    data = pack(project(tmp_path / "sent", a="one", b="two"))
    folder = tmp_path / "cache" / "got"
    assert not installed(str(folder))
    unpack(data, str(folder), limit=LIMIT)
    (folder / "b").unlink()
    assert not installed(str(folder))
    unpack(data, str(folder), limit=LIMIT)
    assert (folder / "b").read_text() == "two"
    assert os.listdir(tmp_path / "cache") == ["got"]


def test_a_complete_folder_is_left_alone(tmp_path: Path) -> None:
    data = pack(project(tmp_path / "sent", a="one"))
    unpack(data, str(tmp_path / "got"), limit=LIMIT)
    (tmp_path / "got" / "written_by_a_job").touch()
    unpack(data, str(tmp_path / "got"), limit=LIMIT)
    assert (tmp_path / "got" / "written_by_a_job").exists()


def test_the_slower_of_two_that_unpack_at_once_accepts_the_work_of_the_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pack(project(tmp_path / "sent", a="one"))
    rename = os.rename

    def be_late(source: str, target: str) -> None:
        monkeypatch.setattr(os, "rename", rename)
        unpack(data, str(tmp_path / "cache" / "got"), limit=LIMIT)
        raise FileNotFoundError(2, "No such file or directory", source)  # what this process saw a moment ago

    monkeypatch.setattr(os, "rename", be_late)
    unpack(data, str(tmp_path / "cache" / "got"), limit=LIMIT)
    assert os.listdir(tmp_path / "cache") == ["got"]
    assert installed(str(tmp_path / "cache" / "got"))


def link_entry() -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo("link")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return entry


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([("/etc/x", b"")], "'/etc/x' is not a plain name"),
        ([("ok", b""), ("../x", b"")], "'../x' is not a plain name"),
        ([("a/../../x", b"")], "is not a plain name"),
        ([("a//x", b"")], "is not a plain name"),
        ([("a/./x", b"")], "is not a plain name"),
        ([("folder/", b"")], "is not a plain name"),
        ([(link_entry(), b"/etc/passwd")], "'link' is a link"),
        ([("a", b""), ("a/b", b"")], "cannot unpack the project into .*: (Not a directory|File exists)"),
        ([("n" * 300, b"")], "cannot unpack the project into .*: File name too long"),
        ([("big", bytes(LIMIT)), ("bigger", b"x")], f"has 2 files of {LIMIT + 1} bytes together; allowed"),
    ],
)
def test_malicious_archives_are_refused_and_leave_nothing(
    tmp_path: Path, entries: list[tuple[str | zipfile.ZipInfo, bytes]], reason: str
) -> None:
    with pytest.raises(SerializationError, match=reason):
        unpack(archive(*entries), str(tmp_path / "cache" / "got"), limit=LIMIT)
    assert os.listdir(tmp_path) == ["cache"]
    assert os.listdir(tmp_path / "cache") == []


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_comes_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SerializationError, match="File exists"):
        unpack(archive(("a", b"1"), ("a", b"2")), str(tmp_path / "got"), limit=LIMIT)


def test_more_files_than_allowed_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_archive, "MAX_FILES", 2)
    with pytest.raises(SerializationError, match="has 3 files of 0 bytes"):
        unpack(archive(("a", b""), ("b", b""), ("c", b"")), str(tmp_path / "got"), limit=LIMIT)


def test_a_bomb_that_lies_about_its_size_yields_no_more_than_it_declares(tmp_path: Path) -> None:
    data = archive(("bomb", bytes(50 * LIMIT)))
    lie = data.replace((50 * LIMIT).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    assert lie != data
    with pytest.raises(SerializationError, match="damaged: Bad CRC-32"):
        unpack(lie, str(tmp_path / "cache" / "got"), limit=LIMIT)
    assert os.listdir(tmp_path / "cache") == []


def test_another_compression_and_encryption_are_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_BZIP2) as file:
        file.writestr("a", b"x" * 100)
    with pytest.raises(SerializationError, match="compressed in another way"):
        unpack(buffer.getvalue(), str(tmp_path / "got"), limit=LIMIT)


def test_damaged_archives_end_in_a_named_error_or_in_the_right_files(tmp_path: Path) -> None:
    generator = random.Random(0)
    data = pack(project(tmp_path / "sent", a="one" * 50, b="two"))
    refused = 0
    for attempt in range(300):
        damaged = bytearray(data[: generator.randrange(len(data))] if attempt % 3 == 0 else data)
        for _ in range(generator.randrange(1, 4)):
            if damaged:
                damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        folder = tmp_path / "cache" / str(attempt)
        try:
            unpack(bytes(damaged), str(folder), limit=LIMIT)
        except SerializationError:
            refused += 1
            assert not folder.exists()
        else:
            assert installed(str(folder))
    assert refused > 200
