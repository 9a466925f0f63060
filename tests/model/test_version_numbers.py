"""Which texts may be the number of a version."""

from __future__ import annotations

import pytest

from tblctl.as_of import number_or_text
from tblctl.tableformat.model.version_numbers import is_version_number


@pytest.mark.parametrize("text", ["0", "7", "007", str(2**63 - 1)])
def test_digits_are_a_version(text: str) -> None:
    assert is_version_number(text)
    assert number_or_text(text) == int(text)


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", " 1", "1_0", "1.0", "\u0663", "\u00b2", "tag", "9" * 20, "9" * 5000]
)
def test_other_texts_and_longer_numbers_are_names(text: str) -> None:
    assert not is_version_number(text)
    assert number_or_text(text) == text
