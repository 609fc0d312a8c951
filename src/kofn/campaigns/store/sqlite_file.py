"""The file of a SQLite store: who may read it, and what is refused before SQLite opens it."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from kofn.core import StoreError

OWNER_ONLY = 0o600
"""Permissions of new files. A store holds the secrets of decision ids and the hashes of tokens."""

BESIDE = ("-wal", "-shm", "-journal")
"""Suffixes of the files that SQLite keeps beside a store. After a crash they may hold the last writes."""

OPENED = "opened file"
"""Key of a connection's `info` whose value is its `OpenedFiles`."""

SETTLED = 2.0
"""Seconds after which a folder's time of change is certainly the time of the last change: file systems round it."""


class NoStore(StoreError):
    """A store that does not exist, and that the call must not create."""

    def __init__(self, where: str) -> None:
        super().__init__(
            f"there is no store in the {where}: check the URL (store=, --store or KOFN_STORE). `kofn serve`, "
            "`kofn campaign create` and Campaign.create() create a new store"
        )


def prepare(file: str, *, create: bool) -> None:
    """Create the file if it is missing, readable by its owner only; without `create`, raise NoStore.

    SQLite gives the files of its write-ahead log the permissions of this file.
    """
    if not os.path.exists(file):
        if not create:
            raise NoStore(f"file {os.path.abspath(file)}")
        check_nothing_beside(file)
        try:
            create_private(os.path.realpath(file))  # SQLite follows links, also to a file that does not exist
        except OSError as why:
            raise StoreError(f"the store {file} cannot be created: {why.strerror or why}") from why


def check_nothing_beside(file: str) -> None:
    """Raise StoreError if files of another store lie beside a missing file: SQLite would apply them to a new one."""
    path = os.path.realpath(file)  # SQLite follows links
    found = [path + suffix for suffix in BESIDE if os.path.lexists(path + suffix)]
    if found and not os.path.exists(path):  # else another process has created the store meanwhile
        raise StoreError(
            f"the store {path} cannot be created: {' and '.join(found)} of an earlier store would damage it, and may "
            f"hold its last writes. Move them to where {os.path.basename(path)} was moved, under its name; delete them "
            "only if that store is not needed"
        )


def create_private(file: str) -> None:
    """Create an empty file that only its owner can read. A file that another process has just created is kept."""
    with suppress(FileExistsError):
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY))


def identity(file: str) -> tuple[int, int] | None:
    """Return what distinguishes the file of this name from others that have the name later; None if there is none."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class OpenedFiles:
    """The files of a store that a connection has just opened: its own, and the write-ahead log.

    While no name in their folder changes, they are the same, and the folder is all that is looked at: to look at a log
    that is being written takes as long as a third of a commit.
    """

    def __init__(self, file: str) -> None:
        real = os.path.realpath(file)  # SQLite follows links
        self._files = {each: identity(each) for each in (file, real + BESIDE[0])}
        self._folder = os.path.dirname(file) if real == file else None  # with links, several folders matter
        self._unchanged: tuple[int, int, int] | None = None  # the folder, when the files were the same

    def missing(self) -> str | None:
        """Return the path of a file that was deleted, moved or replaced by another since it was opened."""
        folder = self._looked_at()
        if folder is not None and folder == self._unchanged:
            return None
        self._unchanged = None
        for path, opened in self._files.items():
            if identity(path) != opened:
                return path
        self._unchanged = folder
        return None

    def _looked_at(self) -> tuple[int, int, int] | None:
        """Return the folder and when a name in it last changed; None if that was too recently to tell two changes."""
        if self._folder is None:
            return None
        try:
            found = os.stat(self._folder)
        except OSError:
            return None
        return (found.st_dev, found.st_ino, found.st_mtime_ns) if time.time() - found.st_mtime > SETTLED else None


def missing_file(url: str) -> str | None:
    """Return the path of a SQLite URL if there is no such file, else None. Other URLs are not checked.

    >>> missing_file("sqlite:////nowhere/shop.db"), missing_file("postgresql://db/shop")
    ('/nowhere/shop.db', None)
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return None  # the store says what is wrong with it
    file = parsed.database
    if parsed.get_backend_name() != "sqlite" or not file or file == ":memory:" or os.path.exists(file):
        return None
    return os.path.abspath(file)
