"""``python -m kvplan``."""

from kvplan.cli.main import entry

entry()
