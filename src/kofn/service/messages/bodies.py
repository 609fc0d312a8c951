"""Large bodies: parsed in a thread, and very large imports in a separate process.

Parsing JSON holds Python's lock (the GIL) until it is done, also in a thread. 100 MiB would stop every other request of
the process for seconds, and `--workers` would replace a process that does not respond for so long. So an import that is
larger than `PROCESS_FROM` is written to a temporary file, and another process reads and imports it.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import IO, Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from kofn.campaigns import Campaign, learner, store_at
from kofn.core import StoreError
from kofn.service.messages import models
from kofn.service.messages.errors import ApiError
from kofn.service.settings import MIB

THREAD_FROM = 64 * 1024
"""Bytes from which a body is parsed in a thread. Lower values cost small requests the change of a thread."""

PROCESS_FROM = 4 * MIB
"""Bytes from which an import is parsed and written by another process, which takes about a second to start."""

CHUNK = MIB
"""Bytes of an import that are written to the temporary file at once."""

ROWS = 1000
"""Entries of a list that are written as JSON at once, so that other threads get their turn."""


SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]|\x00")
"""What a body contains that may have a lone surrogate: an escape, its bytes in UTF-8, or another encoding of JSON."""


def refuse_surrogates(body: bytes, parsed: Any) -> None:
    """Raise an `ApiError` if a body has a lone surrogate, which neither the store nor a response can represent."""
    if SURROGATE.search(body):
        try:
            json.dumps(parsed, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            detail = "the body has a lone surrogate, such as \\ud800: send text that UTF-8 can represent"
            raise ApiError(422, "malformed-request", detail) from None


class Bodies(APIRoute):
    """A route that parses and validates large bodies away from the event loop."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route, preceded by the parsing of a large body."""
        inner = super().get_route_handler()
        model = self.body_field.field_info.annotation if self.body_field else None
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return inner

        async def handler(request: Request) -> Response:
            try:
                return await inner(await _read(request, model))
            except ClientDisconnect as error:
                raise ApiError(400, "malformed-request", "the client disconnected") from error

        return handler


async def _read(request: Request, model: type[BaseModel]) -> Request:
    """Return the request with its body parsed, if it is large. A very large import is also done."""
    if model is models.ImportedCampaign and _length(request) >= PROCESS_FROM and _has_json(request):
        request.state.imported = await _import_in_process(request)
        return _Parsed(request, models.ImportedCampaign.model_construct(campaign={}, name=None))
    body = await request.body()
    if len(body) < THREAD_FROM or not _has_json(request):
        return request
    return _Parsed(request, await run_in_threadpool(_parse, body, model))


class _Parsed(Request):
    """A request whose body has been parsed and validated: FastAPI takes an instance of the model as it is."""

    def __init__(self, request: Request, value: BaseModel) -> None:
        super().__init__(request.scope, request.receive)
        self._body = b"{}"
        self._value = value

    async def json(self) -> Any:
        """Return the instance of the model."""
        return self._value


def _length(request: Request) -> int:
    """Return the size of the body, or infinity if the client does not say it."""
    given = request.headers.get("content-length", "")
    return int(given) if given.isascii() and given.isdigit() else sys.maxsize


def _has_json(request: Request) -> bool:
    return is_json(request.headers.get("content-type", ""))


def is_json(content_type: str) -> bool:
    """Return whether a body of this content type is JSON."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _parse(body: bytes, model: type[BaseModel]) -> BaseModel:
    """Return a body as an instance of the model, or raise the errors that FastAPI would raise."""
    try:
        parsed = json.loads(body, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        where = {"type": "json_invalid", "loc": ("body", error.pos), "msg": "JSON decode error", "input": {}}
        raise RequestValidationError([where | {"ctx": {"error": error.msg}}]) from error
    except (ValueError, RecursionError) as error:  # not UTF-8, a number with too many digits, or nested too deeply
        raise ApiError(400, "malformed-request", "There was an error parsing the body") from error
    refuse_surrogates(body, parsed)
    try:
        return model.model_validate(parsed)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        raise RequestValidationError([each | {"loc": ("body", *each["loc"])} for each in found]) from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of a JSON text. As this is Python and not C, other threads get their turn between objects."""
    return dict(pairs)


# Imports in a separate process.

_importing = asyncio.Semaphore(1)


async def _import_in_process(request: Request) -> str:
    """Import the campaign of the body in another process. Return the campaign's name, or raise the error."""
    if _importing.locked():
        detail = "this process is importing another large campaign, one at a time: try again later"
        raise ApiError(503, "too-many-imports", detail, {"Retry-After": "5"})
    async with _importing:
        process = learner.new_process()
        try:
            with tempfile.TemporaryDirectory(prefix="kofn-import-") as folder:
                path = Path(folder) / "import.json"
                with path.open("wb") as file:
                    await _save_body(request, file)
                store = request.app.state.shared.store.url.render_as_string(hide_password=False)
                return await asyncio.wrap_future(process.submit(import_file, path, store))
        except BrokenProcessPool as error:
            raise StoreError("the process that imports a campaign has ended") from error
        finally:
            process.shutdown(wait=False)


async def _save_body(request: Request, file: IO[bytes]) -> None:
    waiting: list[bytes] = []
    async for chunk in request.stream():
        waiting.append(chunk)
        if sum(map(len, waiting)) >= CHUNK:
            await run_in_threadpool(file.writelines, waiting)
            waiting = []
    await run_in_threadpool(file.writelines, waiting)


def import_file(path: Path, store: str) -> str:
    """Import the campaign of a file, and return its name.

    The service has created its store. If there is none now, its file was moved: an empty one in its place would be
    served beside the old one.
    """
    imported = _parse(path.read_bytes(), models.ImportedCampaign)
    assert isinstance(imported, models.ImportedCampaign)
    return Campaign.import_(imported.campaign, store=store_at(store, create=False), name=imported.name).name


# Large responses.


def json_chunks(value: Any) -> Iterator[bytes]:
    """Yield a value as JSON in pieces, so that no single call holds Python's lock for long."""
    if isinstance(value, dict):
        yield b"{"
        for index, (name, each) in enumerate(value.items()):
            yield b"," * bool(index) + _json(name) + b":"
            yield from json_chunks(each)
        yield b"}"
    elif isinstance(value, list) and len(value) > ROWS:
        yield b"["
        for at in range(0, len(value), ROWS):
            yield b"," * bool(at) + _json(value[at : at + ROWS])[1:-1]
        yield b"]"
    else:
        yield _json(value)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
