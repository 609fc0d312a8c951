"""The files in deploy/: what they refer to exists, and the service runs as they would run it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from kofn import Campaign
from kofn.campaigns import Store
from kofn.cli import cli
from kofn.service.security.auth import FAILURES
from kofn.service.security.tokens import create_token
from kofn.service.server import KEEP_ALIVE_SECONDS
from tests.campaigns.tools import create
from tests.service.tools import free_port, is_healthy, service, wait_for_service
from tests.system import missing
from tests.waiting import wait_until

DEPLOY = Path(__file__).parents[2] / "deploy"
ROOT = DEPLOY.parent
UNITS = ("kofn.service", "kofn-backup.service", "kofn-backup.timer")
PROGRAM = "/opt/kofn/bin/kofn"
STATE = "/var/lib/kofn"


def settings(unit: str) -> dict[str, list[str]]:
    """Return the settings of a unit; a name may have several values."""
    found = defaultdict(list)
    for line in (DEPLOY / unit).read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith(("#", "[")):
            found[name].append(value)
    return found


def here(line: str, folder: Path) -> list[str]:
    """Return the command of a unit, with kofn of this interpreter and its files in a folder."""
    program = folder / "kofn"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m kofn "$@"\n')
    program.chmod(0o755)
    line = line.replace("%%", "%").replace("$$", "$").replace(PROGRAM, str(program))
    return shlex.split(line.replace(STATE, str(folder)))


def environment(unit: str, folder: Path) -> dict[str, str]:
    """Return the variables that a unit sets, and where Python finds kofn."""
    given = dict(value.replace(STATE, str(folder)).split("=", 1) for value in settings(unit)["Environment"])
    return given | {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(filter(None, sys.path))}


@contextmanager
def started(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start the service as its unit does, on a free port, with a file as its journal. Yield its address and process."""
    (line,) = settings("kofn.service")["ExecStart"]
    port = str(free_port())
    command = [port if word == "8000" else word for word in here(line, folder)]
    assert port in command
    with (folder / "journal").open("wb") as journal:
        place = os.fstat(journal.fileno())
        variables = environment("kofn.service", folder) | {"JOURNAL_STREAM": f"{place.st_dev}:{place.st_ino}"}
        process = subprocess.Popen(command, env=variables, cwd=folder, stderr=journal, start_new_session=True)
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for_service(address, process, lambda: f"it ended with {process.poll()}")
        yield address, process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(timeout=30)


def test_the_service_runs_as_the_unit_runs_it(tmp_path: Path) -> None:
    with started(tmp_path) as (address, process):
        assert httpx.get(f"{address}/health").json()["status"] == "ok"
        assert (tmp_path / "shop.db").exists()
        (stop,) = settings("kofn.service")["KillSignal"]
        process.send_signal(signal.Signals[stop])
        (seconds,) = settings("kofn.service")["TimeoutStopSec"]
        assert process.wait(float(seconds)) == 0
        journal = (tmp_path / "journal").read_text()
        assert "create one with `kofn token create NAME`" in journal
        assert not re.search("Traceback|kofn_|token=", journal)


def test_wrong_tokens_of_one_visitor_keep_no_other_out(tmp_path: Path) -> None:
    """The proxy on the same machine says who a visitor is, and the service believes it."""
    token, _ = create_token(Store(f"sqlite:///{tmp_path}/shop.db"), "shop")
    with started(tmp_path) as (address, _), httpx.Client(base_url=address, timeout=60) as proxy:

        def status(given: str, visitor: str) -> int:
            headers = {"Authorization": f"Bearer {given}", "X-Forwarded-For": visitor}
            return proxy.get("/api/session", headers=headers).status_code

        assert {status(f"kofn_{number}", "203.0.113.9") for number in range(FAILURES + 1)} == {401, 429}
        assert status(token, "198.51.100.7") == 200


def test_the_backup_runs_as_the_unit_runs_it(tmp_path: Path) -> None:
    create(f"sqlite:///{tmp_path}/shop.db").decide(3)
    (tmp_path / "backups").mkdir()  # StateDirectory
    assert settings("kofn-backup.service")["StateDirectory"] == ["kofn kofn/backups"]
    old = tmp_path / "backups" / "old.backup"
    old.touch()
    subprocess.run(["touch", "-d", "20 days ago", str(old)], check=True)
    for each in ("ExecStart", "ExecStartPost"):
        (line,) = settings("kofn-backup.service")[each]
        subprocess.run(here(line, tmp_path), env=environment("kofn-backup.service", tmp_path), cwd="/", check=True)
    (made,) = (tmp_path / "backups").iterdir()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d{6}\.backup", made.name)
    store = Store(f"sqlite:///{made}")
    assert Campaign.open("front", store).summary().plays == 3
    store.close()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for name in UNITS:  # the program must exist
        text = (DEPLOY / name).read_text().replace(PROGRAM, "/bin/true")
        (tmp_path / name).write_text(re.sub("(User|Group)=kofn", r"\1=daemon", text))
    done = subprocess.run(
        ["systemd-analyze", "verify", *(str(tmp_path / name) for name in UNITS)], capture_output=True, text=True
    )
    assert [line for line in done.stderr.splitlines() if str(tmp_path) in line or "kofn" in line] == []


# The image, and what runs beside it.


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split()[0], line.partition(" ")[2]) for line in text.splitlines() if line]


def test_the_image_is_built_from_files_that_exist() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    for name, rest in instructions():
        if name == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists()
                assert f"!{source}" in ignored
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    installed = next(re.findall(r'"\.\[([\w,]+)\]"', rest) for name, rest in instructions() if "pip install" in rest)
    assert set(installed[0].split(",")) <= set(extras)


def test_the_image_runs_without_root_and_its_command_parses() -> None:
    last = dict(instructions())
    assert last["USER"] not in ("root", "0")
    assert last["ENTRYPOINT"] == '["kofn"]'
    name, *options = json.loads(last["CMD"])
    cli.commands[name].make_context(name, options)


def test_the_health_check_of_the_image_works(sqlite_store: str) -> None:
    program = re.findall(r'"([^"]*)"', dict(instructions())["HEALTHCHECK"].partition("CMD ")[2])[2]
    with service(sqlite_store) as http:
        mine = program.replace("http://127.0.0.1:8000", str(http.base_url).rstrip("/"))
        subprocess.run([sys.executable, "-c", mine], check=True)
    assert subprocess.run([sys.executable, "-c", mine], capture_output=True).returncode == 1


"""Keys of the Compose specification that the file uses."""


def test_the_compose_file_is_consistent() -> None:
    found = pytest.importorskip("yaml").safe_load((DEPLOY / "compose.yaml").read_text())
    assert set(found) == {"name", "services", "volumes"}
    services = found["services"]
    assert set(services) == {"db", "kofn", "proxy"}
    for each in services.values():
        assert set(each.get("depends_on", {})) <= set(services)
        for volume in each.get("volumes", []):
            source = volume.split(":")[0]
            assert (DEPLOY / source).exists() if source.startswith(".") else source in found["volumes"]
    kofn = services["kofn"]
    assert (DEPLOY / kofn["build"]["context"] / kofn["build"]["dockerfile"]).is_file()
    assert kofn["environment"]["KOFN_STORE"].startswith("postgresql://kofn:")
    assert "ports" not in kofn  # only the proxy can be reached from outside
    assert "ports" not in services["db"]
    serve, *options = shlex.split(kofn["command"])
    trusted = cli.commands[serve].make_context(serve, options).params["proxies"]
    assert {"172.16.0.0/12", "192.168.0.0/16"} == set(trusted)  # Docker's default address pools


# Proxies.


def test_proxies_and_service_agree_on_limits() -> None:
    nginx, caddy = (DEPLOY / "nginx.conf").read_text(), (DEPLOY / "Caddyfile").read_text()
    assert re.findall(r"client_max_body_size (\w+);", nginx) == ["8m", "256m"]
    assert re.findall(r"max_size (\w+)", caddy) == ["256MiB", "8MiB"]
    assert nginx.count("{") == nginx.count("}")
    assert caddy.count("{") == caddy.count("}")
    assert r"location ~ ^/(metrics|ready)$" in nginx  # for programs inside only
    assert "@inside path /metrics /ready" in caddy


def test_proxies_end_what_the_service_does_not() -> None:
    """Slow requests and many connections; and idle connections before the service closes them."""
    nginx, caddy = (DEPLOY / "nginx.conf").read_text(), (DEPLOY / "Caddyfile").read_text()
    for each in ("client_header_timeout", "client_body_timeout", "send_timeout", "limit_conn", "limit_req"):
        assert re.search(rf"^    {each} ", nginx, re.MULTILINE)
    assert re.findall(r"read_(header|body) \d+s", caddy) == ["header", "body"]
    for idle in (*re.findall(r"keepalive_timeout (\d+)s", nginx), *re.findall(r"keepalive (\d+)s", caddy)):
        assert int(idle) < KEEP_ALIVE_SECONDS


def self_signed(folder: Path) -> None:
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=kofn.example.com"
    command += " -addext subjectAltName=DNS:kofn.example.com,IP:127.0.0.1"
    files = ["-keyout", str(folder / "privkey.pem"), "-out", str(folder / "fullchain.pem")]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)


@contextmanager
def nginx(folder: Path, upstream: str) -> Iterator[str]:
    """Run nginx with deploy/nginx.conf, on free ports. Yield its address."""
    self_signed(folder)
    plain, secure = free_port(), free_port()
    text = (DEPLOY / "nginx.conf").read_text()
    text = text.replace("/etc/ssl/kofn", str(folder)).replace("server 127.0.0.1:8000", f"server {upstream}")
    text = text.replace("listen 80;", f"listen {plain};").replace("listen 443 ssl", f"listen {secure} ssl")
    (folder / "kofn.conf").write_text(text)
    user = "user root; " if os.geteuid() == 0 else ""
    temporary = "".join(f"{each}_temp_path {folder}/{each};" for each in ("client_body", "proxy"))
    temporary += "".join(f"{each}_temp_path {folder}/{each};" for each in ("fastcgi", "uwsgi", "scgi"))
    (folder / "main.conf").write_text(
        f"{user}daemon off; pid {folder}/pid; error_log {folder}/errors.log; events {{}}\n"
        f"http {{ access_log off; {temporary} include {folder}/kofn.conf; }}\n"
    )
    program = [str(shutil.which("nginx")), "-c", str(folder / "main.conf"), "-e", str(folder / "errors.log")]
    subprocess.run([*program, "-t"], check=True, capture_output=True)
    process = subprocess.Popen(program, stderr=subprocess.DEVNULL)
    try:
        yield f"https://127.0.0.1:{secure}"
    finally:
        process.terminate()
        process.wait(30)


def test_the_service_works_behind_nginx(sqlite_store: str, tmp_path: Path) -> None:
    if not shutil.which("nginx") or not shutil.which("openssl"):
        missing("nginx or openssl is not installed: scripts/install-test-system.sh installs them")
    token, _ = create_token(Store(sqlite_store), "shop")
    with service(sqlite_store) as inside, nginx(tmp_path, f"127.0.0.1:{inside.base_url.port}") as address:
        trusted = ssl.create_default_context(cafile=str(tmp_path / "fullchain.pem"))
        with httpx.Client(base_url=address, verify=trusted, timeout=30) as http:
            wait_until(lambda: is_healthy(http), "nginx forwards requests", every=0.02)
            assert http.get("/api/campaigns").status_code == 401
            http.headers["Authorization"] = f"Bearer {token}"
            campaign = create(sqlite_store)
            with http.stream("GET", "/api/campaigns/front/stream") as stream:
                lines = stream.iter_lines()
                assert any(line.startswith("data:") for line in lines)  # passed on at once
                campaign.decide()
                assert any(line.startswith("data:") and '"plays":1' in line.replace(" ", "") for line in lines)
            large = b" " * (9 * 1024 * 1024)
            assert http.post("/api/campaigns", content=large).status_code == 413
            assert http.post("/api/import", content=large).status_code == 422
