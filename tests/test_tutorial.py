"""The client program of the tutorial runs against a service with the tutorial's campaign."""

import re
from pathlib import Path

import pytest

import kofn
from tests.service.tools import service

PAGE = Path(__file__).parents[1] / "docs/tutorial/getting-started.md"


def test_the_client_of_the_tutorial_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    store = f"sqlite:///{tmp_path}/shop.db"
    arms = list("abcde")
    campaign = kofn.Campaign.create("front-page", arms, k=3, reward_range=(0, 40), window="1d", seed=1, store=store)
    with service(store) as http:
        monkeypatch.setenv("KOFN_URL", str(http.base_url))
        exec(compile(program, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.count("'") == 2 * 3
    assert [each.reward for each in campaign.decisions()] == [21.0]
