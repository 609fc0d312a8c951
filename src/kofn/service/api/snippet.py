"""GET /kofn.js: the script with which a web page shows K of its items and reports the click. No token is required."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files

from fastapi import APIRouter, Request
from fastapi.responses import Response

CACHED_SECONDS = 3600
"""Seconds for which browsers use the script without asking again. A new version of kofn arrives that much later."""

snippet_router = APIRouter(include_in_schema=False)


@cache
def script() -> tuple[bytes, str]:
    """Return the script and its ETag."""
    content = (files("kofn.service") / "static" / "kofn.js").read_bytes()
    return content, f'"{sha256(content).hexdigest()[:32]}"'


@snippet_router.get("/kofn.js")
async def get_snippet(request: Request) -> Response:
    """Return the script. Pages of all origins may load it: it has no secrets."""
    content, tag = script()
    headers = {
        "Cache-Control": f"public, max-age={CACHED_SECONDS}",
        "Cross-Origin-Resource-Policy": "cross-origin",
        "ETag": tag,
    }
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type="text/javascript", headers=headers)
