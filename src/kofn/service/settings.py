"""How a service is set up. It travels to its processes in the environment, as JSON."""

from __future__ import annotations

import ipaddress
import json
import os
from dataclasses import asdict, dataclass

VARIABLE = "KOFN_SERVICE"
"""The environment variable in which `kofn serve` hands the settings to its processes."""

MIB = 1024 * 1024


@dataclass(frozen=True)
class Settings:
    """What a service may do. Its limits hold for each request."""

    store: str | None = None  # None: KOFN_STORE, or kofn.db
    loopback: bool = False  # only this machine can reach it: then no token is needed while there is none
    max_body: int = 8 * MIB  # bytes
    max_import: int = 256 * MIB  # bytes of POST /api/import
    max_batch: int = 10_000  # decisions or rewards
    max_streams: int = 500  # live views, of each process

    def keep(self) -> None:
        """Put them where `kept` finds them, also in processes that this one starts."""
        os.environ[VARIABLE] = json.dumps(asdict(self))

    @classmethod
    def kept(cls) -> Settings:
        """The settings that `keep` left in the environment; the usual ones without."""
        return cls(**json.loads(os.environ.get(VARIABLE, "{}")))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("example.com")
    (True, True, False, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
