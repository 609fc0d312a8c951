"""Experiments as data: settings, how they are run, and what the paper printed."""
