"""Which files a plan may name: those below one folder, so that a plan is safe to check anywhere.

A plan comes with a pull request, perhaps from a stranger, and a fault quotes what it read. So every
path in it is relative to the plan's own folder and must end up, links followed, below the root: the
top of the repository (the nearest folder above with ``.git``), or the plan's folder where there is
none, or what ``--root`` says.
"""

from __future__ import annotations

import os

from kvplan.errors import InputError


class Folder:
    """The folder of a plan, and the root that its paths stay below."""

    def __init__(self, plan_path: str, root: str | None = None) -> None:
        self.base = os.path.dirname(os.path.abspath(plan_path))
        self.root = os.path.realpath(root if root is not None else _repository(self.base))

    def resolve(self, path: str, key: str) -> str:
        """The file that ``path`` means, whether it exists or not; refused outside the root."""
        if "\0" in path:
            raise InputError(f"{key} holds a NUL character, which no path can")
        joined = os.path.normpath(os.path.join(self.base, path))
        real = os.path.realpath(joined)
        if os.path.commonpath([real, self.root]) != self.root:
            raise InputError(
                f"{key} {path!r} leads out of {self.root}",
                hint="A plan's paths are relative to its own folder and stay within its "
                "repository; --root FOLDER allows a wider one.",
            )
        return joined

    def exists(self, path: str, key: str) -> bool:
        """Whether there is such a file or folder within the root."""
        try:
            return os.path.exists(self.resolve(path, key))
        except InputError:
            return False


def shown(path: str) -> str:
    """``path`` as a report names it: relative where it is below the working folder, with ``/``."""
    absolute = os.path.abspath(path)
    here = os.getcwd()
    below = absolute == here or absolute.startswith(here.rstrip(os.sep) + os.sep)
    name = os.path.relpath(absolute, here) if below else os.path.normpath(path)
    return name.replace(os.sep, "/")


def _repository(folder: str) -> str:
    """The nearest folder above with ``.git``; ``folder`` itself when there is none."""
    current = folder
    while True:
        if os.path.exists(os.path.join(current, ".git")):
            return current
        parent = os.path.dirname(current)
        if parent == current:
            return folder
        current = parent
