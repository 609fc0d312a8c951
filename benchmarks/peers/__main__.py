"""`python -m benchmarks.peers`."""

from benchmarks import peers
from benchmarks.rows import run

run(peers.rows, peers.__doc__)
