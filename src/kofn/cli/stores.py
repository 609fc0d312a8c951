"""Commands that may create a store say so on stderr, so that a mistyped path is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click


def new_file(url: str | None) -> str | None:
    """Return the path of a SQLite store that does not exist yet, else None."""
    from kofn.campaigns.store.database import store_url
    from kofn.campaigns.store.sqlite_file import missing_file

    return missing_file(store_url(url))


@contextmanager
def noting_new_store(url: str | None) -> Iterator[None]:
    """Run a block that may create the store of that URL. If it did, say so on stderr."""
    file = new_file(url)
    yield
    if file:
        click.echo(f"kofn: note: created the store {file}", err=True)
