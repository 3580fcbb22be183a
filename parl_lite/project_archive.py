"""The files of the user's project as bytes: digest, zip, unpacking. Knows nothing of sys.path and of modules.

An archive is not trusted: names must stay below the folder, entries must be regular files, sizes are bounded before
anything is decompressed, and the folder appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Sequence

from parl_lite.errors import SerializationError
from parl_lite.project_files import MAX_FILES

_MANIFEST = ".parl_lite_files"
"""Lists the files of an unpacked folder, so that one from which a cleaner of old files took some is noticed."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


class ContentDigest:
    """The hash of a project: over name, content and executable bit of each file, in the order they are added."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, name: str, content: bytes, executable: bool) -> None:
        self._hash.update(f"{len(name.encode())} {len(content)} {executable:d} {name}".encode())
        self._hash.update(content)

    def hex(self) -> str:
        return self._hash.hexdigest()


def read_file(path: str) -> tuple[bytes, bool]:
    """Return the content of a file and whether it is executable; raises OSError."""
    with open(path, "rb") as file:
        return file.read(), bool(os.fstat(file.fileno()).st_mode & 0o100)


def pack_files(files: Iterable[tuple[str, str]], digest: str) -> bytes:
    """Return a zip of the (name, path) given, the same bytes for the same content.

    Raises:
        SerializationError: a file is gone, or the content is not that of the digest any more.
    """
    found = ContentDigest()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, path in files:
            try:
                content, executable = read_file(path)
            except OSError as error:
                raise SerializationError(
                    f"{path} of the project cannot be read any more: {error.strerror}; connect again"
                ) from error
            found.add(name, content, executable)
            archive.writestr(_entry(name, executable), content, compresslevel=1)
    if found.hex() != digest:
        raise SerializationError("files of the project were changed since connect() looked at them; connect again")
    return buffer.getvalue()


def _entry(name: str, executable: bool) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.create_system = 3  # Unix, whatever packs it
    entry.external_attr = (stat.S_IFREG | (0o700 if executable else 0o600)) << 16
    return entry


def unpack(data: bytes, folder: str, *, limit: int) -> None:
    """Unpack an archive into `folder`, which appears whole (mode 0700) or not at all; do nothing if it is there.

    Args:
        data: what `pack` returned.
        folder: where to; missing parents are made. A folder that is there and not complete is replaced.
        limit: bytes that all files together may have.

    Raises:
        SerializationError: the archive is damaged, malicious or too large, or the disk refuses it.
    """
    parent = os.path.dirname(os.path.abspath(folder))
    try:
        os.makedirs(parent, mode=0o700, exist_ok=True)
        part = tempfile.mkdtemp(prefix=".unpack-", dir=parent)
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                _extract(archive, _checked_entries(archive, limit), part)
            _put_in_place(part, folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise SerializationError(f"cannot unpack the project into {folder}: {error.strerror}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OverflowError, ValueError) as error:
        raise SerializationError(f"the archive of the project is damaged: {error}") from error


def installed(folder: str) -> bool:
    """Say whether an unpacked project is there with all its files."""
    try:
        with open(os.path.join(folder, _MANIFEST), encoding="utf-8", errors="replace") as manifest:
            names = manifest.read().split("\0")
    except OSError:
        return False
    return all(os.path.exists(os.path.join(folder, name)) for name in names)


def _checked_entries(archive: zipfile.ZipFile, limit: int) -> Sequence[zipfile.ZipInfo]:
    """Return the entries of the archive, once all are known to be harmless."""
    entries = archive.infolist()
    total = sum(entry.file_size for entry in entries)
    if len(entries) > MAX_FILES or total > limit:
        raise SerializationError(
            f"the archive of the project has {len(entries)} files of {total} bytes together; allowed are {MAX_FILES} "
            f"files and {limit} bytes (PARL_LITE_MAX_PROJECT_SIZE of the worker)"
        )
    for entry in entries:
        flaw = _flaw(entry)
        if flaw:
            raise SerializationError(f"the archive of the project is refused: {entry.filename!r} {flaw}")
    return entries


def _flaw(entry: zipfile.ZipInfo) -> str:
    if any(part in ("", ".", "..") for part in entry.filename.split("/")):
        return "is not a plain name of a file below the folder"
    if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
        return "is a link or another special file"
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or entry.flag_bits & 1:
        return "is encrypted or compressed in another way than by deflate"
    return ""


def _extract(archive: zipfile.ZipFile, entries: Sequence[zipfile.ZipInfo], folder: str) -> None:
    """Write the entries below an empty folder; an entry never yields more bytes than it declares."""
    for entry in entries:
        target = os.path.join(folder, entry.filename)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        mode = 0o700 if (entry.external_attr >> 16) & 0o100 else 0o600
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)  # a name that comes twice fails
        with open(descriptor, "wb") as file, archive.open(entry) as source:
            shutil.copyfileobj(source, file, 1 << 20)
    with open(os.path.join(folder, _MANIFEST), "x", encoding="utf-8") as manifest:
        manifest.write("\0".join(entry.filename for entry in entries))


def _put_in_place(part: str, folder: str) -> None:
    if installed(folder):
        return
    try:
        os.rename(folder, part + ".old")
    except FileNotFoundError:
        pass
    try:
        os.rename(part, folder)
    except OSError:
        if not installed(folder):  # nobody else was faster
            raise
    finally:
        shutil.rmtree(part + ".old", ignore_errors=True)
