"""`kofn campaign`: what each command prints, and what it refuses."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kofn import Campaign
from kofn.campaigns import Store, campaigns
from kofn.cli import cli
from kofn.cli.output import write_whole

Kofn = Callable[..., tuple[int, str, str]]
CREATE = ["create", "front", "--k", "2", "--range", "-10", "40", "--seed", "1"]
ARMS = [word for name in ("mug", "tray", "pan", "[red]pot[/]") for word in ("--arm", name)]


@pytest.fixture
def sqlite_store(new_sqlite_store: str) -> str:
    """Here, stores are created by the code under test."""
    return new_sqlite_store


@pytest.fixture
def kofn(monkeypatch: pytest.MonkeyPatch, kofn_main: Kofn, sqlite_store: str) -> Kofn:
    """`kofn campaign ARGV` through main: exit code, stdout, stderr."""
    monkeypatch.setenv("KOFN_STORE", sqlite_store)
    return partial(kofn_main, "campaign")


def read(answer: tuple[int, str, str]) -> Any:
    assert (answer[0], answer[2]) == (0, "")
    return json.loads(answer[1])


def test_a_campaign_from_the_shell(kofn: Kofn, tmp_path: Path, sqlite_store: str) -> None:
    code, out, err = kofn(*CREATE, *ARMS)
    assert (code, err) == (0, f"kofn: note: created the store {tmp_path}/shop.db\n")
    assert out == f"created front: 4 arms, 2 places, thompson, in {sqlite_store}\n"
    code, out, _ = kofn("decide", "front")
    id, *arms = out.rstrip("\n").split("\t")
    assert len(arms) == 2
    assert kofn("reward", "front", id, "-2.5") == (0, "accepted 1, repeated 0\n", "")
    assert read(kofn("reward", "front", id, "-2.5", "--json")) == {
        "accepted": 0,
        "repeated": 1,
        "forgotten": 0,
        "late": 0,
        "refused": [],
    }
    decisions = read(kofn("decide", "front", "--count", "30", "--json"))
    assert len({each["id"] for each in decisions}) == 30
    rewards = tmp_path / "rewards.csv"
    rewards.write_text("id,reward\n" + "".join(f"{each['id']},{len(each['arms'])}\n" for each in decisions))
    assert kofn("reward", "front", "--from", str(rewards))[1] == "accepted 30, repeated 0\n"
    total = ["reward-total", "front", "10", "-5", "--arm", "mug", "--arm", "pan", "--key", "monday"]
    assert kofn(*total)[1] == "accepted 10, repeated 0\n"
    assert kofn(*total)[1] == "accepted 0, repeated 10\n"
    assert Campaign.open("front", store=sqlite_store).summary().rewards == 41


def test_arms_may_come_from_a_file(kofn: Kofn, tmp_path: Path, sqlite_store: str) -> None:
    (tmp_path / "goods.txt").write_text("mug\n\n tray \npan\n")
    Store(sqlite_store).close()
    made = read(kofn(*CREATE, "--arms-from", str(tmp_path / "goods.txt"), "--json"))
    assert (made["arms"], made["k"], made["reward_range"]) == (3, 2, [-10.0, 40.0])


def test_what_is_known_is_shown(kofn: Kofn) -> None:
    kofn(*CREATE, *ARMS)
    assert "front" in kofn("show", "front")[1]
    for _ in range(3):
        for each in read(kofn("decide", "front", "--count", "40", "--json")):
            kofn("reward", "front", each["id"], "30" if "pan" in each["arms"] else "3")
    code, out, err = kofn("show", "front")
    assert (code, err) == (0, "")
    for words in (
        "running, thompson, N = 4, K = 2",
        "expected loss of shipping now",
        "alarms",
        "gain per play",
        "[red]pot[/]",
        "95 % low",
        "120 with a reward",
    ):
        assert words in out
    known = read(kofn("show", "front", "--json"))
    assert "pan" in known["best"]
    assert known["summary"]["rewards"] == 120
    assert len(kofn("show", "front", "--arms", "1")[1].splitlines()) < len(out.splitlines())
    assert [each["name"] for each in read(kofn("list", "--json"))] == ["front"]
    assert " front " in kofn("list")[1]


def test_a_campaign_over_time_from_the_shell(kofn: Kofn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    kofn(*CREATE, *ARMS, "--control", "mug", "--control", "pan", "--unit", "EUR", "--sticky", "30d")
    for _ in range(3):
        for each in read(kofn("decide", "front", "--count", "40", "--json")):
            kofn("reward", "front", each["id"], "30" if "pan" in each["arms"] else "3")
    points = read(kofn("estimates", "front", "--arm", "pan", "--json"))
    assert points[-1]["expected_loss"] >= 0
    assert points[-1]["effects"]["pan"] > 0
    assert len(read(kofn("estimates", "front", "--points", "2", "--json"))) == 2
    out = kofn("estimates", "front", "--arm", "[red]pot[/]")[1]
    for words in ("expected loss", "estimated reward", "lift over control", "[red]pot[/]"):
        assert words in out
    kofn("configure", "front", "--no-sticky", "--outside", "clip", "--range", "-10", "60")
    assert read(kofn("configure", "front", "--json"))["sticky"] is None
    kofn("reward", "front", read(kofn("decide", "front", "--json"))[0]["id"], "99")
    kofn("ship", "front", "--arm", "pan", "--arm", "mug")
    events = read(kofn("events", "front", "--json"))
    assert [each["kind"] for each in events[:3]] == ["shipped", "configured", "changed"]
    assert events[2]["message"] == "reward_range is -10 to 60"
    assert len(read(kofn("events", "front", "--limit", "2", "--json"))) == 2
    assert "reward_range is -10 to 60" in kofn("events", "front")[1]
    shown = [" ".join(line.split()) for line in kofn("show", "front")[1].splitlines()]
    assert {"shipped mug, pan", "clipped rewards 1"} < set(shown)


def test_orders_and_returns_from_the_shell(kofn: Kofn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign with a window: the reward is the sum of its events, and of silence nothing is reported."""
    made = ["--window", "1d", "--silence", "-1", "--control", "mug", "--control", "pan", "--control-share", "0.5"]
    kofn(*CREATE, *ARMS, *made, "--guardrail", "returns<=+2%", "--metric-window", "30d")
    settings = read(kofn("configure", "front", "--json"))
    assert {name: settings[name] for name in ("window", "silence", "guardrails", "metric_window")} == {
        "window": 86400.0,
        "silence": -1.0,
        "guardrails": ["returns<=+2%"],
        "metric_window": 30 * 86400.0,
    }
    ids = [each["id"] for each in read(kofn("decide", "front", "--count", "4", "--json"))]
    for _ in range(2):
        assert kofn("add", "front", ids[0], "12.5", "--event", "order-17")[0] == 0
    assert kofn("add", "front", ids[0], "12.5", "--event", "order-17")[1] == "accepted 0, repeated 1\n"
    orders, returns = tmp_path / "orders.csv", tmp_path / "returns.csv"
    orders.write_text(f"id,value,event\n{ids[1]},30,order-18\n{ids[1]},-5,order-19\n")
    assert kofn("add", "front", "--from", str(orders))[1] == "accepted 2, repeated 0\n"
    assert kofn("record", "front", ids[0], "returns", "1")[1] == "accepted 1, repeated 0\n"
    returns.write_text(f"{ids[1]},returns,0\n")
    assert kofn("record", "front", "--from", str(returns))[1] == "accepted 1, repeated 0\n"
    returns.write_text(f"{ids[1]},0,returns\n")
    assert "line 1 is not ID,METRIC,VALUE: " in kofn("record", "front", "--from", str(returns))[2]
    for wrong in (["add", "front", ids[0], "1"], ["record", "front", ids[0], "returns"]):
        assert "or --from with a CSV file of them" in kofn(*wrong)[2]
    assert "give --from alone" in kofn("add", "front", ids[0], "--from", str(orders))[2]
    assert kofn("learn", "front")[1] == "front: nothing to learn yet\n"
    monkeypatch.setenv("COLUMNS", "160")
    assert "0 settled, 4 with an open window; the next settles at 20" in kofn("show", "front")[1]
    kofn("configure", "front", "--no-window", "--no-guardrails")
    settings = read(kofn("configure", "front", "--json"))
    assert (settings["window"], settings["guardrails"]) == (None, [])


def test_a_life_from_the_shell(kofn: Kofn, tmp_path: Path, sqlite_store: str) -> None:
    kofn(*CREATE, *ARMS)
    assert kofn("add-arm", "front", "lid")[1] == "front: added lid\n"
    assert kofn("retire-arm", "front", "mug")[1] == "front: retired mug\n"
    assert kofn("pause", "front")[1] == "front: paused\n"
    assert kofn("decide", "front") == (2, "", "kofn: the campaign 'front' is paused: resume it to decide again\n")
    assert kofn("resume", "front")[1] == "front: running\n"
    assert kofn("stop", "front")[1].startswith("front: stopped; the best are ")
    file = tmp_path / "front.json"
    assert kofn("export", "front", "--out", str(file)) == (0, "", f"wrote {file}\n")
    assert json.loads(kofn("export", "front")[1]) == json.loads(file.read_text())
    assert kofn("import", str(file), "--name", "copy")[1] == "imported copy: 0 plays\n"
    assert kofn("delete", "front", "--yes")[1] == "front: deleted\n"
    assert [each.name for each in campaigns(sqlite_store)] == ["copy"]
    assert kofn("import", str(file))[0] == 0


def test_names_and_units_are_printed_unchanged(kofn: Kofn) -> None:
    """`[/]` and `:bug:` are markup for the library that draws tables."""
    names = ["[red]pot[/]", "[/]", ":bug:", "pan"]
    arms = [word for name in names for word in ("--arm", name)]
    settings = ["--unit", "[/b]", "--control", "[/]", "--control", ":bug:", "--rule", "never together [/], pan"]
    assert kofn("create", "front", "--k", "2", *arms, *settings)[0] == 0
    (decision,) = read(kofn("decide", "front", "--json"))
    kofn("reward", "front", decision["id"], "0.5")
    code, shown, err = kofn("show", "front")
    assert (code, err) == (0, "")
    assert all(f"  {name} " in shown for name in names)
    assert "0.5 [/b]" in shown
    assert "[/], pan" in shown
    code, shown, err = kofn("configure", "front")
    assert (code, err) == (0, "")
    assert "[/], :bug:" in shown


def test_an_export_with_the_secret_is_for_its_owner(kofn: Kofn, tmp_path: Path) -> None:
    kofn(*CREATE, *ARMS)
    file, before = tmp_path / "front.json", os.umask(0o022)
    try:
        for options, mode in (((), 0o644), (("--with-secret",), 0o600)):
            kofn("export", "front", *options, "--out", str(file))
            assert ("secret" in json.loads(file.read_text())["campaign"]) == bool(options)
            assert file.stat().st_mode & 0o777 == mode
    finally:
        os.umask(before)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on the size of files")
def test_an_export_that_does_not_fit_leaves_the_file_as_it_was(kofn: Kofn, tmp_path: Path) -> None:
    import resource

    kofn(*CREATE, *ARMS)
    file = tmp_path / "front.json"
    file.write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        code, _, err = kofn("export", "front", "--out", str(file))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (code, err) == (2, f"kofn: {file}: File too large\n")
    assert file.read_text() == "old"
    assert not list(tmp_path.glob("*.part"))


def test_two_exports_to_the_same_file_do_not_mix(tmp_path: Path) -> None:
    """The second one begins and ends while the first one writes. Neither touches a file that is not its own."""
    out, other = tmp_path / "front.csv", tmp_path / "front.csv.part"
    other.write_text("a file of somebody else")

    def first() -> Iterator[bytes]:
        yield b"first, "
        write_whole(out, [b"second"])
        assert out.read_bytes() == b"second"
        yield b"whole"

    write_whole(out, first())
    assert out.read_bytes() == b"first, whole"
    assert {each.name for each in tmp_path.iterdir()} == {out.name, other.name}


@pytest.mark.skipif(sys.platform == "win32", reason="needs symbolic links")
def test_an_export_to_a_link_writes_to_its_file(tmp_path: Path) -> None:
    out, file = tmp_path / "front.csv", tmp_path / "file.csv"
    out.symlink_to(file)
    for text in (b"new", b"again"):  # the file does not exist, then it does
        write_whole(out, [text])
        assert out.is_symlink()
        assert file.read_bytes() == text


def test_a_campaign_is_not_deleted_unasked(kofn: Kofn, monkeypatch: pytest.MonkeyPatch, sqlite_store: str) -> None:
    import io

    kofn(*CREATE, *ARMS)
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    assert kofn("delete", "front")[0] == 130
    assert len(campaigns(sqlite_store)) == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["decide", "front"], "there is no store in the file"),
        (["create", "x"], "got none: give their names (arms=, --arm or --arms-from)"),
        (["create", "a/b", *ARMS], "a campaign's name"),
        (["create", "x", *ARMS, "--k", "2", "--expire-after", "soon"], "'soon' is not a duration"),
        (["create", "x", *ARMS, "--k", "2", "--store", "mysql://x/y"], "a store must be on SQLite"),
        (["reward", "front", "id"], "give ID, REWARD, or --from"),
        (["reward-total", "front", "10", "1"], "Missing option '--arm'"),
        (["import", "missing.json"], "missing.json"),
        (["nonsense"], "No such command 'nonsense'"),
    ],
)
def test_what_is_wrong_is_one_line(kofn: Kofn, argv: list[str], message: str) -> None:
    code, out, err = kofn(*argv)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_an_empty_list_says_so(kofn: Kofn) -> None:
    kofn(*CREATE, *ARMS)
    assert kofn("list", "--archived")[1] == "There are no archived campaigns.\n"
    kofn("delete", "front", "--yes")
    assert "kofn campaign create" in kofn("list")[1]
    assert read(kofn("list", "--json")) == []


def test_a_refused_command_creates_no_store(kofn: Kofn, tmp_path: Path) -> None:
    for argv in (["show", "front"], ["list"], ["create", "x", "--arm", "a"], ["export", "front"]):
        assert kofn(*argv)[0] == 2
    assert list(tmp_path.iterdir()) == []
    assert kofn(*CREATE, *ARMS)[0] == 0
    assert kofn("create", "second", *ARMS, "--k", "2")[2] == ""  # the store is not new any more
    assert "there is no campaign 'third' in" in kofn("show", "third")[2]


def test_wrong_files_are_named(kofn: Kofn, tmp_path: Path) -> None:
    kofn(*CREATE, *ARMS)
    file = tmp_path / "wrong"
    file.write_text("id,reward\nonly-one\n")
    assert "line 2 is not ID,REWARD: only-one" in kofn("reward", "front", "--from", str(file))[2]
    file.write_text("{]")
    assert "is not the JSON of an exported campaign" in kofn("import", str(file))[2]
    file.write_text("{}")
    assert "Campaign.export()" in kofn("import", str(file))[2]


def test_examples_in_the_help_parse() -> None:
    group: Any = cli.commands["campaign"]
    lines = [line.strip() for each in [group, *group.commands.values()] for line in (each.help or "").splitlines()]
    examples = [line.split()[2:] for line in lines if line.startswith("kofn campaign ")]
    assert len(examples) >= 10
    for name, *arguments in examples:
        known = {option for each in group.commands[name].params for option in each.opts}
        assert {word for word in arguments if word.startswith("--")} <= known


def test_a_policy_with_a_horizon_and_parameters(kofn: Kofn, sqlite_store: str) -> None:
    made = ["create", "x", *ARMS, "--k", "2", "--policy", "cmab-sm", "--horizon", "1e6", "--set", "resolution=0.3"]
    assert kofn(*made, "--minimize", "--expire-after", "12h", "--keep", "5")[0] == 0
    campaign = Campaign.open("x", store=sqlite_store)
    assert '"resolution":0.3' in json.dumps(campaign.export(), separators=(",", ":")).replace("\\", "")
    assert campaign.summary().direction == "minimize"
    assert (campaign.settings().expire_after, campaign.settings().keep_decisions) == (43_200.0, 5)
