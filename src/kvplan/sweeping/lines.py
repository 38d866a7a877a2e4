"""Rows as lines of text: constant cells are written once into a template of the whole block.

A block has many rows and few columns that differ between neighbours, so a row is one ``%`` on a
template in which everything else already stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kvplan.planning.piece import Coded
from kvplan.sweeping.blocks import Block

_WIDE = 8
"""Batches from which a template for each length pays."""

Encode = Callable[[Any], str]


def block_lines(block: Block, names: Sequence[str], before: Sequence[str], end: str,
                encode: Encode) -> str:  # fmt: skip
    """The rows of a block: ``before`` stands in front of each cell, ``end`` behind the last."""
    by_length = block.columns >= _WIDE
    template: list[str] = []
    lengths: list[list[Any]] = []
    varying: list[Any] = []
    for name, front in zip(names, before, strict=True):
        cell = block.cells[name]
        codes = cell.codes if isinstance(cell, Coded) else cell
        if not isinstance(codes, np.ndarray) or codes.size == 1:
            only = cell
            if isinstance(cell, Coded):
                only = cell.labels[int(cell.codes.flat[0])]
            elif isinstance(cell, np.ndarray):
                only = cell.flat[0]
                only = only.item() if hasattr(only, "item") else only
            template.append(_escaped(front + encode(only), twice=by_length))
            continue
        template.append(_escaped(front, twice=by_length))
        if by_length and codes.shape[1] == 1:
            template.append("%s")
            lengths.append(_plain(cell, encode).ravel().tolist())
            continue
        template.append("%%s" if by_length else "%s")
        varying.append(_plain(cell, encode))
    template.append(_escaped(end, twice=by_length))
    whole = "".join(template)
    if not by_length:
        shape = (block.rows, block.columns)
        return _written(whole, [np.broadcast_to(cell, shape) for cell in varying], block.size)
    return _by_length(whole, lengths, varying, block)


def _by_length(whole: str, lengths: list[list[Any]], varying: list[Any], block: Block) -> str:
    same = [cell.shape[0] == 1 for cell in varying]
    batches = [cell[0].tolist() if one else None for cell, one in zip(varying, same, strict=True)]
    parts = []
    for row, cells in enumerate(zip(*lengths, strict=True) if lengths else [()] * block.rows):
        template = whole % cells
        lists = [
            shared if shared is not None else cell[row].tolist()
            for shared, cell in zip(batches, varying, strict=True)
        ]
        if lists:
            parts.append("".join(map(template.__mod__, zip(*lists, strict=True))))
        else:
            parts.append(template.replace("%%", "%") * block.columns)
    return "".join(parts)


def _written(template: str, cells: list[Any], rows: int) -> str:
    if not cells:
        return (template % ()) * rows
    lists = [cell.ravel().tolist() for cell in cells]
    return "".join(map(template.__mod__, zip(*lists, strict=True)))


def _plain(cell: Any, encode: Encode) -> Any:
    """An array whose elements ``%s`` writes as they should stand: numbers as they are."""
    if isinstance(cell, Coded):
        return Coded(tuple(map(encode, cell.labels)), cell.codes).words()
    if cell.dtype == object or cell.dtype == bool:
        texts = np.empty(cell.shape, dtype=object)
        texts.ravel()[:] = [encode(value) for value in cell.ravel().tolist()]
        return texts
    return cell


def _escaped(text: str, *, twice: bool) -> str:
    return text.replace("%", "%%%%" if twice else "%%")
