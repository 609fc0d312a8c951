"""The commands that move a campaign and check it: campaign export, import and verify."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO

import click

from kofn.cli.campaigns.options import NAME, open_campaign
from kofn.cli.options import AS_JSON, STORE
from kofn.cli.output import echo_json, write_whole


@click.command()
@NAME
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="File to write.  [default: stdout]")
@click.option("--with-secret", is_flag=True, help="Include the secret key, so that decisions in flight stay valid.")
@STORE
def export(name: str, out: Path | None, with_secret: bool, store: str | None) -> None:
    """Write the whole campaign NAME as JSON, to move it: `kofn campaign import` reads the file.

    Without the secret key, the imported campaign refuses rewards of decisions that were made before. A file with the
    key is secret, and only its owner can read it. For analysis, `kofn campaign decisions` writes a table.

    \b
    kofn campaign export front --out front.json
    kofn campaign export front --with-secret --out front.json
    """
    text = json.dumps(open_campaign(name, store).export(with_secret=with_secret), allow_nan=False)
    if out is None:
        click.echo(text)
    else:
        write_whole(out, [text.encode(), b"\n"], private=with_secret)
        click.echo(f"wrote {out}", err=True)


@click.command("import")
@click.argument("file", type=click.File(encoding="utf-8"))
@click.option("--name", help="Name of the imported campaign.  [default: the exported name]")
@STORE
def import_(file: IO[str], name: str | None, store: str | None) -> None:
    """Import the campaign that `export` wrote to FILE. It resumes where it was.

    \b
    kofn campaign import front.json --store postgresql://shop@db/shop
    """
    from kofn.campaigns import Campaign
    from kofn.cli.stores import noting_new_store
    from kofn.core import BadRecord

    try:
        exported = json.load(file)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as why:
        raise BadRecord(f"{file.name} is not the JSON of an exported campaign: {why}") from None
    with noting_new_store(store):
        made = Campaign.import_(exported, store=store, name=name)
    click.echo(f"imported {made.name}: {made.summary().plays:,} plays")


@click.command()
@NAME
@STORE
@AS_JSON
@click.pass_context
def verify(ctx: click.Context, name: str, store: str | None, as_json: bool) -> None:
    """Check that the state of the campaign NAME follows from its log of rewards. Exit with 1 if it does not.

    \b
    kofn campaign verify front --json
    """
    verified = open_campaign(name, store).verify()
    if as_json:
        echo_json(verified.to_dict())
    else:
        counts = f"{verified.rewards:,} rewards and {verified.steps:,} updates"
        click.echo(f"{name}: {'ok' if verified.ok else 'differs'}; compared {', '.join(verified.compared)} ({counts})")
        for line in [*verified.differences, *([verified.reason] if verified.reason else [])]:
            click.echo(f"  {line}")
    if not verified.ok:
        ctx.exit(1)
