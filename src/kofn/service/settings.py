"""Settings of the service. Worker processes receive them as JSON in an environment variable."""

from __future__ import annotations

import ipaddress
import json
import os
import re
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

from kofn.core import BadInput

VARIABLE = "KOFN_SERVICE"
"""Environment variable in which `kofn serve` passes the settings to its processes."""

MIB = 1024 * 1024

ORIGIN = re.compile(r"(?P<scheme>https?)://(?P<host>[a-z0-9.-]+|\[[0-9a-f:.]+\])(:(?P<port>[0-9]{1,5}))?/?", re.ASCII)
"""Scheme, host and maybe port of web pages, in lower case. International names are in their ASCII form."""


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of the service. All limits but `max_streams` and `max_connections` are per request."""

    store: str | None = None  # URL of the store; None: KOFN_STORE, or kofn.db
    open: bool = False  # local requests need no token: for the demo, whose store is temporary
    session: str | None = None  # hash of a token that is valid until the service stops (`tokens.token_hash`)
    max_body: int = 8 * MIB  # bytes
    max_import: int = 256 * MIB  # bytes of POST /api/import
    max_batch: int = 10_000  # decisions or rewards
    max_streams: int = 500  # open streams of live updates, per process
    max_connections: int = 1000  # per process; requests on further ones get status 503
    trusted_proxies: tuple[str, ...] = ()  # addresses whose X-Forwarded-For and X-Forwarded-Proto are believed
    root_path: str = ""  # prefix under which a proxy serves it, such as /kofn
    log_format: str = "text"  # or json
    access_log: bool = False  # log every request
    allow_origins: tuple[str, ...] = ()  # origins of web pages that may decide and reward
    # with tokens of scope browser, which everyone who opens the page can read; 0: any
    browser_rate: int = 300  # requests per minute of one address, per process
    browser_storage: int = 20  # MiB that one address may store per day, per process
    browser_open: int = 1_000_000  # open decisions of a campaign, from which on it makes no more for web pages
    webhook: str | None = None  # URL to which events are posted; KOFN_WEBHOOK_SECRET signs them
    watch_interval: float = 60.0  # seconds between two evaluations of the alarms of all campaigns

    def to_environment(self) -> None:
        """Write the settings to the environment of this process and of the processes that it starts."""
        os.environ[VARIABLE] = json.dumps(asdict(self))

    @classmethod
    def from_environment(cls) -> ServiceSettings:
        """Return the settings from the environment, or the defaults."""
        found = json.loads(os.environ.get(VARIABLE, "{}"))
        tuples = {name: tuple(found.get(name, ())) for name in ("trusted_proxies", "allow_origins")}
        return cls(**found | tuples)


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


def web_origin(origin: str) -> str:
    """Return the origin of web pages as browsers send it, or raise `BadInput`.

    >>> web_origin("https://Shop.example:443/"), web_origin("http://localhost:8080")
    ('https://shop.example', 'http://localhost:8080')
    """
    found = ORIGIN.fullmatch(origin.lower())
    if not found or int(found["port"] or 0) > 65535:
        raise BadInput(f"--allow-origin must be an origin such as https://shop.example; got {origin!r:.100}")
    scheme, host, port = found["scheme"], found["host"], found["port"]
    standard = {"http": "80", "https": "443"}[scheme]
    return f"{scheme}://{host}" + (f":{int(port)}" if port and port != standard else "")


def webhook_url(url: str | None) -> str | None:
    """Return the URL to which events are posted, if there is one, or raise `BadInput`.

    It may have a secret: it comes from KOFN_WEBHOOK, as arguments are visible in `ps`, and no message repeats it.

    >>> webhook_url("https://hooks.example/kofn")
    'https://hooks.example/kofn'
    """
    if not url:
        return None
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        known = False
    if not known or not url.isascii() or not url.isprintable() or " " in url or "@" in urlsplit(url).netloc:
        raise BadInput(
            "KOFN_WEBHOOK must be an http or https URL without a password, such as https://hooks.example/kofn"
        )
    return url
