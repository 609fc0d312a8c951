"""What tests on real data need: packages that contain it."""

from kofn.lab.problems.real.files import installed, missing
from tests import system


def needs(package: str) -> None:
    """Skip the running test if a package is not there; where nothing may be skipped, that is an error."""
    if not installed(package):
        system.missing(str(missing(package)))
