"""How the user's code and files reach the workers: which folder it is, how a job runs in it. Knows no connection.

Nothing of the user's code is imported, run or cut apart here: modules travel as files, and a job imports them by the
names they have on the client.

The root of the project is what `python` would put first on sys.path:

    python proj/main.py                             proj
    python -m pkg.main                              the folder that holds pkg
    a shell, a notebook, -c, stdin                  the current directory
    a program of the environment, such as pytest    the current directory

When that is `/`, the home directory or a folder for temporary files, where anything may lie below, only the `.py` files
directly in it are shipped (and what `distributed_files` names).
"""

from __future__ import annotations

import bisect
import functools
import importlib
import os
import site
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from parl_lite.errors import SerializationError
from parl_lite.project_archive import ContentDigest, installed, pack_files, read_file, unpack
from parl_lite.project_files import lies_below, select_files

__all__ = ["Project", "activate", "find_folder", "find_project", "installed", "pack", "travels_by_value", "unpack"]


@dataclass(frozen=True)
class Project:
    """The user's code and files as they were when `find_project` looked."""

    root: str
    """Absolute real path of the project's folder on the client's machine."""
    paths: tuple[str, ...]
    """The client's other entries of sys.path but for the environment's, in order; relative to root if below it."""
    digest: str
    """Hash over name and content of the files: the same content gives the same digest, an edit another."""
    files: tuple[tuple[str, str], ...]
    """(name below the project's folder, with slashes; absolute path here) of what is shipped, sorted."""

    @property
    def in_place(self) -> bool:
        """Whether each file lies below root under its name, so that root itself can serve the jobs on this machine."""
        return all(path == os.path.join(self.root, name) for name, path in self.files)


def find_project(
    distributed_files: Sequence[str] = (),
    *,
    limit: int,
    main: ModuleType | None = None,
    cwd: str | None = None,
    path: Sequence[str] | None = None,
) -> Project:
    """Return the project of this process.

    Args:
        distributed_files: patterns of further files to ship, as in `parl_lite.project_files.listed_files`.
        limit: bytes that all files together may have.
        main: the `__main__` module, if it is not this process's.
        cwd: the current directory, if it is not this process's.
        path: the module search path, if it is not this process's.

    Raises:
        SerializationError: a pattern names no file, a file it names cannot be read, or the files are too many or
            too large.
    """
    here = os.path.realpath(cwd or os.getcwd())
    root = _find_root(main or sys.modules["__main__"], here)
    patterns = [distributed_files] if isinstance(distributed_files, str) else distributed_files
    digest, files = ContentDigest(), []
    for file in select_files(root, patterns, here, recursive=root not in _shared_folders(), limit=limit):
        try:
            content, executable = read_file(file.path)
        except OSError as error:
            if not file.pattern:
                continue
            raise SerializationError(f"{file.path} (of distributed_files) cannot be read: {error.strerror}") from error
        digest.add(file.name, content, executable)
        files.append((file.name, file.path))
    return Project(root, _further_paths(sys.path if path is None else path, root, here), digest.hex(), tuple(files))


def find_folder() -> tuple[str, tuple[str, ...]]:
    """Return root and paths of this process's project, without looking at its files."""
    here = os.path.realpath(os.getcwd())
    root = _find_root(sys.modules["__main__"], here)
    return root, _further_paths(sys.path, root, here)


def pack(project: Project) -> bytes:
    """Return the project's files as a zip, the same bytes for the same content.

    Raises:
        SerializationError: a file is gone or was changed since `find_project`.
    """
    return pack_files(project.files, project.digest)


def activate(root: str, paths: Sequence[str]) -> None:
    """Make this process, a job, run in the project: root is the current directory and first on sys.path, then paths.

    Args:
        root: the client's own folder, or the folder the project was unpacked to.
        paths: `Project.paths`; those that are missing on this machine are passed over.

    Raises:
        SerializationError: root is not there.
    """
    try:
        os.chdir(root)
    except OSError as error:
        raise SerializationError(f"the project's folder {root} cannot be entered: {error.strerror}") from error
    others = [entry for entry in sys.path if entry != root]
    further = [entry for entry in (os.path.join(root, path) for path in paths) if os.path.exists(entry)]
    sys.path[:] = [root, *(entry for entry in further if entry not in sys.path), *others]
    importlib.invalidate_caches()  # the folder may be younger than what the import system remembers of it


# The root


def _find_root(main: ModuleType, cwd: str) -> str:
    file = getattr(main, "__file__", None)
    if not file or not os.path.isfile(os.path.join(cwd, file)):
        return cwd
    file = os.path.normpath(os.path.join(cwd, file))
    spec = getattr(main, "__spec__", None)
    if spec is None:
        folder = os.path.dirname(os.path.realpath(file))
    elif spec.name.split(".")[0] == "parl_lite":
        return cwd
    else:
        folder = os.path.realpath(os.path.join(os.path.dirname(file), *[".."] * spec.name.count(".")))
    return cwd if _of_environment(file) or _of_environment(folder) else folder


def _further_paths(path: Sequence[str], root: str, cwd: str) -> tuple[str, ...]:
    found = [os.path.normpath(os.path.join(cwd, entry)) for entry in path]
    kept = [entry for entry in found if os.path.exists(entry) and not _of_environment(entry) and entry != root]
    return tuple(dict.fromkeys(os.path.relpath(entry, root) if lies_below(entry, root) else entry for entry in kept))


@functools.cache
def _library_folders() -> frozenset[str]:
    """Return the folders of the standard library and of installed packages."""
    found = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return frozenset(os.path.realpath(folder) for folder in [*found, site.getusersitepackages()] if folder)


def _of_environment(path: str) -> bool:
    """Say whether a file or folder belongs to Python's environment (libraries or programs), not to the user's code."""
    if {"site-packages", "dist-packages"} & set(path.split("/")):
        return True
    real = os.path.realpath(path)
    return (
        any(lies_below(real, folder) for folder in _library_folders())
        or _is_programs(os.path.dirname(path))
        or _is_programs(path)
    )


def _is_programs(folder: str) -> bool:
    """Say whether a folder holds the programs of an environment or of the system."""
    if os.path.basename(folder) != "bin":
        return False
    prefix = os.path.dirname(folder)
    system = ("/", "/usr", "/usr/local", site.getuserbase(), sys.prefix, sys.base_prefix)
    return prefix in system or any(os.path.exists(os.path.join(prefix, mark)) for mark in ("pyvenv.cfg", "conda-meta"))


@functools.cache
def _shared_folders() -> frozenset[str]:
    """Return the folders below which lies more than a project."""
    folders = ("/", os.path.expanduser("~"), tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm")
    return frozenset(map(os.path.realpath, folders))


# Classes


def travels_by_value(module_name: str, project: Project) -> bool:
    """Say whether a class of that module must be sent itself: a job on another machine cannot import it by name.

    True for `__main__` and what a notebook defines, and for a module whose file is neither shipped, nor installed,
    nor of the standard library. Nothing is imported to find out.
    """
    top = module_name.partition(".")[0]
    if top in ("__main__", "__mp_main__"):
        return True
    if top == "parl_lite" or top in sys.builtin_module_names:
        return False
    file = getattr(sys.modules.get(module_name), "__file__", None)
    if file is None:  # made at run time; a library may do that, such as torch.ops
        file = getattr(sys.modules.get(top), "__file__", None) if top != module_name else None
        return file is None or not _of_environment(file)
    return not _of_environment(file) and not _is_shipped(module_name, file, project)


def _is_shipped(module_name: str, file: str, project: Project) -> bool:
    """Say whether the first module of that name that a job finds is the file."""
    stem = module_name.replace(".", "/")
    for path in ("", *(path for path in project.paths if not os.path.isabs(path))):
        for name in (f"{stem}/__init__.py", f"{stem}.py"):
            place = bisect.bisect_left(project.files, (os.path.join(path, name), ""))
            found = project.files[place : place + 1]
            if found and found[0][0] == os.path.join(path, name):
                return os.path.realpath(found[0][1]) == os.path.realpath(file)
    return False
