"""Which files are shipped: the scan, the ignore rules, the patterns of distributed_files, the bounds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from parl_lite import project_files
from parl_lite.errors import SerializationError
from parl_lite.project_files import select_files
from parl_lite.project_patterns import is_ignored, parse_rules

LIMIT = 1 << 20


def write(folder: Path, *names: str, content: str = "x = 1\n") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


def names(root: Path, *patterns: str, cwd: Path | None = None, limit: int = LIMIT, recursive: bool = True) -> list[str]:
    files = select_files(str(root), patterns, str(cwd or root), recursive=recursive, limit=limit)
    return [file.name for file in files]


# Without being asked


def test_python_files_are_shipped_from_all_depths_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, "main.py", "pkg/a/b.py", "utils/__init__.py", "cfg.ini", "pkg/data.npy", "pkg/a/notes.pyx")
    assert names(tmp_path) == ["main.py", "pkg/a/b.py", "utils/__init__.py"]


def test_environments_caches_and_builds_are_not_shipped(tmp_path: Path) -> None:
    write(tmp_path, "main.py", ".git/hook.py", "pkg/__pycache__/a.py", "env/pyvenv.cfg", "env/lib/x.py", ".hidden.py")
    write(tmp_path, "web/node_modules/n.py", "build/lib/main.py", "dist/x.py", "me.egg-info/x.py", "conda/conda-meta/h")
    write(tmp_path, "conda/lib/y.py", "lib/python3.11/site-packages/z.py")
    assert names(tmp_path) == ["main.py"]


def test_an_environment_made_in_the_root_itself_does_not_hide_the_project(tmp_path: Path) -> None:
    write(tmp_path, "pyvenv.cfg", "main.py")
    assert names(tmp_path) == ["main.py"]


def test_links_are_followed_unless_they_lead_out_or_in_circles(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(tmp_path, "root/pkg/a.py", "outside/b.py", "root/other/c.py")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "inner").symlink_to("pkg")
    (root / "pkg" / "up").symlink_to("..")
    (root / "pkg" / "across").symlink_to("../other")
    (root / "other" / "back").symlink_to("../pkg")
    (root / "self").symlink_to("self")
    found = names(root)
    assert {"pkg/a.py", "inner/a.py", "other/c.py", "pkg/across/c.py", "other/back/a.py"} <= set(found)
    assert not any(name.startswith(("out/", "pkg/up/pkg", "pkg/across/back", "other/back/across")) for name in found)


def test_a_linked_file_is_shipped_and_a_link_to_nowhere_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path, "outside.py", "root/main.py")
    (tmp_path / "root" / "shared.py").symlink_to("../outside.py")
    (tmp_path / "root" / "gone.py").symlink_to("nowhere.py")
    assert names(tmp_path / "root") == ["main.py", "shared.py"]


def test_special_files_and_folders_named_like_modules_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path, "main.py", "folder.py/inner.py")
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / os.fsdecode(b"\xff.py")).write_text("")
    assert names(tmp_path) == ["folder.py/inner.py", "main.py"]


def test_a_folder_that_vanishes_during_the_scan_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "main.py", "gone/a.py")
    scandir = os.scandir

    def vanish(folder: str) -> object:
        if folder.endswith("gone"):
            raise FileNotFoundError(2, "No such file or directory", folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", vanish)
    assert names(tmp_path) == ["main.py"]
    with pytest.raises(SerializationError, match=r"gone \(by 'gone' of distributed_files\) cannot be read: No such file"):
        names(tmp_path, "gone")


def test_without_recursion_only_the_files_beside_each_other_are_shipped(tmp_path: Path) -> None:
    write(tmp_path, "main.py", "helper.py", "deep/a.py")
    assert names(tmp_path, recursive=False) == ["helper.py", "main.py"]


# Ignore files


def test_gitignore_and_parlignore_keep_files_out(tmp_path: Path) -> None:
    write(tmp_path, "main.py", "old/a.py", "pkg/old/b.py", "gen/x_pb2.py", "pkg/x_pb2.py", "data/c.py", "pkg/data/d.py")
    write(tmp_path, ".gitignore", content="old/\n*_pb2.py\n")
    write(tmp_path, ".parlignore", content="# big\n/data\n")
    assert names(tmp_path) == ["main.py", "pkg/data/d.py"]


def test_parlignore_has_the_last_word(tmp_path: Path) -> None:
    write(tmp_path, "main.py", "x_pb2.py", "build/tool.py")
    write(tmp_path, ".gitignore", content="*_pb2.py\n")
    write(tmp_path, ".parlignore", content="!*_pb2.py\n!build/\n")
    assert names(tmp_path) == ["build/tool.py", "main.py", "x_pb2.py"]


@pytest.mark.parametrize(
    ("line", "fits", "fits_not"),
    [
        ("a.py", ["a.py", "x/y/a.py"], ["aa.py", "a.pyc", "a/py"]),
        ("/a.py", ["a.py"], ["x/a.py"]),
        ("x/a.py", ["x/a.py"], ["y/x/a.py"]),
        ("*.py", ["a.py", "x/.b.py"], ["a.pyc"]),
        ("x/*.py", ["x/a.py"], ["x/y/a.py"]),
        ("x/**/a.py", ["x/a.py", "x/y/z/a.py"], ["a.py", "xa.py"]),
        ("**/t", ["t", "a/b/t"], ["at"]),
        ("x/**", ["x/a", "x/y/a"], ["x", "xx/a"]),
        ("x**y", ["xy", "a/xaby"], ["x/y"]),
        ("a?.py", ["ab.py"], ["a.py", "a/.py"]),
        ("*.py[cod]", ["a.pyc"], ["a.pyx", "a.py"]),
        ("[!a-c].py", ["d.py"], ["a.py", "/.py"]),
        ("[^a-c].py", ["d.py"], ["a.py"]),
        ("[]]x", ["]x"], ["[]]x"]),
        ("a(1)+.py   ", ["a(1)+.py"], ["a1.py"]),
        ("\\#a", ["#a"], ["a"]),
        ("\\!a", ["!a"], ["a"]),
        ("*$py.class", ["a$py.class"], ["a.class"]),
    ],
)
def test_an_ignore_line_fits_what_it_fits_in_git(line: str, fits: list[str], fits_not: list[str]) -> None:
    rules = parse_rules([line])
    assert [name for name in [*fits, *fits_not] if is_ignored(rules, name, folder=False)] == fits


@pytest.mark.parametrize("line", ["[z-a]", "a[b", "[]", "a]"])
def test_broken_brackets_stand_for_themselves(line: str) -> None:
    rules = parse_rules([line])
    assert is_ignored(rules, line, folder=False)
    assert not any(is_ignored(rules, name, folder=False) for name in ("a", "b", "ab", "z"))


@pytest.mark.parametrize("line", ["", "   ", "# a", "/", "!"])
def test_lines_that_say_nothing_are_no_rules(line: str) -> None:
    assert parse_rules([line]) == []


def test_a_slash_at_the_end_means_folders_only_and_the_last_rule_decides() -> None:
    rules = parse_rules(["x/", "*.py", "!keep.py"])
    assert is_ignored(rules, "x", folder=True)
    assert not is_ignored(rules, "x", folder=False)
    assert is_ignored(rules, "a.py", folder=False)
    assert not is_ignored(rules, "keep.py", folder=False)


# What the user lists


def test_patterns_ship_any_kind_of_file_even_ignored_ones(tmp_path: Path) -> None:
    write(tmp_path, "main.py", "cfg.ini", "data/a.npy", "data/deep/b.npy", "data/deep/c.txt")
    write(tmp_path, ".gitignore", content="data/\n")
    assert names(tmp_path, "cfg.ini") == ["cfg.ini", "main.py"]
    assert names(tmp_path, "data/*.npy") == ["data/a.npy", "main.py"]
    assert names(tmp_path, "data/**/*.npy") == ["data/a.npy", "data/deep/b.npy", "main.py"]
    assert names(tmp_path, "./data/", "cfg.*") == [
        "cfg.ini",
        "data/a.npy",
        "data/deep/b.npy",
        "data/deep/c.txt",
        "main.py",
    ]
    assert names(tmp_path, "**") == ["cfg.ini", "data/a.npy", "data/deep/b.npy", "data/deep/c.txt", "main.py"]
    assert names(tmp_path, ".") == names(tmp_path, "**")


def test_wildcards_pass_over_hidden_names_and_caches_unless_written_out(tmp_path: Path) -> None:
    write(tmp_path, "a/x.txt", "a/.secret", "a/.git/config", "a/__pycache__/x.pyc", "a/.conf/c.txt")
    assert names(tmp_path, "a") == names(tmp_path, "a/**") == ["a/x.txt"]
    assert names(tmp_path, "a/*") == ["a/x.txt"]
    assert names(tmp_path, "a/.s*", "a/.conf", "a/__pycache__/x.pyc") == [
        "a/.conf/c.txt",
        "a/.secret",
        "a/__pycache__/x.pyc",
    ]
    assert names(tmp_path, "**/.conf/*") == ["a/.conf/c.txt"]


def test_a_name_with_wildcards_in_it_can_be_listed(tmp_path: Path) -> None:
    write(tmp_path, "data[1].txt", "data1.txt")
    assert names(tmp_path, "data[1].txt") == ["data[1].txt"]
    assert names(tmp_path, "data[0-9].txt") == ["data1.txt"]


def test_listed_folders_may_be_links_that_lead_outside(tmp_path: Path) -> None:
    write(tmp_path, "disk/a.npy", "root/main.py")
    (tmp_path / "root" / "data").symlink_to(tmp_path / "disk")
    (tmp_path / "disk" / "loop").symlink_to(tmp_path / "disk")
    assert names(tmp_path / "root", "data") == ["data/a.npy", "main.py"]


def test_a_pattern_that_names_nothing_at_the_root_is_tried_at_the_current_directory(tmp_path: Path) -> None:
    write(tmp_path, "scripts/main.py", "cfg/a.ini", "scripts/own.ini", "own.ini")
    assert names(tmp_path / "scripts", "cfg/*.ini", "own.ini", cwd=tmp_path) == ["cfg/a.ini", "main.py", "own.ini"]
    assert select_files(str(tmp_path / "scripts"), ["own.ini"], str(tmp_path), recursive=True, limit=LIMIT)[-1].path == str(
        tmp_path / "scripts" / "own.ini"
    )


def test_absolute_patterns_are_welcome_below_the_root_even_through_a_link(tmp_path: Path) -> None:
    write(tmp_path, "root/cfg.ini")
    (tmp_path / "link").symlink_to("root")
    assert names(tmp_path / "root", str(tmp_path / "root" / "*.ini")) == ["cfg.ini"]
    assert names(tmp_path / "root", str(tmp_path / "link" / "cfg.ini")) == ["cfg.ini"]


@pytest.mark.parametrize("pattern", ["missing.ini", "empty", "*.none", "../outside.txt", "/etc/hostname", "cfg.ini/x", ""])
def test_a_pattern_that_names_no_file_is_an_error_with_its_name_and_the_folders(tmp_path: Path, pattern: str) -> None:
    root = tmp_path / "root"
    write(tmp_path, "outside.txt", "root/cfg.ini", "root/.hidden")
    (root / "cfg.ini").unlink()
    (root / "empty").mkdir()
    with pytest.raises(SerializationError) as caught:
        names(root, pattern, cwd=root / "empty")
    assert str(caught.value).startswith(f"{pattern!r} of distributed_files names no file below {root} or {root / 'empty'}")


def test_two_files_of_one_name_are_an_error(tmp_path: Path) -> None:
    write(tmp_path, "root/cfg.py", "cfg.py")
    with pytest.raises(SerializationError, match=r"would both be cfg\.py on a worker"):
        names(tmp_path / "root", str(tmp_path / "cfg.py"), cwd=tmp_path)


# Bounds


def test_too_many_bytes_are_refused_with_the_largest_files_and_the_remedy(tmp_path: Path) -> None:
    write(tmp_path, "main.py", "small.py")
    write(tmp_path, "large.py", content="#" * 4000)
    with pytest.raises(SerializationError) as caught:
        names(tmp_path, limit=1000)
    message = str(caught.value)
    assert "4012 bytes to ship, more than the limit of 1000 bytes" in message
    assert "the largest are large.py (4000 bytes), " in message
    assert str(tmp_path / ".parlignore") in message
    assert "PARL_LITE_MAX_PROJECT_SIZE" in message


def test_a_large_data_file_is_not_shipped_silently(tmp_path: Path) -> None:
    write(tmp_path, "main.py")
    with open(tmp_path / "replay.bin", "wb") as file:
        file.truncate(300 * 2**20)
    assert names(tmp_path) == ["main.py"]
    with pytest.raises(SerializationError, match=r"replay.bin \(300.0 MiB, by '\*.bin' of distributed_files\)"):
        names(tmp_path, "*.bin")


def test_too_many_files_are_refused_with_the_folders_that_hold_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_files, "MAX_FILES", 3)
    write(tmp_path, "main.py", "gen/a.py", "gen/b.py")
    assert len(names(tmp_path)) == 3
    write(tmp_path, "gen/c.py")
    with pytest.raises(SerializationError, match=r"4 files to ship, more than 3; most lie in gen \(3\), \. \(1\): keep out"):
        names(tmp_path)
