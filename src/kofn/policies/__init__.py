"""The policies that practitioners run, what policies share, and the registry of all policies by name.

One algorithm, one file or folder. Every other policy of the field is in `kofn.lab.rivals`.
"""
