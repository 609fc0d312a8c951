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
    campaign = kofn.Campaign.create("front-page", arms=list("abcde"), k=3, reward_range=(0, 40), seed=1, store=store)
    campaign.rewards({each.id: 20.0 for each in campaign.decide(10)})
    with service(store) as http:
        monkeypatch.setenv("KOFN_URL", str(http.base_url))
        exec(compile(program, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.count("'") == 2 * 3
    assert campaign.summary().rewards == 11
