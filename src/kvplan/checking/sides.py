"""What a person names as BASE or HEAD → a check of it: a plan, a report, or a git revision."""

from __future__ import annotations

import os

from kvplan.checking.baseline import read_baseline
from kvplan.checking.difference import Side
from kvplan.checking.revisions import NotInRevision, open_repository
from kvplan.checking.run import DEFAULT_FILE, check, report_of


def side_of(ref: str, *, file: str | None, policy: str | None, root: str | None) -> Side:
    """The side that ``ref`` means: a file where there is one, else a revision of ``file``.

    With ``file`` given it is always a revision, so that a branch may have the name of a file.
    """
    if file is None and (os.path.exists(ref) or ref.lower().endswith((".json", ".yaml", ".yml"))):
        if ref.lower().endswith(".json"):
            return Side(ref, read_baseline(ref))
        return Side(ref, check([ref], policy=policy, root=root))
    return _revision(ref, file or DEFAULT_FILE, policy)


def is_empty(side: Side) -> bool:
    """Whether the revision had no plan at all."""
    return not side.report.files


def _revision(ref: str, file: str, policy: str | None) -> Side:
    repository = open_repository(file)
    commit = repository.commit(ref)
    try:
        with repository.laid_out(commit, file) as path:
            folder = path[: len(path) - len(repository.inner(file))]
            return Side(ref, check([path], policy=policy), folder)
    except NotInRevision:
        return Side(ref, report_of([], "error"))
