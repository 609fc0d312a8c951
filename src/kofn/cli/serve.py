"""`kofn serve` and `kofn token`: the HTTP service and its tokens."""

from __future__ import annotations

import click

from kofn.cli.campaigns import STORE
from kofn.cli.options import AS_JSON, Count
from kofn.cli.output import echo_json, new_table, show

MIB = 1024 * 1024


@click.command()
@click.option(
    "--host", default="127.0.0.1", help="Address to listen on; by default the loopback address of this machine."
)
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port; 0 for a free one.")
@click.option("--workers", type=Count(), default=1, show_default=True, help="Number of processes.")
@click.option(
    "--demo", is_flag=True, help="Also run simulated campaigns, named demo-...; without --store, in a temporary store."
)
@click.option("--max-body", type=Count(), default=8, show_default=True, help="Largest request body, in MiB.")
@click.option("--max-import", type=Count(), default=256, show_default=True, help="Largest imported campaign, in MiB.")
@click.option(
    "--max-batch", type=Count(), default=10_000, show_default=True, help="Most decisions or rewards in a request."
)
@click.option("--access-log", is_flag=True, help="Log every request to stderr.")
@STORE
def serve(
    host: str,
    port: int,
    workers: int,
    demo: bool,
    max_body: int,
    max_import: int,
    max_batch: int,
    access_log: bool,
    store: str | None,
) -> None:
    """Serve the campaigns of a store over HTTP, with a dashboard at /.

    By default only this machine can reach the service, and no token is required while the store has none. On any other
    address the service starts only if the store has a token. Ctrl-C or SIGTERM stops it; every acknowledged reward is
    stored.

    \b
    kofn serve --demo                                    try it
    kofn serve --store sqlite:///shop.db                 on this machine only
    kofn token create shop --store postgresql://db/shop
    kofn serve --host 0.0.0.0 --workers 4 --store postgresql://db/shop
    """
    import os
    import signal
    import sys
    from contextlib import ExitStack
    from dataclasses import replace
    from tempfile import TemporaryDirectory

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: for small matrices, more threads are slower
    from kofn.cli.stores import new_file
    from kofn.service.server import check_public_address, listen
    from kofn.service.server import serve as run
    from kofn.service.settings import Settings, is_loopback

    settings = Settings(store, is_loopback(host), max_body * MIB, max_import * MIB, max_batch)
    with ExitStack() as stack:
        if demo and store is None:
            folder = stack.enter_context(TemporaryDirectory(prefix="kofn-demo-"))
            settings = replace(settings, store=f"sqlite:///{folder}/demo.db?synchronous=normal")
        elif file := new_file(store):
            click.echo(f"kofn: note: creating the store {file}", err=True)
        check_public_address(host, settings)
        listener = stack.enter_context(listen(host, port))
        shown = f"[{host}]" if ":" in host else host
        click.echo(f"kofn is serving at http://{shown}:{listener.getsockname()[1]}/ (Ctrl-C to stop)", err=True)
        signal.signal(
            signal.SIGTERM, lambda *_: sys.exit(0)
        )  # uvicorn raises it again: exit, and remove what is temporary
        run(listener, settings, workers=workers, demo=demo, access_log=access_log)


@click.group()
def token() -> None:
    """Create, list and revoke the API tokens of `kofn serve`.

    \b
    kofn token create dashboard --scope read
    kofn token create shop --campaign front-page
    kofn token revoke 2
    """


@token.command()
@click.argument("name")
@click.option(
    "--scope",
    type=click.Choice(["read", "full"]),
    default="full",
    show_default=True,
    help="read: look only; full: everything.",
)
@click.option("--campaign", metavar="NAME", help="Limit the token to one campaign.")
@STORE
@AS_JSON
def create(name: str, scope: str, campaign: str | None, store: str | None, as_json: bool) -> None:
    """Create a token for NAME and print it. It cannot be shown again: the store keeps only its hash."""
    from kofn.campaigns import store_at
    from kofn.cli.stores import noting_new_store
    from kofn.service.tokens import create_token

    with noting_new_store(store):
        made, known = create_token(store_at(store), name, "read" if scope == "read" else "full", campaign)
    if as_json:
        echo_json({"token": made} | known.to_dict())
    else:
        click.echo(made)
        where = f"the campaign {campaign}" if campaign else "all campaigns"
        click.echo(f"token {known.id} for {name}: {scope}, {where}. It is not shown again.", err=True)


@token.command("list")
@STORE
@AS_JSON
def list_(store: str | None, as_json: bool) -> None:
    """List the tokens of a store, without their secrets."""
    from kofn.campaigns import store_at
    from kofn.service.tokens import tokens

    found = tokens(store_at(store, create=False))
    if as_json:
        echo_json([each.to_dict() for each in found])
        return
    table = new_table("", "token", "name", "scope", "campaign", "created", "last used")
    for each in found:
        times = (f"{at:%Y-%m-%d %H:%M}" if at else "never" for at in (each.created, each.used))
        table.add_row(str(each.id), each.name, each.scope, each.campaign or "all", *times)
    show(table)


@token.command()
@click.argument("number", type=Count())
@STORE
def revoke(number: int, store: str | None) -> None:
    """Revoke the token with this NUMBER. Running services reject it within seconds."""
    from kofn.campaigns import store_at
    from kofn.service.tokens import revoke_token

    known = revoke_token(store_at(store, create=False), number)
    click.echo(f"revoked token {known.id} of {known.name}")
