from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tblctl.tableformat.errors import InvalidOptionError
from tblctl.tableformat.model.options import (
    OPTION_DOCS,
    TableOptions,
    parse_duration,
    parse_size,
    record_rate,
)


def test_defaults_are_those_of_the_format():
    assert TableOptions().to_json() == {
        "block_rows": 1_000_000,
        "block_bytes": 134_217_728,
        "row_group_rows": 32_768,
        "compression": "zstd",
        "compression_level": 1,
        "sort_scope": "append",
        "memory_bytes": 1_073_741_824,
        "recluster.mode": "off",
        "recluster.every": 1,
        "recluster.policy": None,
        "recluster.record": "off",
        "recluster.record_literals": "full",
    }


def test_a_profile_sets_several_options_but_not_those_given_beside_it():
    small = TableOptions.from_mapping({"write.profile": "small", "row_group_rows": 9})
    assert (small.compression, small.compression_level, small.row_group_rows) == ("zstd", 9, 9)
    assert (
        TableOptions.from_mapping({"compression_level": 5, "write.profile": "small"}).compression_level == 5
    )
    fast = small.updated({"write.profile": "fast"})
    assert (fast.compression, fast.compression_level, fast.row_group_rows) == ("snappy", None, 9)
    assert "write.profile" not in fast.to_json(), "what it set is kept, so that it means the same for ever"
    with pytest.raises(InvalidOptionError, match=r"write\.profile: expected fast or small, got 'tiny'"):
        small.updated({"write.profile": "tiny"})
    with pytest.raises(InvalidOptionError, match=r"did you mean write\.profile\?"):
        small.updated({"write.profil": "fast"})


def test_recluster_auto_is_another_word_for_inline_and_off():
    assert TableOptions.from_mapping({"recluster.auto": "TRUE"}).recluster_mode == "inline"
    assert TableOptions.from_mapping({"recluster.auto": True, "recluster.every": 3}).recluster_every == 3
    scheduled = TableOptions.from_mapping({"recluster.mode": "schedule"})
    assert scheduled.updated({"recluster.auto": False}).recluster_mode == "off"
    assert TableOptions.from_mapping({"recluster.auto": True, "recluster.mode": "Inline"}) == (
        TableOptions.from_mapping({"recluster.mode": "inline"})
    )
    with pytest.raises(InvalidOptionError, match="expected true or false, got 'maybe'"):
        TableOptions.from_mapping({"recluster.auto": "maybe"})
    with pytest.raises(InvalidOptionError, match=r"recluster\.auto: expected true or false, got 1"):
        TableOptions.from_mapping({"recluster.auto": 1})
    with pytest.raises(InvalidOptionError, match=r"auto means recluster\.mode=inline, yet"):
        TableOptions.from_mapping({"recluster.auto": True, "recluster.mode": "async"})


def test_an_unknown_mode_names_the_nearest():
    with pytest.raises(
        InvalidOptionError, match=r"off or inline or async or schedule, got 'asinc'; did you mean async\?"
    ):
        TableOptions.from_mapping({"recluster.mode": "asinc"})


def test_a_number_of_commits_without_a_mode_is_refused_unless_the_mode_is_off_on_purpose():
    with pytest.raises(
        InvalidOptionError, match=r"no effect while recluster\.mode is off: set recluster\.mode"
    ):
        TableOptions.from_mapping({"recluster.every": 5})
    with pytest.raises(InvalidOptionError, match=r"recluster\.every: expected a whole number from 1"):
        TableOptions.from_mapping({"recluster.every": 0, "recluster.mode": "inline"})
    off = TableOptions.from_mapping({"recluster.every": 5, "recluster.mode": "off"})
    inline = off.updated({"recluster.mode": "inline"})
    assert (off.recluster_every, inline.recluster_every) == (5, 5)
    assert inline.updated({"recluster.every": "7"}).recluster_every == 7


def test_stored_options_come_back():
    options = TableOptions.from_mapping(
        {"block_rows": "500_000", "compression": "lz4", "memory_bytes": "2GiB"}
    )
    assert TableOptions.from_mapping(json.loads(json.dumps(options.to_json()))) == options
    assert options.block_rows == 500_000
    assert options.memory_bytes == 2**31


def test_every_problem_is_listed_at_once():
    with pytest.raises(InvalidOptionError) as caught:
        TableOptions.from_mapping(
            {
                "blok_rows": 1,
                "block_rows": "many",
                "compression": "zip",
                "sort_scope": "none",
                "memory_bytes": "1",
                "": 2,
            }
        )
    assert len(caught.value.details["problems"]) == 6
    text = str(caught.value)
    for words in (
        "did you mean block_rows",
        "got 'many'",
        "expected zstd or",
        "append or block",
        "from 1048576",
        "''",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"block_rows": 0}, "from 1"),
        ({"block_rows": -5}, "from 1"),
        ({"block_rows": True}, "whole number"),
        ({"block_rows": 1.5}, "whole number"),
        ({"block_rows": None}, "whole number"),
        ({"block_bytes": "12 parsecs"}, "is not a size"),
        ({"block_bytes": 2**60}, "from 1 to"),
        ({"compression_level": 23}, "zstd has levels 1 to 22"),
        ({"compression": "snappy", "compression_level": 1}, "snappy has no levels"),
        ({"compression": 5}, "expected zstd or"),
        ({"compression_level": "fast"}, "whole number"),
        ([("block_rows", 1)], "options by name"),
    ],
)
def test_wrong_value_is_refused(values, words):
    with pytest.raises(InvalidOptionError, match=words):
        TableOptions.from_mapping(values)


def test_another_codec_takes_its_own_default_level():
    assert TableOptions.from_mapping({"compression": "snappy"}).compression_level is None
    assert (
        TableOptions.from_mapping({"compression": "gzip"}).updated({"compression": "zstd"}).compression_level
        == 1
    )
    changed = TableOptions().updated({"compression": "zstd", "compression_level": "none"})
    assert changed.compression_level is None


def test_every_codec_is_one_that_pyarrow_writes(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    for codec in ("zstd", "gzip", "brotli", "snappy", "lz4", "none"):
        options = TableOptions.from_mapping({"compression": codec})
        pq.write_table(
            pa.table({"a": [1]}),
            tmp_path / codec,
            compression=options.compression,
            compression_level=options.compression_level,
        )


@pytest.mark.parametrize(
    ("text", "rate"), [("off", 0.0), ("ON", 1.0), ("sample:0.1", 0.1), ("sample:1", 1.0)]
)
def test_record_is_a_share_of_the_scans(text, rate):
    options = TableOptions.from_mapping({"recluster.record": text, "recluster.record_literals": "rounded"})
    assert record_rate(options.recluster_record) == rate
    assert options.recluster_record_literals == "rounded"


@pytest.mark.parametrize(
    "text", ["", "yes", "sample", "sample:", "sample:0", "sample:0.0", "sample:1.5", "sample:-1", "0.1"]
)
def test_record_refuses_what_is_no_share(text):
    with pytest.raises(
        InvalidOptionError, match=r"recluster\.record: expected off, on or sample: and a share"
    ):
        TableOptions.from_mapping({"recluster.record": text})


def test_every_option_is_documented_with_its_default():
    assert set(OPTION_DOCS) == {*TableOptions().to_json(), "write.profile", "recluster.auto"}
    assert all(doc.endswith(")") for doc in OPTION_DOCS.values())


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1048576", 2**20),
        ("500MB", 500_000_000),
        ("2GiB", 2**31),
        ("1.5g", 3 * 2**29),
        (" 64 KiB ", 2**16),
        ("0", 0),
        ("3b", 3),
    ],
)
def test_sizes_are_read(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "2XB", "1e9", "1 2", "٣x"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(InvalidOptionError, match="is no"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0.0), ("90s", 90.0), ("30m", 1800.0), ("24h", 86400.0), ("7d", 604800.0), ("1.5H", 5400.0)],
)
def test_durations_are_read(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "h", "-1h", "1y", "1h30m", "0.5"])
def test_a_duration_needs_a_number_and_a_unit(text):
    with pytest.raises(InvalidOptionError, match=r"is not a duration|has no unit; write"):
        parse_duration(text)


@given(st.text())
def test_any_text_is_a_size_or_refused(text):
    for parse in (parse_size, parse_duration):
        try:
            quantity = parse(text)
        except InvalidOptionError:
            continue
        assert quantity >= 0
