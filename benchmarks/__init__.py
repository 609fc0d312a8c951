"""Measurements behind the pages, one module for each question: `python -m benchmarks.NAME` prints rows as CSV.

Each module has `rows()`, which yields its results as dictionaries; its arguments are the options of the command.
`--quick` (`quick=True`) computes little, to see that the benchmark works.
"""
