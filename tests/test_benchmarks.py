"""Every benchmark can be imported and has rows; the cheapest ones run."""

import importlib
import inspect
import pkgutil

import pytest

import benchmarks
from benchmarks.rows import run

NAMES = sorted(each.name for each in pkgutil.iter_modules(benchmarks.__path__) if each.name != "rows")


def test_every_benchmark_has_rows_with_defaults() -> None:
    assert len(NAMES) == 15
    for name in NAMES:
        options = inspect.signature(importlib.import_module(f"benchmarks.{name}").rows).parameters
        assert options["quick"].default is False
        assert inspect.Parameter.empty not in {each.default for each in options.values()}


@pytest.mark.parametrize("name", ["budget", "calibration", "speed", "stopping"])
def test_a_benchmark_prints_csv(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(f"benchmarks.{name}")
    run(module.rows, module.__doc__, ["--quick"])
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split(",")[0] in {"family", "setting", "what", "group"}
    assert len(lines) >= 2
