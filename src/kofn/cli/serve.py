"""`kofn serve` and `kofn token`: the HTTP service and its tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kofn.cli.options import AS_JSON, STORE, Count, Duration, help_if_alone
from kofn.cli.output import echo_json, new_table, show

if TYPE_CHECKING:
    from kofn.service.security.tokens import Scope


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
@click.option(
    "--max-connections",
    type=Count(),
    default=1000,
    show_default=True,
    help="Most connections per process. Requests on further ones get status 503.",
)
@click.option(
    "--trust-proxy",
    "proxies",
    metavar="ADDRESS",
    multiple=True,
    help="Address of a proxy whose X-Forwarded-For and X-Forwarded-Proto are believed; repeatable.",
)
@click.option(
    "--allow-origin",
    "origins",
    metavar="ORIGIN",
    multiple=True,
    help="Origin of web pages that may decide and report rewards, such as https://shop.example; repeatable.",
)
@click.option(
    "--browser-rate",
    type=click.IntRange(0, 1_000_000),
    default=300,
    show_default=True,
    help="Most requests per minute of one address with tokens of scope browser, per process; 0 for any number.",
)
@click.option(
    "--browser-storage",
    type=click.IntRange(0, 1_000_000),
    default=20,
    show_default=True,
    help="Most MiB that one address may store per day with such tokens, per process; 0 for any number.",
)
@click.option(
    "--browser-open",
    type=click.IntRange(0),
    default=1_000_000,
    show_default=True,
    help="Open decisions of a campaign from which on such tokens get no further ones; 0 for any number.",
)
@click.option("--root-path", default="", metavar="PATH", help="Path under which a proxy serves it, such as /kofn.")
@click.option(
    "--wait-for-store",
    type=click.FloatRange(0, 3600),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait at the start for a database server that does not respond.",
)
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Format of log lines."
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
    proxies: tuple[str, ...],
    origins: tuple[str, ...],
    root_path: str,
    wait_for_store: float,
    store: str | None,
    **more: Any,
) -> None:
    """Serve the campaigns of a store over HTTP, with a dashboard at /.

    Every request needs a token, except for --demo. If the store has never had one (`kofn token create`), the service
    prints a link with a token that is valid until it stops; KOFN_TOKEN sets that token. By default only this machine
    can reach the service. On any other address it starts only if the store has a token, and needs a proxy with TLS in
    front of it. KOFN_WEBHOOK is a URL to which events such as ready, shipped and alarm are posted; KOFN_WEBHOOK_SECRET
    signs them. Ctrl-C or SIGTERM stops the service; every acknowledged reward is stored.

    \b
    kofn serve --demo                                    try it
    kofn serve --store sqlite:///shop.db                 on this machine only
    kofn token create shop --store postgresql://db/shop
    kofn serve --host 0.0.0.0 --workers 4 --store postgresql://db/shop
    """
    import functools
    import logging
    import os
    import signal
    import sys
    from contextlib import ExitStack
    from dataclasses import replace
    from tempfile import TemporaryDirectory

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: for small matrices, more threads are slower
    from kofn.campaigns import store_at
    from kofn.cli.stores import new_file
    from kofn.service import server
    from kofn.service.monitoring import logs
    from kofn.service.security.tokens import token_hash
    from kofn.service.settings import MIB, ServiceSettings, is_loopback, prefix, proxy_address, web_origin, webhook_url

    settings = ServiceSettings(
        store,
        max_body=max_body * MIB,
        max_import=max_import * MIB,
        trusted_proxies=tuple(map(proxy_address, proxies)),
        allow_origins=tuple(map(web_origin, origins)),
        webhook=webhook_url(os.environ.get("KOFN_WEBHOOK")),
        root_path=prefix(root_path),
        **more,
    )
    logs.configure(settings)
    as_json = settings.log_format == "json"
    say = logging.getLogger("kofn.service").info if as_json else functools.partial(click.echo, err=True)
    with ExitStack() as stack:
        # uvicorn raises the signal again after it has stopped: exit with 0, and remove what is temporary
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        private = demo and store is None and is_loopback(host)
        if demo and store is None:
            folder = stack.enter_context(TemporaryDirectory(prefix="kofn-demo-"))
            settings = replace(settings, store=f"sqlite:///{folder}/demo.db?synchronous=normal")
        made = None if private else server.session_token(host, settings, wait_for_store)
        settings = replace(settings, open=private, session=made and token_hash(made))
        listener = stack.enter_context(server.listen(host, port))
        if not (demo and store is None) and (file := new_file(store)):
            say(f"kofn: note: creating the store {file}")
        store_at(settings.store)  # the last step: a command that is refused creates no store
        url = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        say(f"kofn is serving at {url}/ (Ctrl-C to stop)")
        if not (is_loopback(host) or proxies):
            say(
                "kofn: warning: other machines can reach the service, and it has no TLS: tokens can be read on the way."
                " Put a proxy with TLS in front of it, and name it with --trust-proxy (docs/guides/deployment.md)"
            )
        if made and made != os.environ.get("KOFN_TOKEN"):
            stderr = os.fstat(2)
            if os.environ.get("JOURNAL_STREAM") == f"{stderr.st_dev}:{stderr.st_ino}":  # systemd keeps what it reads
                say("The store has no tokens: create one with `kofn token create NAME`")
            else:
                say("The store has no tokens. This one is valid until the service stops:")
                say(f"  dashboard  {url}/#token={made}")
                say(f"  programs   export KOFN_URL={url} KOFN_TOKEN={made}")
        code = server.serve(listener, settings, workers=workers, demo=demo)
    sys.exit(code)


@click.group(invoke_without_command=True, subcommand_metavar="COMMAND [ARGS]...")
@click.pass_context
def token(context: click.Context) -> None:
    """Create, list and revoke the API tokens of `kofn serve`.

    \b
    kofn token create dashboard --scope read
    kofn token create shop --scope decide --campaign front-page --expires 30d
    kofn token create page --scope browser --campaign front-page --expires 90d
    kofn token revoke 2
    """
    help_if_alone(context)


@token.command()
@click.argument("name")
@click.option(
    "--scope",
    type=click.Choice(["browser", "read", "decide", "full"]),
    default="full",
    show_default=True,
    help="browser: only make decisions and report about them, for a web page, which everyone can read; read: look "
    "only; decide: both; full: everything.",
)
@click.option("--campaign", metavar="NAME", help="Limit the token to one campaign.")
@click.option(
    "--expires", type=Duration(), help="How long the token is valid, such as 12h or 30d; by default until revoked."
)
@STORE
@AS_JSON
def create(
    name: str, scope: Scope, campaign: str | None, expires: float | None, store: str | None, as_json: bool
) -> None:
    """Create a token for NAME and print it. It cannot be shown again: the store keeps only its hash."""
    from kofn.cli.stores import noting_new_store
    from kofn.service.security.tokens import create_token

    with noting_new_store(store):
        made, known = create_token(store, name, scope, campaign, expires_after=expires)
    if as_json:
        echo_json({"token": made} | known.to_dict())
    else:
        click.echo(made)
        where = f"the campaign {campaign}" if campaign else "all campaigns"
        until = f", until {known.expires:%Y-%m-%d %H:%M} UTC" if known.expires else ""
        click.echo(f"token {known.id} for {name}: {scope}, {where}{until}. It is not shown again.", err=True)


@token.command("list")
@STORE
@AS_JSON
def list_(store: str | None, as_json: bool) -> None:
    """List the tokens of a store, without their secrets."""
    from kofn.campaigns import store_at
    from kofn.service.security.tokens import tokens

    found = tokens(store_at(store, create=False))
    if as_json:
        echo_json([each.to_dict() for each in found])
        return
    if not found:
        click.echo("There are no tokens: create one with `kofn token create NAME`.")
        return
    table = new_table("", "token", "name", "scope", "campaign", "created", "last used", "expires")
    for each in found:
        times = (f"{at:%Y-%m-%d %H:%M}" if at else "never" for at in (each.created, each.used, each.expires))
        table.add_row(str(each.id), each.name, each.scope, each.campaign or "all", *times)
    show(table)


@token.command()
@click.argument("number", type=Count())
@STORE
def revoke(number: int, store: str | None) -> None:
    """Revoke the token with this NUMBER. Running services reject it within seconds."""
    from kofn.campaigns import store_at
    from kofn.service.security.tokens import revoke_token

    known = revoke_token(store_at(store, create=False), number)
    click.echo(f"revoked token {known.id} of {known.name}")
