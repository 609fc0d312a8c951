"""Decisions out of a campaign: the library, files, the command line, HTTP and the clients give the same rows."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

import kofn
from kofn import BadInput, MissingExtra, NoSuchCampaign, Unreachable
from kofn.campaigns import Campaign, Store
from kofn.campaigns.decision_files import COLUMNS, FORMATS, MEDIA_TYPES, ROW_GROUP, ROWS, encoded, to_frame
from kofn.campaigns.reports import decisions
from kofn.client import AsyncClient, Client
from kofn.core.responses import LoggedDecision
from kofn.lab.logs import DecisionLog
from kofn.service.security.tokens import create_token
from tests.campaigns.tools import create, play, rewards_for
from tests.cases import postgres_is_slow
from tests.cli.test_cli import Kofn, answer  # noqa: F401
from tests.client.tools import down, problem
from tests.service.tools import bearer, error_detail, service

ARROW = "pyarrow is not installed: pip install 'kofn[parquet]'"
AT = datetime(2026, 11, 16, 9, tzinfo=UTC)


def filled(store: str) -> tuple[Campaign, list[LoggedDecision]]:
    """A campaign with open, rewarded and control decisions, keys and metadata; and its rows, from what was called."""
    campaign = create(store, control=["a", "b", "c"], control_share=0.25)
    expected = {}
    for call, (number, known) in enumerate([(40, 40), (1, 0), (25, 10), (3, 3)]):
        key, metadata = (f"visitor-{call}", {"page": f"p{call}", "n": [call, None]}) if call % 2 else (None, None)
        made = campaign.decide(number, key=key, metadata=metadata)
        rewards = dict(list(rewards_for(made).items())[:known])
        campaign.rewards(rewards)
        for each in made:
            expected[each.id] = {**vars_of(each), "reward": rewards.get(each.id), "key": key, "metadata": metadata}
    rows = list(campaign.decisions())
    assert {row.id: known_part(row) for row in rows} == expected
    assert {row.group for row in rows} == {"learned", "control"}
    return campaign, rows


def vars_of(each: kofn.campaigns.Decision) -> dict[str, Any]:
    return {"arms": each.arms, "subset": each.subset, "at": each.at, "group": each.group}


def known_part(row: LoggedDecision) -> dict[str, Any]:
    return {**vars_of(row), "reward": row.reward, "key": row.key, "metadata": row.metadata}


# The library.


@postgres_is_slow
def test_rows_are_what_was_decided_and_rewarded(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign, rows = filled(store_url)
    assert len(rows) == len({row.id for row in rows}) == 69
    assert [row.at for row in rows] == sorted(row.at for row in rows)
    assert all((row.reward is None) == (row.rewarded_at is None) for row in rows)
    assert all(row.rewarded_at >= row.at for row in rows if row.rewarded_at)
    for chunk in (1, 2, 7, 69, 70):  # a chunk may end within a batch, or at its end
        monkeypatch.setattr(decisions, "CHUNK", chunk)
        assert list(campaign.decisions()) == rows
        assert list(campaign.decisions(rewarded=True)) == [row for row in rows if row.reward is not None]
    for since in (rows[40].at, rows[40].at + timedelta(microseconds=1), rows[-1].at, AT - timedelta(days=9999)):
        assert list(campaign.decisions(since=since)) == [row for row in rows if row.at >= since]
    assert next(campaign.decisions(since=rows[41].at.replace(tzinfo=None))).at == rows[41].at
    assert list(campaign.decisions(rewarded=True, since=datetime.now(UTC) + timedelta(days=1))) == []
    with pytest.raises(BadInput, match="since must be a datetime; got '2026'"):
        campaign.decisions(since="2026")  # type: ignore[arg-type]


def test_nothing_is_held_while_rows_are_read(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other calls go on, no connection is in use, and what is decided meanwhile is left out."""
    monkeypatch.setattr(decisions, "CHUNK", 10)
    campaign, rows = filled(store_url)
    reading = campaign.decisions()
    first = [next(reading) for _ in range(15)]
    pool: Any = campaign.store.pool
    assert pool.checkedout() == (campaign.store.url.get_backend_name() == "sqlite")  # that of the writer
    later, waiting = campaign.decide(30), max(at for at, row in enumerate(rows) if row.reward is None)
    campaign.rewards({later[0].id: 1.0, rows[waiting].id: 2.0})
    found = first + list(reading)
    assert [row.id for row in found] == [row.id for row in rows]
    assert found[waiting].reward == 2.0  # known by the time it was read
    assert len(list(campaign.decisions())) == 99
    reading = campaign.decisions()
    next(reading)
    campaign.delete()
    with pytest.raises(NoSuchCampaign):
        list(reading)


def test_old_decisions_may_go_while_rows_are_read(sqlite_store: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(decisions, "CHUNK", 10)
    campaign = create(sqlite_store, keep_decisions=50)
    play(campaign, 150, 10)
    reading = campaign.decisions()
    first = next(reading)
    play(campaign, 500, 10)  # deletes what has not been read
    rest = list(reading)
    assert len({row.id for row in rest}) == len(rest)
    assert all(row.at >= first.at and row.reward is not None for row in rest)
    assert 50 <= len(list(campaign.decisions())) <= 50 + 5 + 100 + 10


# Files.


def made_up(rows: int) -> Iterator[LoggedDecision]:
    for number in range(rows):
        yield LoggedDecision(
            id=f"{number:x}-0-00",
            arms=['Red "mug", large', "=1+1;\u2028é"],
            subset=(0, 12),
            at=AT + timedelta(microseconds=number),
            group="learned",
            reward=0.1 + 0.2 if number % 2 else None,
            rewarded_at=AT if number % 2 else None,
            propensity=1 / 3 if number % 3 else None,
            key=f"{'=+-@x'[number % 5]}visitor, {number}" if number % 6 else "'quoted'" if number % 4 else None,
            metadata={"text": "line\nbreak \u2028 \ud800", "n": 1.5} if number % 7 else None,
            settled=bool(number % 2),
            metrics={"returns": number / 3} if number % 4 else {},
        )


def plain(row: LoggedDecision) -> LoggedDecision:
    """The row as its JSON has it."""
    return LoggedDecision.from_dict(json.loads(json.dumps(row.to_dict())))


def read_csv(content: bytes) -> list[LoggedDecision]:
    """Read a CSV file, with Python's reader and nothing of kofn."""
    reader = csv.DictReader(io.StringIO(content.decode(), newline=""))
    assert tuple(reader.fieldnames or ()) == COLUMNS
    return [
        LoggedDecision(
            id=row["id"],
            at=datetime.fromisoformat(row["at"]),
            subset=tuple(map(int, row["subset"].split(" "))),
            arms=json.loads(row["arms"]),
            group=row["group"],  # type: ignore[arg-type]
            reward=float(row["reward"]) if row["reward"] else None,
            net_reward=float(row["net_reward"]) if row["net_reward"] else None,
            rewarded_at=datetime.fromisoformat(row["rewarded_at"]) if row["rewarded_at"] else None,
            propensity=float(row["propensity"]) if row["propensity"] else None,
            key=row["key"].removeprefix("'") or None,
            metadata=json.loads(row["metadata"]) if row["metadata"] else None,
            settled=json.loads(row["settled"]),
            metrics=json.loads(row["metrics"]),
        )
        for row in reader
    ]


def read_jsonl(content: bytes) -> list[LoggedDecision]:
    lines = content.decode().splitlines()  # which also splits at U+2028
    assert all(tuple(json.loads(line)) == COLUMNS for line in lines)
    return [LoggedDecision.from_dict(json.loads(line)) for line in lines]


def read_parquet(content: bytes) -> list[LoggedDecision]:
    parquet = pytest.importorskip("pyarrow.parquet", reason=ARROW)
    rows = parquet.read_table(io.BytesIO(content)).to_pylist()
    return [
        LoggedDecision(
            **row
            | {"subset": tuple(map(int, row["subset"].split(" ")))}
            | {"metadata": json.loads(row["metadata"]) if row["metadata"] else None}
            | {"metrics": json.loads(row["metrics"])}
        )
        for row in rows
    ]


READ: dict[str, Callable[[bytes], list[LoggedDecision]]] = {
    "csv": read_csv,
    "jsonl": read_jsonl,
    "parquet": read_parquet,
}


def test_csv_has_no_formulas() -> None:
    cells = [cell for row in csv.reader(io.StringIO(b"".join(encoded(made_up(60), "csv")).decode())) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    below_zero = (replace(row, reward=-1.5, rewarded_at=AT) for row in made_up(2))
    assert b",-1.5," in b"".join(encoded(below_zero, "csv"))  # a number stays one


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("number", [0, 1, 2 * ROWS, 2 * ROWS + 1])
def test_files_hold_every_value(file_format: str, number: int) -> None:
    if file_format == "parquet":
        pytest.importorskip("pyarrow", reason=ARROW)
    content = b"".join(encoded(made_up(number), file_format))
    assert READ[file_format](content) == [plain(row) for row in made_up(number)]


@pytest.mark.parametrize("file_format", FORMATS)
def test_files_are_written_while_rows_are_read(file_format: str) -> None:
    """After each piece, at most one piece more has been taken from the campaign."""
    if file_format == "parquet":
        pytest.importorskip("pyarrow", reason=ARROW)
    taken = count()
    pieces = encoded((row for row in made_up(10**9) if next(taken) >= 0), file_format)
    for number in range(1, 4):
        assert next(pieces)
        assert next(taken) <= (ROW_GROUP if file_format == "parquet" else ROWS) * number + number


def test_parquet_has_types_and_row_groups() -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason=ARROW)
    file = parquet.ParquetFile(io.BytesIO(b"".join(encoded(made_up(ROW_GROUP + 5), "parquet"))))
    assert [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)] == [ROW_GROUP, 5]
    kinds = {field.name: str(field.type) for field in file.schema_arrow}
    time, text = "timestamp[us, tz=UTC]", "string"
    numbers = "double", "double", time, "double"
    assert list(kinds.values()) == [text, time, text, kinds["arms"], text, *numbers, text, text, text, "bool", text]
    assert kinds["arms"].startswith("list<")


def test_a_format_that_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no format 'xls'; there are: csv, jsonl, parquet"):
        encoded(made_up(1), "xls")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"pyarrow is not installed: pip install 'kofn\[parquet\]'"):
        encoded(made_up(1), "parquet")
    (tmp_path / "log.parquet").write_bytes(b"PAR1")
    with pytest.raises(MissingExtra, match="pyarrow is not installed"):
        DecisionLog.read(tmp_path / "log.parquet")


def test_a_data_frame_has_types(sqlite_store: str) -> None:
    pandas = pytest.importorskip("pandas")
    campaign, rows = filled(sqlite_store)
    frame = campaign.to_frame()
    assert tuple(frame.columns) == COLUMNS
    assert frame["id"].tolist() == [row.id for row in rows]
    assert frame["reward"].sum() == sum(row.reward or 0 for row in rows)
    assert frame["reward"].isna().sum() == sum(row.reward is None for row in rows)
    assert (frame["rewarded_at"] - frame["at"]).max() > pandas.Timedelta(0)
    assert frame["metadata"].iloc[40] == rows[40].metadata
    assert frame.groupby("subset", observed=True)["reward"].count().sum() == frame["reward"].notna().sum()
    assert list(frame["group"].cat.categories) == ["learned", "control", "shipped"]
    assert len(campaign.to_frame(rewarded=True)) == frame["reward"].notna().sum()
    assert to_frame([]).dtypes.astype(str).tolist() == frame.dtypes.astype(str).tolist()


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_log_reads_every_file(sqlite_store: str, tmp_path: Path, file_format: str) -> None:
    if file_format == "parquet":
        pytest.importorskip("pyarrow", reason=ARROW)
    campaign, rows = filled(sqlite_store)
    path = tmp_path / "log"
    path.write_bytes(b"".join(encoded(campaign.decisions(), file_format)))
    log, used = DecisionLog.read(path), [row for row in rows if row.reward is not None]
    assert (len(log), log.unrewarded, log.adaptive) == (len(used), len(rows) - len(used), True)
    assert log.rewards.tolist() == [row.reward for row in used]
    assert [[log.name(arm) for arm in subset] for subset in log.subsets.tolist()] == [row.arms for row in used]
    assert log.propensity is not None
    known = [None if probability != probability else probability for probability in log.propensity.tolist()]
    assert known == [row.propensity for row in used]


# The command line.


def test_the_command_writes_files_that_replay_reads(answer: Kofn, sqlite_store: str, tmp_path: Path) -> None:  # noqa: F811
    _, rows = filled(sqlite_store)
    at = ["--store", sqlite_store]
    code, out, err = answer("campaign", "decisions", "front", *at)
    assert (code, err, read_csv(out.encode())) == (0, "", rows)
    code, out, err = answer("campaign", "decisions", "front", *at, "--format", "jsonl", "--rewarded")
    assert read_jsonl(out.encode()) == [row for row in rows if row.reward is not None]
    code, out, err = answer("campaign", "decisions", "front", *at, "--since", rows[-1].at.isoformat())
    assert read_csv(out.encode()) == rows[-3:]
    for name, read in (("log.csv", read_csv), ("log.ndjson", read_jsonl), ("log.jsonl", read_jsonl)):
        assert answer("campaign", "decisions", "front", *at, "--out", name) == (0, "", f"wrote {name}\n")
        assert read((tmp_path / name).read_bytes()) == rows
    code, out, err = answer("replay", "log.jsonl")
    assert (code, err) == (0, "")
    assert "Skipped 16 rows without a reward." in out
    for argv, message in (
        (["other"], "there is no campaign 'other'"),
        (["front", "--since", "yesterday"], "'yesterday' is not a time such as 2026-11-16"),
        (["front", "--format", "xls"], "'xls' is not one of"),
        (["other", "--out", "log.csv"], "there is no campaign 'other'"),
        (["front", "--out", "nowhere/log.csv"], "nowhere/log.csv"),
    ):
        code, out, err = answer("campaign", "decisions", *argv, *at)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert message in err
    assert read_csv((tmp_path / "log.csv").read_bytes()) == rows
    assert [each for each in tmp_path.iterdir() if each.suffix == ".part"] == []


def test_a_file_with_a_secret_is_not_repeated(answer: Kofn, sqlite_store: str, tmp_path: Path) -> None:  # noqa: F811
    campaign, _ = filled(sqlite_store)
    secret, at = campaign.export(with_secret=True)["campaign"]["secret"], ["--store", sqlite_store]
    answer("campaign", "export", "front", "--with-secret", "--out", "export.json", *at)
    code, out, err = answer("replay", "export.json")
    assert (code, out) == (2, "")
    assert err.startswith("kofn: export.json is an exported campaign, which is for `kofn campaign import`: use ")
    assert secret not in err
    for content in (
        '{"kofn": "exported campaign", "format": "%s"}',
        '{"kofn": "exported campaign", "format": 1, "campaign": {"secret": "%s"}}',
        '{"kofn": "exported campaign", "format": 1, "tables": "%s"}',
        '{"%s": 1}',
        '["%s"]',
        "%s,x\n",
        "subset,reward\n%s,%s\n",
    ):
        (tmp_path / "wrong").write_text(content.replace("%s", "5ec4e7" * 20_000))
        for command in (["replay"], ["campaign", "import", *at], ["campaign", "reward", "front", *at, "--from"]):
            code, out, err = answer(*command, "wrong")
            assert (code, out) == (2, "")
            assert len(err) < 500


# HTTP and the clients.

URL = "/api/campaigns/front/decisions/export"


def test_the_same_over_http(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, rows = filled(store_url)
    create(store_url, "back")
    reader, other = (
        bearer(create_token(Store(store_url), each, "read", campaign=each)[0]) for each in ("front", "back")
    )
    with service(store_url) as http:
        for file_format in FORMATS if find_spec("pyarrow") else ("csv", "jsonl"):
            got = http.get(URL, params={"format": file_format}, headers=reader)
            assert READ[file_format](got.content) == rows
            assert got.headers["content-disposition"] == f"attachment; filename*=UTF-8''front.{file_format}"
            assert got.headers["content-type"] == MEDIA_TYPES[file_format]
            assert "content-length" not in got.headers
        assert read_csv(http.get(URL, params={"rewarded": True}).content) == [row for row in rows if row.rewarded_at]
        assert read_csv(http.get(URL, params={"since": rows[-1].at.isoformat()}).content) == rows[-3:]
        head = http.head(URL)
        assert (head.status_code, head.content, head.headers["content-type"]) == (200, b"", "text/csv; charset=utf-8")
        error_detail(http.get(URL, headers=other), 403, "forbidden")
        error_detail(httpx.get(f"{http.base_url}{URL}"), 401, "unauthorized")
        error_detail(http.get(URL.replace("front", "nowhere")), 404, "no-such-campaign")
        assert http.head(URL.replace("front", "nowhere")).status_code == 404
        assert "format" in error_detail(http.get(URL, params={"format": "xls"}), 422, "malformed-request")
        assert "since" in error_detail(http.get(URL, params={"since": "soon"}), 422, "malformed-request")
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        detail = error_detail(http.get(URL, params={"format": "parquet"}), 501, "not-installed")
        assert detail == f"the service cannot write this format: {ARROW}"


def test_a_long_detail_is_cut(sqlite_store: str) -> None:
    with service(sqlite_store) as http:
        bodies: list[Any] = [
            {"kofn": "exported campaign", "format": "5ec4e7" * 9999},
            {"5ec4e7" * 9999: 1},
            "5ec4e7" * 9999,
        ]
        for body in bodies:
            got = http.post("/api/import", json={"campaign": body})
            assert got.status_code == 422
            assert len(got.content) < 3000


@postgres_is_slow
def test_clients_stream_decisions(store_url: str) -> None:
    _, rows = filled(store_url)
    rewarded = [row for row in rows if row.reward is not None]

    async def with_asyncio(url: str) -> list[LoggedDecision]:
        async with AsyncClient(url) as client:
            return [row async for row in client.campaign("front").decisions(rewarded=True)]

    with service(store_url) as http:
        url = str(http.base_url)
        with Client(url) as client:
            assert list(client.campaign("front").decisions()) == rows
            assert list(client.campaign("front").decisions(since=rows[-1].at.replace(tzinfo=None))) == rows[-3:]
            reading = client.campaign("front").decisions()
            assert next(reading) == rows[0]  # left before its end: the connection is closed
            reading.close()  # type: ignore[attr-defined]
            with pytest.raises(NoSuchCampaign):
                list(client.campaign("nowhere").decisions())
        assert asyncio.run(with_asyncio(url)) == rewarded


class Broken(httpx.SyncByteStream):
    """A response whose connection breaks after the first lines."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def __iter__(self) -> Iterator[bytes]:
        yield self._content
        raise httpx.RemoteProtocolError("peer closed connection without sending complete message body")


def test_a_stream_that_breaks_is_not_taken_for_complete() -> None:
    content = b"".join(encoded(made_up(2), "jsonl"))
    answers = [problem(503, "store-error", "busy"), httpx.Response(200, stream=Broken(content))]
    with Client("http://kofn.test", transport=httpx.MockTransport(lambda _: answers.pop(0))) as client:
        reading = client.campaign("front").decisions()
        assert [next(reading).id for _ in range(2)] == ["0-0-00", "1-0-00"]  # after a retry
        with pytest.raises(Unreachable, match="ended early: peer closed connection"):
            next(reading)


def test_what_is_no_stream_of_decisions_is_refused() -> None:
    def refused(respond: Callable[[httpx.Request], httpx.Response]) -> str:
        with (
            Client("http://kofn.test", transport=httpx.MockTransport(respond), retry_for=0) as client,
            pytest.raises(Unreachable) as error,
        ):
            list(client.campaign("front").decisions())
        return str(error.value)

    for content in (b"<html>please log in</html>", b"[]\n", b'{"id": 1}\n'):
        assert "is not one of kofn" in refused(lambda _, content=content: httpx.Response(200, content=content))  # type: ignore[misc]
    assert "does not respond: connection refused" in refused(down)
    assert refused(lambda _: problem(503, "store-error", "busy")) == "error of the service: busy"
