"""How one rank's layout turns bytes into blocks and back."""

from __future__ import annotations

from kvplan.engines.base import KvLayout
from kvplan.model.rows import Row

BLOCKS = KvLayout((Row(1000, 16),), block_size=16, block_bytes=1000, held_blocks=1)
BYTES = KvLayout((Row(10), Row(5, cap_tokens=100), Row(0, constant_bytes=7)))


def test_blocks_of_a_sequence() -> None:
    assert [BLOCKS.sequence_blocks(n) for n in (1, 16, 17)] == [1, 1, 2]
    assert BLOCKS.reserved_bytes(17) == 2000


def test_blocks_of_a_pool() -> None:
    assert [BLOCKS.pool_blocks(n) for n in (-5, 0, 999, 1000, 10_999)] == [0, 0, 0, 1, 10]
    # one block is never given out
    assert [BLOCKS.available_bytes(n) for n in (0, 1000, 1999, 10_999)] == [0, 0, 0, 9000]


def test_without_blocks_every_byte_counts() -> None:
    assert BYTES.sequence_blocks(5) is None
    assert BYTES.pool_blocks(1000) is None
    assert (BYTES.available_bytes(1000), BYTES.available_bytes(-1)) == (1000, 0)
    assert BYTES.reserved_bytes(200) == 10 * 200 + 5 * 100 + 7


def test_longest_sequence() -> None:
    assert BLOCKS.longest(2999) == 32  # two whole blocks
    assert BYTES.longest(10 * 200 + 5 * 100 + 7) == 200


def test_prefix_is_shared_in_whole_blocks_of_layers_that_keep_every_token() -> None:
    assert [BLOCKS.shared_bytes(n) for n in (0, 15, 16, 40)] == [0, 0, 1000, 2000]
    assert BYTES.shared_bytes(40) == 400  # neither the window nor the constant
    window = KvLayout((Row(5, cap_tokens=100),))
    assert window.shared_bytes(40) == 0
