"""The checksum is XXH3-64 as published, for every kind of buffer: tables outlive the library that computes it."""

import pyarrow as pa
import pytest

from tblctl.tableformat.parquet.checksum import checksum, checksum_text

KINDS = [bytes, bytearray, memoryview, pa.py_buffer]


@pytest.mark.parametrize("kind", KINDS)
def test_checksum_is_xxh3_of_the_bytes_in_any_buffer(kind):
    # The first is XXH3's published value for no bytes; tests/data holds tables with others.
    assert checksum(kind(b"")) == 0x2D06800538D394C2
    assert checksum(kind(b"abc")) == 0x78AF5F94892F3950


def test_checksum_text_has_sixteen_digits_zeros_in_front():
    texts = [checksum_text(bytes([low, high])) for low in range(256) for high in range(8)]
    assert {len(text) for text in texts} == {16}
    assert any(text.startswith("0") for text in texts)
    assert [int(text, 16) for text in texts[:2]] == [checksum(b"\0\0"), checksum(b"\0\1")]
