"""Plans as they stand in a git revision, read through ``git`` without touching the work tree.

What a plan names beside itself (a config.json, a manifest, a policy) is taken from the same
revision: the plan's files are laid out in a temporary folder as they are in the repository. A
revision's name comes from a command line or a CI variable, so it is resolved to a commit first, and
no word of it can be taken for an option.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from kvplan.errors import InputError, KvplanError, SourceError
from kvplan.files import MAX_DOCUMENT_BYTES

_COMMIT = re.compile(r"[0-9a-f]{40,64}\Z")
_TIMEOUT_S = 60
_MOST_FILES, _MOST_BYTES = 10_000, 256 << 20
_READ = (".json", ".yaml", ".yml")
"""What a plan's files can be; weights are never read out of a repository."""


class NotInRevision(SourceError):
    """The revision has no such file."""


class Repository(NamedTuple):
    """A git repository, by the folder at its top."""

    top: str

    def commit(self, revision: str) -> str:
        """The commit that a branch, tag or id means."""
        if not revision.strip() or revision.startswith("-") or not revision.isprintable():
            raise InputError(f"{revision!r} is not the name of a git revision")
        found = self._git("rev-parse", "--verify", "--quiet", "--end-of-options",
                          f"{revision}^{{commit}}", check=False)  # fmt: skip
        commit = found.stdout.decode("ascii", "replace").strip()
        if found.returncode != 0 or not _COMMIT.match(commit):
            raise InputError(
                f"{revision!r} is neither a file nor a git revision here",
                hint="In CI, fetch the base branch first: a shallow clone has only the head.",
            )
        return commit

    @contextmanager
    def laid_out(self, commit: str, path: str) -> Iterator[str]:
        """The path of a plan in a temporary copy of its revision; gone afterwards.

        Of the revision only YAML and JSON files of a sane size are copied.
        """
        from tempfile import TemporaryDirectory

        inner = self.inner(path)
        files = self._files(commit)
        if inner not in files:
            raise NotInRevision(f"{inner} is not in {commit[:12]}")
        with TemporaryDirectory(prefix="kvplan-") as temporary:
            folder = os.path.realpath(temporary)
            os.mkdir(os.path.join(folder, ".git"))  # marks the root that paths stay below
            for name, data in self._contents(files).items():
                target = os.path.join(folder, *name.split("/"))
                os.makedirs(os.path.dirname(target), exist_ok=True)
                with open(target, "wb") as file:
                    file.write(data)
            yield os.path.join(folder, *inner.split("/"))

    def _contents(self, files: dict[str, str]) -> dict[str, bytes]:
        """The bytes of each file, by one process for all of them."""
        asked = "".join(f"{blob}\n" for blob in files.values()).encode("ascii")
        data = _git(self.top, "cat-file", "--batch", given=asked).stdout
        found, position = {}, 0
        for name in files:
            header = data[position : data.index(b"\n", position)]
            position += len(header) + 1
            size = int(header.rsplit(b" ", 1)[-1])
            found[name] = data[position : position + size]
            position += size + 1
        return found

    def inner(self, path: str) -> str:
        """A path of the work tree as git names it."""
        inner = os.path.relpath(os.path.realpath(os.path.dirname(path) or "."), self.top)
        joined = os.path.normpath(os.path.join(inner, os.path.basename(path)))
        if joined.startswith(".."):
            raise InputError(f"--file {path!r} is outside of the repository {self.top}")
        return joined.replace(os.sep, "/")

    def _files(self, commit: str) -> dict[str, str]:
        """Regular files that a plan may name: path → blob."""
        listed = self._git("ls-tree", "-r", "-z", "-l", "--full-tree", commit).stdout
        found: dict[str, str] = {}
        total = 0
        for entry in listed.decode("utf-8", "surrogateescape").split("\0"):
            facts, tab, name = entry.partition("\t")
            if not tab:
                continue
            mode, kind, blob, size = facts.split()
            if not name.lower().endswith(_READ) or kind != "blob" or not mode.startswith("100"):
                continue
            if ".." in name.split("/") or ".git" in name.split("/"):
                continue
            if size.isdigit() and int(size) <= MAX_DOCUMENT_BYTES:
                found[name] = blob
                total += int(size)
        if len(found) > _MOST_FILES or total > _MOST_BYTES:
            raise InputError(
                f"{commit[:12]} has {len(found):,} YAML and JSON files of {total:,} bytes; at most "
                f"{_MOST_FILES:,} of {_MOST_BYTES:,} bytes are read",
                hint="Compare against a report instead: --baseline report.json",
            )
        return found

    def _git(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
        return _git(self.top, *words, check=check)


def open_repository(path: str) -> Repository:
    """The repository that a file is in."""
    folder = os.path.dirname(os.path.abspath(path))
    found = _git(folder if os.path.isdir(folder) else ".", "rev-parse", "--show-toplevel",
                 check=False)  # fmt: skip
    top = found.stdout.decode("utf-8", "surrogateescape").rstrip("\n")
    if found.returncode != 0 or not top:
        said = found.stderr.decode("utf-8", "replace").strip().splitlines()
        raise InputError(
            f"{path!r} is not in a git repository that git opens"
            + (f": {said[0][:200]}" if said else ""),
            hint="Name two files, or give a report with --baseline.",
        )
    return Repository(os.path.realpath(top))


def _git(
    folder: str, *words: str, check: bool = True, given: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run git without pager, prompts, hooks or a repository's own helpers."""
    command = ["git", "--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null",
               "-C", folder, *words]  # fmt: skip
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0",
                   "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"}  # fmt: skip
    try:
        done = subprocess.run(  # noqa: S603  (a fixed program; words are never options)
            command,
            input=given,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            env=environment,
        )
    except FileNotFoundError:
        raise InputError("git is not installed, which revisions need") from None
    except subprocess.TimeoutExpired:
        raise SourceError(f"git did not answer within {_TIMEOUT_S} s") from None
    if check and done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise _failed(said[-1] if said else f"exit {done.returncode}")
    return done


def _failed(said: str) -> KvplanError:
    return SourceError(f"git failed: {said[:200]}")
