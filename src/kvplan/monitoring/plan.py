"""The plan that a running server is compared with: the figures of `fit`, or of its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kvplan.errors import MalformedFile

if TYPE_CHECKING:
    from kvplan.planning.report import FitReport

_SCHEMA = "kvplan.fit/"


class Plan(NamedTuple):
    """What the plan says the server should look like; bytes are per GPU."""

    model: str
    gpu: str
    engine: str
    engine_version: str | None
    kv_cache_dtype: str
    seq_len: int
    batch: int
    replicas: int
    gpus: int
    verdict: str
    device_bytes: int | None
    usable_bytes: int | None
    claim_bytes: int | None
    weight_bytes: int | None
    pool_bytes: int | None
    pool_blocks: int | None
    pool_tokens: int | None
    pool_low_bytes: int | None
    """The pool where every measured term takes the careful end of its range."""
    pool_high_bytes: int | None
    max_batch: int
    options: tuple[tuple[str, int], ...]
    """Changes that would make it fit, with the batch each holds."""
    formats: tuple[tuple[str, int], ...]
    """KV formats, mildest first, with the batch each holds at this context."""
    flags: tuple[str, ...]

    def words(self) -> str:
        """The plan in one line."""
        return (
            f"{self.model} on {self.gpus} x {self.gpu}, {self.kv_cache_dtype} KV cache, "
            f"{self.batch:,} x {self.seq_len:,} tokens"
        )

    def tolerated(self, figure: int, drift: float) -> tuple[int, int]:
        """The range of ``figure``, a count that grows with the pool, that is still this plan.

        ``drift`` on each side, or the plan's own measured range where that is wider.
        """
        low, high = 1 - drift, 1 + drift
        if self.pool_bytes and self.pool_low_bytes is not None and self.pool_high_bytes is not None:
            low = min(low, self.pool_low_bytes / self.pool_bytes)
            high = max(high, self.pool_high_bytes / self.pool_bytes)
        return max(0, int(figure * low)), int(-(-figure * high // 1))

    def batch_of(self, kv_format: str) -> int | None:
        """The batch that a KV format holds at this context; None where the plan does not say."""
        return dict(self.formats).get(kv_format)


def plan_from_report(report: FitReport) -> Plan:
    """The plan of a report just made."""
    from kvplan.reports.json_report import as_document

    return plan_from_document(as_document(report), "the report")


def read_plan(path: str) -> Plan:
    """The plan in a file that ``kvplan fit --format json`` wrote."""
    from kvplan.files import read_json_object

    return plan_from_document(read_json_object(path), path)


def plan_from_document(document: Mapping[str, Any], where: str) -> Plan:
    """The plan in a document of `fit`, every figure checked."""
    schema = document.get("schema")
    if not (isinstance(schema, str) and schema.startswith(_SCHEMA)):
        raise MalformedFile(
            where,
            f"is not a plan: schema is {schema!r}",
            hint="Write one with: kvplan fit MODEL --gpu GPU --format json --output plan.json",
        )
    read = _Reader(document, where)
    pool, terms = read.whole("memory", "kv_pool_bytes"), _terms(read)
    contexts = read.items("matrix", "contexts")
    seq_len = read.needed("deployment", "seq_len")
    column = contexts.index(seq_len) if seq_len in contexts else None
    return Plan(
        model=read.text("deployment", "model"),
        gpu=read.text("deployment", "gpu"),
        engine=read.text("deployment", "engine"),
        engine_version=read.text_or_none("deployment", "engine_version"),
        kv_cache_dtype=read.text("deployment", "kv_cache_dtype"),
        seq_len=seq_len,
        batch=read.needed("deployment", "batch"),
        replicas=read.needed("deployment", "dp"),
        gpus=read.needed("deployment", "gpu_count"),
        verdict=read.text("verdict"),
        device_bytes=read.whole("memory", "device_bytes"),
        usable_bytes=read.whole("memory", "usable_bytes"),
        claim_bytes=read.whole("memory", "claim_bytes"),
        weight_bytes=read.whole("memory", "weight_bytes"),
        pool_bytes=pool,
        pool_blocks=read.whole("kv_cache", "pool_blocks"),
        pool_tokens=read.whole("kv_cache", "pool_tokens"),
        pool_low_bytes=None if pool is None else max(0, pool - sum(h - y for _, y, h in terms)),
        pool_high_bytes=None if pool is None else pool + sum(y - low for low, y, _ in terms),
        max_batch=read.needed("limits", "max_batch"),
        options=tuple(
            (_Reader(option, where).text("change"), _Reader(option, where).needed("max_batch"))
            for option in read.objects("options")
        ),
        formats=() if column is None else _formats(read, column),
        flags=tuple(str(flag) for flag in read.items("flags")),
    )


def _terms(read: _Reader) -> list[tuple[int, int, int]]:
    """Low, likely and high of the terms that the pool is what they leave of the claim."""
    found = []
    for entry in read.objects("memory", "terms"):
        term = _Reader(entry, read.where)
        if entry.get("in_claim", True):
            names = ("low_bytes", "likely_bytes", "high_bytes")
            low, likely, high = (term.needed(name) for name in names)
            found.append((low, likely, high))
    return found


def _formats(read: _Reader, column: int) -> tuple[tuple[str, int], ...]:
    found = []
    for entry in read.objects("matrix", "rows"):
        row = _Reader(entry, read.where)
        batches = row.items("max_batch")
        if column < len(batches) and isinstance(batches[column], int):
            found.append((row.text("kv_cache_dtype"), batches[column]))
    return tuple(found)


class _Reader:
    """Values of a document by their path, refused where they are not what they should be."""

    def __init__(self, document: Mapping[str, Any], where: str) -> None:
        self._document = document
        self.where = where

    def _at(self, path: tuple[str, ...]) -> Any:
        node: Any = self._document
        for key in path:
            if not isinstance(node, Mapping):
                raise MalformedFile(self.where, f"{'.'.join(path)} is missing")
            node = node.get(key)
        return node

    def whole(self, *path: str) -> int | None:
        value = self._at(path)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise MalformedFile(self.where, f"{'.'.join(path)} is {value!r}, not a whole number")
        return value

    def needed(self, *path: str) -> int:
        value = self.whole(*path)
        if value is None:
            raise MalformedFile(self.where, f"{'.'.join(path)} is missing")
        return value

    def text_or_none(self, *path: str) -> str | None:
        value = self._at(path)
        if value is not None and not isinstance(value, str):
            raise MalformedFile(self.where, f"{'.'.join(path)} is {value!r}, not text")
        return value

    def text(self, *path: str) -> str:
        value = self.text_or_none(*path)
        if value is None:
            raise MalformedFile(self.where, f"{'.'.join(path)} is missing")
        return value

    def items(self, *path: str) -> list[Any]:
        value = self._at(path)
        if value is None:
            return []
        if not isinstance(value, list):
            raise MalformedFile(self.where, f"{'.'.join(path)} is not a list")
        return value

    def objects(self, *path: str) -> list[Mapping[str, Any]]:
        return [item for item in self.items(*path) if isinstance(item, Mapping)]
