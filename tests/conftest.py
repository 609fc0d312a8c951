"""Stores to keep campaigns in, and the markers of tests that need more than Python libraries.

`pytest -m "not browser and not postgres and not cluster and not process"` runs what needs nothing else.
"""

import gc
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from hypothesis import settings

from tests import postgres
from tests.system import require_all

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
"""Set before NumPy is imported: the matrices are small, and the workers of pytest-xdist already use all cores."""

settings.register_profile("kofn", deadline=None, derandomize=True)  # the same examples each time, on any machine
settings.load_profile("kofn")

_names = count()

BROWSER_TESTS = ("browser.py", "test_context_page.py", "test_dashboard.py", "test_snippet.py")
LIBRARIES = {f"service/{file}": "playwright" for file in BROWSER_TESTS} | {"service/test_schema.py": "schemathesis"}
"""Files that import a library of the extra `dev` which the oldest supported versions are tested without."""

collect_ignore = [file for file, library in LIBRARIES.items() if not find_spec(library) and not require_all()]

STARTS_PROCESSES = {"subprocess", "Popen", "Process", "multiprocessing"}


def pytest_configure() -> None:
    gc.disable()  # modules and test functions are made by the thousand, and stay


def pytest_collection_finish() -> None:
    """Leave what collection has made out of all later garbage collections, which would look at it again and again."""
    gc.enable()
    gc.freeze()  # with its garbage: collecting that first takes half a second in each worker, and frees little


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for file in collect_ignore:
        terminalreporter.write_line(f"not collected: {file}, because {LIBRARIES[file]} is not installed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function):
            for marker in _markers(item):
                item.add_marker(marker)


def _markers(item: pytest.Function) -> Iterator[str]:
    """Yield what a test needs, found in its fixtures, its parameters and the code that it calls."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    names = _all_names_in(item.function)
    if "browser" in item.fixturenames:
        yield "browser"
    if "postgres_url" in item.fixturenames or params.get("store_url") == "postgres":
        yield "postgres"
    if "cluster" in item.fixturenames or any("dask" in value for value in params.values() if isinstance(value, tuple)):
        yield "cluster"
    if names & STARTS_PROCESSES:
        yield "process"


@cache
def _all_names_in(function: Any) -> set[str]:
    return _names_in(function)


def _names_in(function: Any, seen: set[Any] | None = None) -> set[str]:
    """Return the names that a function of the tests uses, and those of the helpers in tests/ that it calls."""
    seen = set() if seen is None else seen
    function = inspect.unwrap(function)
    if function in seen or not (getattr(function, "__module__", None) or "").startswith("tests."):
        return set()
    seen.add(function)
    if inspect.isclass(function):
        return set().union(*(_names_in(each, seen) for each in vars(function).values() if inspect.isfunction(each)))
    found = _names_of(function.__code__)
    called = [function.__globals__.get(name) for name in found]
    return found.union(*(_names_in(each, seen) for each in called if inspect.isfunction(each) or inspect.isclass(each)))


def _names_of(code: CodeType) -> set[str]:
    """Return the names in a function's code and in the functions inside it."""
    return set(code.co_names).union(*(_names_of(each) for each in code.co_consts if isinstance(each, CodeType)))


@pytest.fixture(scope="session", autouse=True)
def _tls_settings_are_made_once() -> Iterator[None]:
    """Share httpx's settings of TLS. A client reads the authorities it trusts when it is created, which takes 20 ms."""
    transport: Any = sys.modules.get("httpx._transports.default")
    if not hasattr(transport, "create_ssl_context"):  # httpx is not used by these tests, or has changed
        yield
        return
    create, made = transport.create_ssl_context, {}

    def shared(**options: Any) -> Any:
        key = tuple(sorted(options.items())), os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
        if key not in made:
            made[key] = create(**options)
        return made[key]

    transport.create_ssl_context = shared
    yield
    transport.create_ssl_context = create


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a real PostgreSQL server, started for these tests."""
    with postgres.server() as url:
        yield url


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A client of a Dask cluster with two workers on this machine. Tests kill workers, so each module has its own."""
    pytest.importorskip("distributed")
    from kofn.backends import open_backend

    with open_backend("dask", workers=2) as (client, workers):
        assert workers is None
        yield client


def _closed(url: str) -> None:
    """Close what a test left open."""
    from kofn.campaigns.store import database as store

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


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The content of a SQLite file with empty tables: copying it is faster than creating the tables again."""
    from kofn.campaigns import Store

    file = tmp_path_factory.mktemp("template") / "shop.db"
    Store(f"sqlite:///{file}?synchronous=normal").close()
    return file.read_bytes()


def _sqlite_url(folder: Path, content: bytes) -> str:
    file = folder / "shop.db"
    file.touch(0o600)
    file.write_bytes(content)
    return f"sqlite:///{file}?synchronous=normal"


@pytest.fixture
def sqlite_store(tmp_path: Path, empty_store: bytes) -> Iterator[str]:
    """The URL of an empty store. It does not wait for the disk: what a power failure does is not tested here."""
    url = _sqlite_url(tmp_path, empty_store)
    yield url
    _closed(url)


@pytest.fixture
def new_sqlite_store(tmp_path: Path) -> Iterator[str]:
    """The URL of a SQLite store that does not exist yet."""
    url = f"sqlite:///{tmp_path}/shop.db?synchronous=normal"
    yield url
    _closed(url)


@pytest.fixture(scope="module")
def module_store(tmp_path_factory: pytest.TempPathFactory, empty_store: bytes) -> Iterator[str]:
    """The URL of a SQLite file that the tests of a module share, and leave as they found it."""
    url = _sqlite_url(tmp_path_factory.mktemp("store"), empty_store)
    yield url
    _closed(url)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium for one module only: its event loop would disturb other tests."""
    from tests.service.browser import headless

    with headless() as started:
        yield started


@pytest.fixture
def pages(browser: Any) -> Iterator[Any]:
    """Opens pages; fails at the end if one had an error or violated the policy."""
    from tests.service.browser import checked_pages

    with checked_pages(browser) as opened:
        yield opened


@pytest.fixture(scope="module")
def module_address(module_store: str) -> Iterator[str]:
    """The URL of a service in a process of its own, whose store is `module_store`."""
    from tests.service.browser import served

    with served(module_store) as where:
        yield where


@pytest.fixture
def address(module_address: str, module_store: str) -> Iterator[str]:
    """The URL of a service without campaigns, in a process that the tests of a module share."""
    from kofn.campaigns import Campaign, campaigns

    yield module_address
    for each in campaigns(module_store):
        Campaign.open(each.name, module_store).delete()


@pytest.fixture
def kofn_main(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """`kofn ARGV` through main, in this process: exit code, stdout, stderr."""
    from kofn.cli import main

    def call(*argv: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["kofn", *argv])
        with pytest.raises(SystemExit) as end:
            main()
        assert isinstance(end.value.code, int)
        captured = capsys.readouterr()
        return end.value.code, captured.out, captured.err

    return call


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: Any) -> str:
    """An empty store of each kind."""
    return str(request.getfixturevalue(f"{request.param}_store"))
