"""Where the data is: files inside of installed packages. Nothing is downloaded, and no heavy package is imported."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kofn.core import BadInput, MissingExtra

HOW = {"obp": "pip install --no-deps obp (kofn reads its files only; with dependencies, pip also installs PyTorch)"}
"""How to install a package that is not in kofn[real]."""
MODULES = {"scikit-learn": "sklearn"}
"""The module of a package, where the names differ."""


def installed(package: str) -> bool:
    """Return whether a package is there; it is not imported."""
    return find_spec(MODULES.get(package, package)) is not None


def missing(package: str) -> MissingExtra:
    """Return the error for a package that is not there."""
    return MissingExtra(package, "real", HOW.get(package))


def module(name: str, package: str) -> Any:
    """Import a module of a package, or raise an error that says how to install the package."""
    try:
        return import_module(name)
    except ImportError as why:
        raise missing(package) from why


def data_file(package: str, *parts: str) -> Path:
    """Return the path of a data file of a package, without importing the package."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise missing(package)
    path = Path(spec.origin).parent.joinpath(*parts)
    if not path.is_file():
        what = "/".join(parts)
        raise BadInput(f"{package} has no file {what}: install the version that kofn's constraints.txt names")
    return path
