"""Adapters: a file or a small folder for each outside library, in its conventions.

An adapter imports its library; nothing else in kofn imports an adapter.
"""
