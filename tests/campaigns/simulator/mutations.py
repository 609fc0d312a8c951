from typing import Any

MUTATIONS: dict[str, Any] = {}
ON_POSTGRES: list[str] = []
