"""Experiments as data: settings, sweeps and their archive, comparisons, the suite and the paper's figures."""
