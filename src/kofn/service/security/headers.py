"""Headers that keep a browser from running a script that hides in the name of an arm."""

from __future__ import annotations

from collections.abc import Sequence

_POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self'; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)

AS_DECLARED = (b"x-content-type-options", b"nosniff")
"""In every response: a browser takes it for what it says that it is."""

OF_DOCUMENTS = [(b"referrer-policy", b"no-referrer"), (b"content-security-policy", _POLICY.encode())]
"""In every response that a browser may show as a page, which JSON is not. Headers take a tenth of a short request."""


def protected(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers of a response with these."""
    is_json = (b"content-type", b"application/json") in headers
    return [*headers, AS_DECLARED, *([] if is_json else OF_DOCUMENTS)]
