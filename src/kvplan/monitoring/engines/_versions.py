"""Versions of engines whose names are known for one series only."""

from __future__ import annotations

from kvplan.errors import UnsupportedCombination


def series_only(engine: str, version: str | None, series: str, read: str) -> tuple[str, ...]:
    """A note where the version is not the one whose names were read; another series is refused."""
    if version is None or version.removeprefix("v") == read:
        return ()
    plain = version.removeprefix("v")
    if plain != series and not plain.startswith(f"{series}."):
        raise UnsupportedCombination(
            f"--engine {engine}@{version}: kvplan knows the metric names of {engine} {read}",
            hint=f"Use --engine {engine}@{read}, and compare the names with your /metrics page.",
        )
    return (f"Names were read in {read}; those of {version} are taken to be the same.",)


def no_version(engine: str, version: str | None, read: str) -> None:
    """Refuse a version where none but the one read is known."""
    if version is not None:
        raise UnsupportedCombination(
            f"--engine {engine}@{version}: kvplan knows the metric names of {engine} as of {read}",
            hint=f"Leave the version out: --engine {engine}.",
        )
