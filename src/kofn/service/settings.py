"""Settings of the service. Worker processes receive them as JSON in an environment variable."""

from __future__ import annotations

import ipaddress
import json
import os
import re
from dataclasses import asdict, dataclass

from kofn.core import BadInput

VARIABLE = "KOFN_SERVICE"
"""Environment variable in which `kofn serve` passes the settings to its processes."""

MIB = 1024 * 1024


@dataclass(frozen=True)
class Settings:
    """Settings of the service. All limits but `max_streams` and `max_connections` are per request."""

    store: str | None = None  # URL of the store; None: KOFN_STORE, or kofn.db
    open: bool = False  # local requests need no token: for the demo, whose store is temporary
    session: str | None = None  # hash of a token that is valid until the service stops (`tokens.token_hash`)
    max_body: int = 8 * MIB  # bytes
    max_import: int = 256 * MIB  # bytes of POST /api/import
    max_batch: int = 10_000  # decisions or rewards
    max_streams: int = 500  # open streams of live updates, per process
    max_connections: int = 1000  # per process; a quarter of it for one address that is neither local nor a proxy
    trusted_proxies: tuple[str, ...] = ()  # addresses whose X-Forwarded-For and X-Forwarded-Proto are believed
    root_path: str = ""  # prefix under which a proxy serves it, such as /kofn
    log_format: str = "text"  # or json
    access_log: bool = False  # log every request

    def to_environment(self) -> None:
        """Write the settings to the environment of this process and of the processes that it starts."""
        os.environ[VARIABLE] = json.dumps(asdict(self))

    @classmethod
    def from_environment(cls) -> Settings:
        """Return the settings from the environment, or the defaults."""
        found = json.loads(os.environ.get(VARIABLE, "{}"))
        return cls(**found | {"trusted_proxies": tuple(found.get("trusted_proxies", ()))})


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("example.com")
    (True, True, False, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def prefix(path: str) -> str:
    """Return the path under which a proxy serves the service, without a slash at its end, or raise `BadInput`.

    >>> prefix("/kofn/"), prefix("")
    ('/kofn', '')
    """
    if path.strip("/") and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+/?", path):
        raise BadInput(f"--root-path must be a path such as /kofn, of letters, digits and ._~-; got {path!r:.100}")
    return path.rstrip("/")


def proxy_address(address: str) -> str:
    """Return the address or network of a proxy, or raise `BadInput`.

    >>> proxy_address("10.0.0.7"), proxy_address("172.16.0.0/12")
    ('10.0.0.7', '172.16.0.0/12')
    """
    try:
        return str(ipaddress.ip_network(address) if "/" in address else ipaddress.ip_address(address))
    except ValueError as error:
        raise BadInput(f"--trust-proxy must be an address such as 10.0.0.7 or 172.16.0.0/12: {error}") from None
