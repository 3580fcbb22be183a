"""Which files of the user's project are shipped to the workers. Knows patterns, nothing of archives or modules.

Shipped without being asked are the `.py` files below the root, except

* what DEFAULT_RULES, then the lines of `.gitignore`, then those of `.parlignore` (both at the root only) keep out,
* virtual environments (a folder that holds `pyvenv.cfg` or `conda-meta`),
* folders behind links that lead out of the root or in circles,
* files and folders that cannot be read, or are gone by the time they are.

Besides, whatever the patterns of `distributed_files` name: any kind of file, ignored or not.
"""

from __future__ import annotations

import heapq
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, NoReturn

from parl_lite.errors import SerializationError
from parl_lite.project_patterns import IgnoreRule, compile_pattern, is_ignored, parse_rules

MAX_FILES = 5_000
DEFAULT_RULES = (".*", "__pycache__/", "site-packages/", "node_modules/", "build/", "dist/", "*.egg-info/")


class ShippedFile(NamedTuple):
    """A file to ship."""

    name: str
    """Where it lies below the project's folder on a worker, with slashes."""
    path: str
    """Where it is on this machine."""
    size: int
    """Bytes."""
    pattern: str
    """What of `distributed_files` named it; empty for a file shipped without being asked."""


def select_files(root: str, patterns: Sequence[str], cwd: str, *, recursive: bool, limit: int) -> list[ShippedFile]:
    """Return the files to ship, sorted by name; see the head of this module.

    Args:
        root: the project's folder, a real path.
        patterns: the user's `distributed_files`.
        cwd: the folder where a pattern is tried that names nothing below root, a real path.
        recursive: whether folders below root are looked into without being asked.
        limit: bytes that all files together may have.

    Raises:
        SerializationError: a pattern names no file, a file it names cannot be read, two files would have one name,
            or the files are too many or too large.
    """
    shipped = {file.name: file for file in _python_files(root, recursive)}
    for pattern in patterns:
        for file in listed_files(pattern, root, cwd):
            other = shipped.get(file.name, file)
            if other.path != file.path:
                raise SerializationError(
                    f"{other.path} and {file.path} ({_origin(pattern)}) would both be {file.name} on a worker"
                )
            shipped[file.name] = file
    files = sorted(shipped.values())
    check_bounds(files, root, limit)
    return files


def check_bounds(files: Sequence[ShippedFile], root: str, limit: int) -> None:
    """Raise SerializationError, naming culprits and remedy, for more than MAX_FILES files or `limit` bytes."""
    remedy = (
        f"keep out what no actor needs, by lines in {os.path.join(root, '.parlignore')} or fewer distributed_files, "
        f"and open data by its absolute path on a disk that all machines share"
    )
    if len(files) > MAX_FILES:
        folders = Counter(os.path.dirname(file.name) or "." for file in files).most_common(5)
        most = ", ".join(f"{folder} ({count})" for folder, count in folders)
        raise SerializationError(
            f"the project {root} has {len(files)} files to ship, more than {MAX_FILES}; most lie in {most}: {remedy}"
        )
    total = sum(file.size for file in files)
    if total > limit:
        largest = ", ".join(map(_describe, heapq.nlargest(5, files, key=lambda file: file.size)))
        raise SerializationError(
            f"the project {root} has {_size(total)} to ship, more than the limit of {_size(limit)}; the largest are "
            f"{largest}: {remedy}, or raise the limit with PARL_LITE_MAX_PROJECT_SIZE (bytes)"
        )


def _describe(file: ShippedFile) -> str:
    return f"{file.name} ({_size(file.size)}{', ' + _origin(file.pattern) if file.pattern else ''})"


def _origin(pattern: str) -> str:
    return f"by {pattern!r} of distributed_files"


def _size(size: int) -> str:
    return f"{size / 2**20:.1f} MiB" if size >= 2**20 else f"{size} bytes"


def lies_below(path: str, folder: str) -> bool:
    """Say whether the path is the folder or below it, by its text alone."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


# Files shipped without being asked


def _python_files(root: str, recursive: bool) -> Iterator[ShippedFile]:
    rules = read_ignore_rules(root)

    def enter(entry: os.DirEntry[str], name: str) -> bool:
        return (
            recursive
            and not is_ignored(rules, name, folder=True)
            and not (entry.is_symlink() and not lies_below(os.path.realpath(entry.path), root))
            and not any(os.path.exists(os.path.join(entry.path, mark)) for mark in ("pyvenv.cfg", "conda-meta"))
        )

    for name, entry in _walk(root, enter):
        if name.endswith(".py") and _is_text(name) and not is_ignored(rules, name, folder=False):
            try:
                yield ShippedFile(name, entry.path, entry.stat().st_size, "")
            except OSError:  # gone since
                continue


def read_ignore_rules(root: str) -> list[IgnoreRule]:
    """Return the rules for the root; a `.gitignore` or `.parlignore` that is missing or cannot be read says nothing."""
    lines = list(DEFAULT_RULES)
    for file_name in (".gitignore", ".parlignore"):
        try:
            with open(os.path.join(root, file_name), encoding="utf-8-sig", errors="replace") as file:
                lines += file.read().splitlines()
        except OSError:
            continue
    return parse_rules(lines)


def _walk(
    top: str,
    enter: Callable[[os.DirEntry[str], str], bool],
    failed: Callable[[OSError], None] = lambda error: None,
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield (name below top, entry) of every regular file below top, looking into the folders that `enter` allows."""
    waiting: list[tuple[str, str, frozenset[tuple[int, int]]]] = [(top, "", frozenset())]
    while waiting:
        folder, prefix, above = waiting.pop()
        try:
            status = os.stat(folder)
            with os.scandir(folder) as scan:
                entries = list(scan)
        except OSError as error:  # gone, or not for us
            failed(error)
            continue
        identity = (status.st_dev, status.st_ino)
        if identity in above:  # a link back to a folder that we are in
            continue
        for entry in entries:
            if _holds(entry.is_file):
                yield prefix + entry.name, entry
            elif _holds(entry.is_dir) and enter(entry, prefix + entry.name):
                waiting.append((entry.path, prefix + entry.name + "/", above | {identity}))


def _holds(question: Callable[[], bool]) -> bool:
    try:
        return question()
    except OSError:  # a link that leads to itself
        return False


def _is_text(name: str) -> bool:
    """Say whether the name can be written as UTF-8; file names on Linux are any bytes."""
    return name.isascii() or re.search("[\ud800-\udfff]", name) is None


# Files named by the user


def listed_files(pattern: str, root: str, cwd: str) -> list[ShippedFile]:
    """Return the files that a pattern of `distributed_files` names: those below root or, if there are none, below cwd.

    A pattern is relative to that folder, or absolute and below it. `*`, `?` and `[...]` stand for part of one name,
    `**` for any number of folders; the name of a folder means all that is below it. As in a shell, wildcards and names
    of folders pass over hidden names (with a dot in front), and over `__pycache__`.

    Raises:
        SerializationError: it names no file, or one that cannot be read.
    """
    folders = list(dict.fromkeys([root, cwd]))
    for folder in folders:
        inner = _inner_pattern(pattern, folder)
        files = [] if inner is None else _matches(folder, inner, pattern)
        if files:
            return files
    raise SerializationError(
        f"{pattern!r} of distributed_files names no file below {' or '.join(folders)}; write it relative to that "
        f"folder (files elsewhere cannot be shipped)"
    )


def _inner_pattern(pattern: str, folder: str) -> str | None:
    """Return the pattern relative to the folder ("" for the folder itself), None when it leads outside."""
    full = os.path.normpath(os.path.join(folder, pattern))
    for path in (full, os.path.realpath(full)):
        if lies_below(path, folder):
            return path[len(folder) :].strip("/")
    return None


def _matches(folder: str, inner: str, pattern: str) -> list[ShippedFile]:
    """Return the files below the folder that the inner pattern names; `pattern` is what the user wrote."""
    target = os.path.join(folder, inner)
    if os.path.isfile(target):
        return [_listed(inner, target, pattern)]
    start, rest = (inner, "**") if os.path.isdir(target) else _split_wildcards(inner)
    top = os.path.join(folder, start)
    if not rest or not os.path.isdir(top):
        return []
    names = compile_pattern(rest)
    found = _walk(top, _enter_for(rest), lambda error: _fail_unreadable(error.filename, pattern, error))
    prefix = start and start + "/"
    return [_listed(prefix + name, entry.path, pattern) for name, entry in found if names.fullmatch(name)]


def _split_wildcards(pattern: str) -> tuple[str, str]:
    """Return the leading folders without a wildcard, and the rest from the first part that has one ("" if none has)."""
    parts = pattern.split("/")
    plain = next((place for place, part in enumerate(parts) if re.search(r"[*?\[\\]", part)), len(parts))
    return "/".join(parts[:plain]), "/".join(parts[plain:])


def _enter_for(pattern: str) -> Callable[[os.DirEntry[str], str], bool]:
    """Return which folders may hold what the pattern names, so that a short pattern does not search a deep tree."""
    deepest = float("inf") if "**" in pattern else pattern.count("/")
    hidden = any(part.startswith(".") for part in pattern.split("/"))

    def enter(entry: os.DirEntry[str], name: str) -> bool:
        return name.count("/") < deepest and (hidden or not entry.name.startswith(".")) and entry.name != "__pycache__"

    return enter


def _listed(name: str, path: str, pattern: str) -> ShippedFile:
    if not _is_text(name):
        raise SerializationError(f"the name of {os.fsencode(path)!r} ({_origin(pattern)}) is not UTF-8; rename it")
    try:
        return ShippedFile(name, path, os.stat(path).st_size, pattern)
    except OSError as error:
        _fail_unreadable(path, pattern, error)


def _fail_unreadable(path: str, pattern: str, error: OSError) -> NoReturn:
    raise SerializationError(f"{path} ({_origin(pattern)}) cannot be read: {error.strerror}") from error
