"""Build the documentation site into build/site: `make docs`.

The site generator sees a copy of the pages in build/pages that is laid out as the repository is: README.md at the
top, docs/, examples/ and deploy/ beside it. Every relative link therefore means the same on the site and in a forge's
view of the files. Programs of examples/, files of deploy/ and files without a suffix (LICENSE) become pages, because a
browser would download them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"
AS_CODE = {
    "LICENSE": "text",
    "CITATION.cff": "yaml",
    "deploy/kofn.service": "ini",
    "deploy/kofn-backup.service": "ini",
    "deploy/kofn-backup.timer": "ini",
    "deploy/nginx.conf": "nginx",
    "deploy/Dockerfile": "docker",
    "deploy/compose.yaml": "yaml",
    "deploy/Caddyfile": "text",
}
LINK = re.compile(r"(\]\([^)#\s]*?)(examples/\w+\.py|deploy/[\w.-]+|LICENSE|CITATION\.cff)(?=[)#])")


def main() -> None:
    """Copy the pages and build the site; exit with the generator's code. Any warning fails the build."""
    sys.exit(build(BUILD))


def build(folder: Path) -> int:
    """Copy the pages and the configuration to a folder, build the site and return the generator's exit code."""
    copy_pages(folder / "pages")
    write(folder / "site.toml", configuration())
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", "site.toml"]
    return subprocess.run(command, cwd=folder, check=False).returncode


def configuration() -> str:
    """Return tools/site.toml with the repository's path, and a line for each page that a pattern stands for."""
    text = (ROOT / "tools" / "site.toml").read_text(encoding="utf-8").replace('"ROOT/', f'"{ROOT.as_posix()}/')
    return re.sub(r'^( *)"(.*\*.*)",$', listed, text, flags=re.MULTILINE)


def listed(line: re.Match[str]) -> str:
    """Return a line for each page of a pattern, by name; the index has its own line."""
    pages = sorted(page.relative_to(ROOT) for page in ROOT.glob(line[2]) if page.stem != "index")
    return "\n".join(f'{line[1]}"{page.as_posix()}",' for page in pages)


def copy_pages(to: Path) -> None:
    """Copy every page, picture and result, and the style, to a folder that is laid out as the repository is."""
    shutil.rmtree(to, ignore_errors=True)
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        write(to / page.relative_to(ROOT), LINK.sub(r"\1\2.md", page.read_text(encoding="utf-8")))
    for file in [*ROOT.glob("docs/images/*"), *ROOT.glob("results/*.csv")]:
        shutil.copy(file, made(to / file.relative_to(ROOT)))
    shutil.copy(ROOT / "tools" / "site.css", to)
    for program in sorted(ROOT.glob("examples/*.py")):
        title = program.relative_to(ROOT).as_posix()
        write(to / f"{title}.md", as_page(title, program.read_text(encoding="utf-8"), "python"))
    for name, language in AS_CODE.items():
        write(to / f"{name}.md", as_page(name, (ROOT / name).read_text(encoding="utf-8"), language))


def as_page(title: str, text: str, language: str) -> str:
    """Return a page that shows a file."""
    return f"# {title}\n\n```{language}\n{text}```\n"


def write(file: Path, text: str) -> None:
    """Write a file, and the folders that it needs."""
    made(file).write_text(text, encoding="utf-8")


def made(file: Path) -> Path:
    """Return the file, after its folder has been created."""
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


if __name__ == "__main__":
    main()
