"""Large bodies: parsed in a thread, and very large imports in a separate process.

Parsing JSON holds Python's lock (the GIL) until it is done, also in a thread. 100 MiB would stop every other request of
the process for seconds, and `--workers` would replace a process that does not respond for so long. So an import that is
larger than `PROCESS_FROM` is written to a temporary file, and another process reads and imports it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import IO, Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from kofn import core
from kofn.campaigns import Campaign, store_at
from kofn.core import KofnError, StoreError
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
        with tempfile.TemporaryFile() as file:
            await _save_body(request, file)
            file.seek(0)
            store = request.app.state.shared.store.url.render_as_string(hide_password=False)
            answer = await asyncio.to_thread(_run_import, file, store)  # not a thread of the requests
    if "name" in answer:
        return str(answer["name"])
    if "malformed" in answer:
        raise RequestValidationError(answer["malformed"])
    kind = getattr(core, str(answer.get("error")), None)
    if isinstance(kind, type) and issubclass(kind, KofnError):
        raise kind(answer["message"])
    raise ApiError(int(answer["status"]), "malformed-request", answer["message"])


async def _save_body(request: Request, file: IO[bytes]) -> None:
    waiting: list[bytes] = []
    async for chunk in request.stream():
        waiting.append(chunk)
        if sum(map(len, waiting)) >= CHUNK:
            await run_in_threadpool(file.writelines, waiting)
            waiting = []
    await run_in_threadpool(file.writelines, waiting)


def _run_import(file: IO[bytes], store: str) -> dict[str, Any]:
    process = subprocess.run(
        # Without -P, Python would import modules of the working folder, such as a random.py that somebody left there.
        [sys.executable, "-P", "-c", f"from {__name__} import import_stdin; import_stdin()", str(os.getpid())],
        stdin=file,
        stdout=subprocess.PIPE,
        env=os.environ | {"KOFN_STORE": store},  # not an argument, which other users of the machine could read
        check=False,
    )
    if process.returncode != 0:
        raise StoreError(f"the process that imports a campaign ended with status {process.returncode}")
    answer: dict[str, Any] = json.loads(process.stdout)
    return answer


def import_stdin() -> None:
    """Import the campaign on stdin into the store of KOFN_STORE, and write what became of it to stdout."""
    _end_with(int(sys.argv[1]))
    sys.stdout.write(json.dumps(import_body(sys.stdin.buffer.read())))


def import_body(body: bytes, store: str | None = None) -> dict[str, Any]:
    """Import the campaign of a body. Return its name, or the error as plain values.

    The service has created its store. If there is none now, its file was moved: an empty one in its place would be
    served beside the old one.
    """
    try:
        imported = _parse(body, models.ImportedCampaign)
        assert isinstance(imported, models.ImportedCampaign)
        found = store_at(store, create=False)
        return {"name": Campaign.import_(imported.campaign, store=found, name=imported.name).name}
    except StoreError as error:
        return {"error": StoreError.__name__, "message": str(error)}
    except KofnError as error:
        return {"error": type(error).__name__, "message": str(error)}
    except RequestValidationError as error:
        return {"malformed": [{"loc": each["loc"], "msg": each["msg"]} for each in error.errors()]}
    except ApiError as error:
        return {"status": error.status_code, "message": str(error.detail)}


def _end_with(parent: int) -> None:
    """End this process when the service ends: nobody would learn what became of the import."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    if os.name == "posix":
        threading.Thread(target=watch, daemon=True).start()


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
