"""The HTTP service: an API for campaigns, live updates and a dashboard. `kofn serve` starts it."""

from kofn.core import MissingExtra

try:
    import fastapi as _fastapi  # noqa: F401
    import prometheus_client as _prometheus_client  # noqa: F401
    import uvicorn as _uvicorn  # noqa: F401
except ImportError as missing:
    raise MissingExtra(missing.name or "fastapi", "serve") from missing

from kofn.service.app import make_app
from kofn.service.security.tokens import Token, create_token, revoke_token, tokens
from kofn.service.settings import ServiceSettings

__all__ = ["ServiceSettings", "Token", "create_token", "make_app", "revoke_token", "tokens"]
