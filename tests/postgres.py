"""A temporary PostgreSQL server: made in a folder, started on a free port, stopped and removed at the end."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.system import missing

MISSING = (
    "PostgreSQL's server programs initdb and pg_ctl were not found. Run scripts/install-test-system.sh, install them "
    "yourself (Debian and Ubuntu: postgresql; macOS: brew install postgresql), or set KOFN_POSTGRES_BIN to their folder"
)

QUICK = " ".join(f"-c {each}=off" for each in ("fsync", "full_page_writes", "synchronous_commit", "autovacuum", "jit"))
"""Options of a server that does not wait for the disk, and does not look after the hundreds of tables of the tests."""


def programs() -> Path:
    """Return the folder of initdb and pg_ctl; without one, skip the test or raise RuntimeError."""
    return _found() or missing(MISSING)


def _found() -> Path | None:
    places = [Path(os.environ["KOFN_POSTGRES_BIN"])] if "KOFN_POSTGRES_BIN" in os.environ else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    places += [Path(found).parent for found in [shutil.which("pg_ctl")] if found]
    return next((place for place in places if (place / "initdb").exists() and (place / "pg_ctl").exists()), None)


def _as_user(folder: Path) -> list[str]:
    """Return a command prefix that changes the user, because the server refuses to run as root."""
    if os.geteuid() != 0:
        return []
    import pwd

    user = next(name for name in ("postgres", "nobody") if name in {each.pw_name for each in pwd.getpwall()})
    owner = pwd.getpwnam(user)
    os.chown(folder, owner.pw_uid, owner.pw_gid)
    return ["setpriv", f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(*, durable: bool = False) -> Iterator[str]:
    """Start a server and give the URL of its database. A durable one waits for the disk."""
    where = programs()
    folder = Path(tempfile.mkdtemp(prefix="kofn-postgres-"))
    user, port, data = _as_user(folder), _free_port(), folder / "data"

    def call(program: str, *arguments: str) -> None:
        command = [*user, str(where / program), *arguments]
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "HOME": str(folder)}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
        if done.returncode:
            log = folder / "log"
            raise RuntimeError(f"{program}: {done.stderr}{done.stdout}{log.read_text() if log.exists() else ''}")

    try:
        call("initdb", "-D", str(data), "-U", "kofn", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = f"-p {port} -h 127.0.0.1 -k {folder} -c max_connections=200 {'' if durable else QUICK}"
        call("pg_ctl", "start", "-w", "-t", "60", "-D", str(data), "-l", str(folder / "log"), "-o", options)
        try:
            yield f"postgresql://kofn@127.0.0.1:{port}/postgres"
        finally:
            call("pg_ctl", "stop", "-w", "-m", "immediate", "-D", str(data))
    finally:
        subprocess.run(["sh", "-c", 'rm -rf "$0" &', str(folder)], check=True)  # in the background: it takes a minute
