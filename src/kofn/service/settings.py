"""Settings of the service. Worker processes receive them as JSON in an environment variable."""

from __future__ import annotations

import ipaddress
import json
import os
from dataclasses import asdict, dataclass

VARIABLE = "KOFN_SERVICE"
"""Environment variable in which `kofn serve` passes the settings to its processes."""

MIB = 1024 * 1024


@dataclass(frozen=True)
class Settings:
    """Settings of the service. All limits but `max_streams` are per request."""

    store: str | None = None  # URL of the store; None: KOFN_STORE, or kofn.db
    open: bool = False  # local requests need no token: for the demo, whose store is temporary
    session: str | None = None  # hash of a token that is valid until the service stops (`tokens.token_hash`)
    max_body: int = 8 * MIB  # bytes
    max_import: int = 256 * MIB  # bytes of POST /api/import
    max_batch: int = 10_000  # decisions or rewards
    max_streams: int = 500  # open streams of live updates, per process

    def to_environment(self) -> None:
        """Write the settings to the environment of this process and of the processes that it starts."""
        os.environ[VARIABLE] = json.dumps(asdict(self))

    @classmethod
    def from_environment(cls) -> Settings:
        """Return the settings from the environment, or the defaults."""
        return cls(**json.loads(os.environ.get(VARIABLE, "{}")))


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
