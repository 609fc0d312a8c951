"""Python objects that are named on the command line: `script.py:name` or `package.module:name`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any


def names_object(text: str) -> bool:
    """Return whether the text names a Python file or object: `script.py`, `script.py:name` or `package.module:name`."""
    return text.endswith(".py") or ":" in text


def load_object(text: str, default: str | None = None) -> Any:
    """Return the object named by `script.py:name` or `package.module:name`; `script.py` alone means `default` in it.

    Modules beside the script, or in the current folder, can be imported. A function of a script can be sent to other
    processes and machines: it is pickled by value, because its module is not importable by a name.
    """
    from kofn.core import BadInput
    from kofn.core.checks import shown

    where, colon, name = (text, "", default or "") if text.endswith(".py") else text.rpartition(":")
    if not where or not name:
        raise BadInput(f"{shown(text)} must be script.py:name or package.module:name, such as shop.py:clicks")
    module = load_script(Path(where)) if where.endswith(".py") else _load_module(where)
    try:
        found = module
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError:
        functions = ", ".join(_functions(module)) or "no functions"
        way_out = "" if colon else f". To name another object, write {where}:name"
        raise BadInput(f"{where} defines no `{name}`; it defines {functions}{way_out}") from None
    return found


def _functions(module: Any) -> list[str]:
    """Return the public functions and classes that a module defines."""
    here = (name for name, what in vars(module).items() if getattr(what, "__module__", "") == module.__name__)
    return sorted(name for name in here if not name.startswith("_"))


def load_script(path: Path) -> Any:
    """Run the file as a module, with its folder in the search path, as Python does with a script."""
    from kofn.core import BadInput

    if not path.is_file():
        raise BadInput(f"there is no file {path}")
    name = f"kofn_script_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    _search_in(str(path.resolve().parent))
    sys.modules[name] = module  # dataclasses and typing look for the module of a class while it is defined
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as why:
        raise BadInput(f"{path} failed: {type(why).__name__}: {why}") from why
    finally:
        del sys.modules[name]  # what is not importable is pickled by value
    return module


def _load_module(name: str) -> Any:
    from kofn.core import BadInput

    _search_in(os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as why:
        if why.name is None or not (name == why.name or name.startswith(f"{why.name}.")):
            raise BadInput(f"{name} failed: {type(why).__name__}: {why}") from why
        raise BadInput(
            f"there is no module {name}: give a module that Python finds from here, or a file, such as {name}.py:name"
        ) from None
    except (Exception, SystemExit) as why:
        raise BadInput(f"{name} failed: {type(why).__name__}: {why}") from why


def _search_in(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)
