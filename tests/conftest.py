"""What several test files share: stores to keep campaigns in."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests import postgres

_names = count()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a real PostgreSQL server, started for these tests. Without its programs they fail, and say so."""
    with postgres.server() as url:
        yield url


def _closed(url: str) -> None:
    """Close what a test left open."""
    from kofn.campaigns import store

    for key in [key for key in store._stores if key.endswith(url)]:
        store._stores.pop(key).close()


@pytest.fixture
def postgres_store(postgres_url: str) -> Iterator[str]:
    """The URL of an empty schema on that server, which is made faster than a database."""
    from sqlalchemy import create_engine, text

    name = f"kofn_{next(_names)}"
    engine = create_engine(postgres_url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE SCHEMA {name}"))
    engine.dispose()
    url = f"{postgres_url}?options=-csearch_path%3D{name}"
    yield url
    _closed(url)


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[str]:
    """The URL of a new SQLite file. It does not wait for the disk: what a power failure does is not tested here."""
    url = f"sqlite:///{tmp_path}/shop.db?synchronous=normal"
    yield url
    _closed(url)


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: Any) -> str:
    """An empty store of each kind."""
    return str(request.getfixturevalue(f"{request.param}_store"))
