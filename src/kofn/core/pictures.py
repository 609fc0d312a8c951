"""Files of pictures. Importing this module needs matplotlib (the extra `plots`)."""

from __future__ import annotations

from pathlib import Path

from kofn.core.errors import BadInput, MissingExtra

try:
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Figure
    from matplotlib.ticker import EngFormatter as EngFormatter
except ImportError as missing:
    raise MissingExtra("matplotlib", "plots") from missing


def picture_files(path: Path) -> list[Path]:
    """Return the files that a picture at `path` is written to: PNG and SVG."""
    if not path.name:
        raise BadInput(f"a picture needs a file name, such as {path / 'run'}; got the folder {str(path)!r}")
    stem = path.stem if path.suffix in (".png", ".svg") else path.name
    return [path.with_name(f"{stem}.png"), path.with_name(f"{stem}.svg")]


def save_figure(figure: Figure, path: Path) -> list[Path]:
    """Write the figure to `path` as PNG and SVG, and return the files. The same numbers give the same bytes."""
    files = picture_files(path)
    with rc_context({"svg.hashsalt": "kofn"}):
        figure.savefig(files[0], dpi=150)
        figure.savefig(files[1], metadata={"Date": None})
    return files
