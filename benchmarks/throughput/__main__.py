"""`python -m benchmarks.throughput`."""

from benchmarks import throughput
from benchmarks.rows import run

run(throughput.rows, throughput.__doc__)
