"""Limits that protect the service from strangers: wrong tokens and requests, counted by address in bounded memory.

Connections, and the time and size of headers, are limited by uvicorn (`kofn.service.server`) and by the proxy in front
of an exposed service (deploy/).
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

MAX_ADDRESSES = 10_000
"""Addresses whose wrong tokens or requests are counted. When there are more, the one counted least recently is
forgotten."""


def network(address: str | None) -> str:
    """Return the address whose wrong tokens and requests are counted together: of IPv6, the first 64 bits.

    >>> network("203.0.113.9"), network("2001:db8:1:2:3:4:5:6"), network("::ffff:203.0.113.9"), network(None)
    ('203.0.113.9', '2001:db8:1:2::', '203.0.113.9', 'unknown')
    """
    try:
        parsed = ipaddress.ip_address(address or "")
    except ValueError:
        return (address or "unknown")[:64]
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        if parsed.is_loopback:
            return str(parsed)
        return str(ipaddress.IPv6Address(int(parsed) >> 64 << 64))
    return str(parsed)


class Allowance:
    """Counts what addresses do, in bounded memory: each may do it `at_once` times, then once every `seconds`."""

    def __init__(self, at_once: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._at_once, self._seconds, self._clock = at_once, seconds, clock
        self._until: OrderedDict[str, float] = OrderedDict()  # when all that an address did is forgotten

    def wait(self, address: str) -> float:
        """Return the seconds until this address may do it again; 0: now."""
        debt = self._until.get(address, 0.0) - self._clock()
        return max(0.0, debt - (self._at_once - 1) * self._seconds)

    def add(self, address: str, times: int = 1) -> None:
        """Count what an address did so many times."""
        now = self._clock()
        self._until[address] = max(self._until.pop(address, now), now) + times * self._seconds
        while len(self._until) > MAX_ADDRESSES:
            self._until.popitem(last=False)

    def __len__(self) -> int:
        return len(self._until)
