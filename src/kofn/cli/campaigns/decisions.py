"""The command that writes a campaign's decisions to a file: campaign decisions."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from kofn.cli.campaigns.options import NAME, open_campaign
from kofn.cli.options import STORE
from kofn.cli.output import write_whole

FORMATS = ("csv", "jsonl", "parquet")
"""As in `kofn.campaigns.decision_files`; here, so that `--help` does not import NumPy."""


class Time(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4 only
    """A time in ISO 8601; without a zone it is in UTC."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Return the time; fail with an error that names the option."""
        try:
            return value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        except ValueError:
            return self.fail(f"{value!r:.60} is not a time such as 2026-11-16 or 2026-11-16T09:30:00+01:00", param, ctx)


@click.command()
@NAME
@click.option(
    "--format", "file_format", type=click.Choice(FORMATS), help="Format.  [default: by the name of FILE, or csv]"
)
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="File to write.  [default: stdout]"
)
@click.option("--rewarded", is_flag=True, help="Only decisions with a reward.")
@click.option("--since", type=Time(), metavar="TIME", help="Only decisions from this time on; without a zone, in UTC.")
@STORE
def decisions(
    name: str,
    file_format: str | None,
    out: Path | None,
    rewarded: bool,
    since: datetime | None,
    store: str | None,
) -> None:
    """Write the decisions of the campaign NAME, a row each, for `kofn replay` and other tools.

    The columns are id, at, subset, arms, group, reward, net_reward (net of what the arms cost), rewarded_at,
    propensity, key, metadata, context, settled (whether the reward is final) and metrics.

    \b
    kofn campaign decisions front --out front.csv
    kofn campaign decisions front --format jsonl --rewarded --since 2026-11-01 | head
    """
    from kofn.campaigns.decision_files import encoded

    chosen = file_format or _format_of(out)
    if out is None and chosen == "parquet" and sys.stdout.isatty():
        raise click.UsageError("Parquet is not text: give --out FILE, or redirect the output")
    pieces = encoded(open_campaign(name, store).decisions(rewarded=rewarded, since=since), chosen)
    if out is None:
        sys.stdout.buffer.writelines(pieces)
        sys.stdout.buffer.flush()
        return
    write_whole(out, pieces)
    click.echo(f"wrote {out}", err=True)


def _format_of(out: Path | None) -> str:
    suffix = "" if out is None else out.suffix.removeprefix(".").lower()
    return {"ndjson": "jsonl"}.get(suffix, suffix if suffix in FORMATS else "csv")
