#!/usr/bin/env bash
# Install the programs that the tests need beside Python: a PostgreSQL server (initdb, pg_ctl), Chromium and nginx.
# Does nothing when they are there. `make test` calls it. Debian and Ubuntu; elsewhere it says what to install.
set -euo pipefail

has_postgres() {
    if [ -n "${KOFN_POSTGRES_BIN:-}" ]; then [ -x "$KOFN_POSTGRES_BIN/initdb" ]; return; fi
    command -v pg_ctl > /dev/null || compgen -G "/usr/lib/postgresql/*/bin/pg_ctl" > /dev/null
}

has_chromium() {
    if [ -n "${KOFN_CHROMIUM:-}" ]; then [ -x "$KOFN_CHROMIUM" ]; return; fi
    for program in chromium chromium-browser google-chrome google-chrome-stable; do
        if command -v "$program" > /dev/null; then return 0; fi
    done
    playwright_chromium > /dev/null 2>&1
}

playwright_chromium() {
    "${PYTHON:-python3}" -c '
import pathlib, sys
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    sys.exit(not pathlib.Path(playwright.chromium.executable_path).exists())'
}

missing=()
has_postgres || missing+=(postgresql)
has_chromium || missing+=(chromium)
command -v nginx > /dev/null || missing+=(nginx-light)
command -v openssl > /dev/null || missing+=(openssl)
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

if ! command -v apt-get > /dev/null; then
    echo "The tests need: ${missing[*]}. Install nginx, openssl, PostgreSQL's server programs (macOS: brew install" >&2
    echo "nginx openssl postgresql) and Chromium (any system: python -m playwright install chromium), or set" >&2
    echo "KOFN_POSTGRES_BIN and KOFN_CHROMIUM." >&2
    exit 1
fi

become=()
if [ "$(id -u)" -ne 0 ]; then become=(sudo); fi
install=("${become[@]}" apt-get install --yes --no-install-recommends)
if ! "${install[@]}" "${missing[@]}"; then
    "${become[@]}" apt-get update # a new machine has no list of packages yet
    "${install[@]}" "${missing[@]}"
fi
