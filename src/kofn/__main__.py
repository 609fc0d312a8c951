"""Run the command `kofn` as `python -m kofn`."""

from kofn.cli import main

if __name__ == "__main__":
    main()
