"""A parser of requests that ignores offers to change the protocol, as RFC 9110 (section 7.8) allows.

httptools stops at a request with `Upgrade: h2c`: it loses the body, or takes it for the next request. Java's client
makes this offer in every request to an `http://` URL, and so does `curl --http2`.
"""

from __future__ import annotations

from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser


class PlainParser:
    """httptools' parser. A request that offers another protocol is parsed once more, without the header `Upgrade`.

    The protocol must ignore what it is told while `should_upgrade` is true.
    """

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self._start()

    def _start(self) -> None:
        """Make a parser, with uvicorn's settings."""
        parser: Any = HttpRequestParser(self._protocol)
        if hasattr(parser, "set_dangerous_leniencies"):  # from httptools 0.6.3 on
            parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._feed = parser.feed_data
        self.get_method, self.get_http_version = parser.get_method, parser.get_http_version
        self.should_keep_alive, self.should_upgrade = parser.should_keep_alive, parser.should_upgrade

    def feed_data(self, data: bytes) -> None:
        """Parse what has arrived, or raise HttpParserError."""
        while data:
            try:
                self._feed(data)
                return
            except HttpParserUpgrade as offer:
                if self.get_method() == b"CONNECT":
                    raise HttpParserError("CONNECT is for proxies") from None
                data = self._head_without_offer() + data[offer.args[0] :]
                self._start()

    def _head_without_offer(self) -> bytes:
        """Return the request line and the headers of the request that was parsed last."""
        first = b"%b %b HTTP/%b" % (self.get_method(), self._protocol.url, self.get_http_version().encode())
        kept = [b"%b: %b" % header for header in self._protocol.headers if header[0] != b"upgrade"]
        return b"\r\n".join([first, *kept, b"", b""])
