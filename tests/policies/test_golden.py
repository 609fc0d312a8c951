"""The reference results in tests/data/golden.json are those of the present code, to the last digit.

Slow, and exact on one kind of machine only: another BLAS may round otherwise, and a draw then differs. `python -m
tests.policies.golden write` makes the file anew.
"""

import json

import pytest

from tests.policies import golden


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:a horizon of")
@pytest.mark.parametrize("part", ["simulations", "ask_tell", "campaigns"])
def test_results_are_the_reference_results(part: str) -> None:
    stored = json.loads(golden.FILE.read_text())[part]
    present = json.loads(json.dumps(golden.PARTS[part]()))
    assert list(golden.differences(stored, present)) == []
