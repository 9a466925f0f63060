from __future__ import annotations

import datetime
import decimal
import json
import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tblctl.tableformat.errors import InvalidKeyError
from tblctl.tableformat.model.cluster_key import Sort, Term, parse_terms, term_to_text
from tblctl.tableformat.model.schema.schema import Schema, parse_schema
from tblctl.tableformat.model.schema.types import type_from_text
from tblctl.tableformat.model.term_values import monotonic, term_type, transform_array

SCHEMA = Schema.create(
    parse_schema(
        'a: int64, "odd name": string, s: struct<y: timestamp[ns, tz=UTC], year: int8>, l: list<int8>, d: date, '
        "f: float64, u: uint64, w: decimal(40,2), b: bool, m: map<string, int8>, n: null, desc: int8, "
        "c: dictionary<int8, string>, x: fixed_size_binary[4], q: decimal(38, 2)"
    )
)


def values(transform, data, data_type):
    array = data if isinstance(data, pa.Array) else pa.array(data, data_type)
    return transform_array(Term(column_id=1, transform=transform), array, data_type)


def counts(transform, numbers, data_type):
    """Give time values as their counts, and read times back as counts."""
    width = pa.int32() if data_type.bit_width == 32 else pa.int64()
    result = values(transform, pa.array(numbers, width).cast(data_type), data_type)
    return (result.cast(pa.int32()) if pa.types.is_date(result.type) else result).to_pylist()


class TestTexts:
    def test_terms_are_read_as_people_write_them(self):
        terms = parse_terms(
            'a, YEAR(s.y) DESC nulls first, truncate(4, "odd name") asc, bucket( 16 , a ) nulls last, s.year, '
            "desc desc",
            SCHEMA,
        )
        assert [(one.transform, one.descending, one.nulls_first) for one in terms] == [
            ("identity", False, False),
            ("year", True, True),
            ("truncate[4]", False, False),
            ("bucket[16]", False, False),
            ("identity", False, False),
            ("identity", True, False),
        ]
        texts = [term_to_text(term, SCHEMA) for term in terms]
        assert texts == [
            "a",
            "year(s.y) desc nulls first",
            'truncate(4, "odd name")',
            "bucket(16, a)",
            "s.year",
            "desc desc",
        ]
        assert parse_terms(texts, SCHEMA) == terms
        assert parse_terms(", ".join(texts), SCHEMA) == terms

    @pytest.mark.parametrize(
        ("text", "position", "words"),
        [
            ("", 0, "expected a column's name"),
            ("a,", 2, "expected a column's name"),
            ("a, zz", 3, "no column 'zz'"),
            ("a, s", 3, "is a struct"),
            ("a, a desc", 3, "given twice"),
            ("l", 0, "'l' of type list<int8> has no order"),
            ("m", 0, "has no order"),
            ("n", 0, "has no order"),
            ("a, age(d)", 3, "'age' is not a transform"),
            ("hilbrt(a, d)", 0, "did you mean hilbert\\?"),
            ("qdtre(file:x)", 0, "did you mean qdtree\\?"),
            ("bukcet(3, a)", 0, "did you mean bucket\\?"),
            ("year(a)", 0, "year cannot be taken of column 'a' of type int64"),
            ("hour(d)", 0, "hour cannot be taken"),
            ("truncate(a, 4)", 9, "whole number"),
            ("truncate(0, a)", 9, "whole number"),
            ("truncate(4, x)", 0, "truncate cannot be taken"),
            ("bucket(4, f)", 0, "bucket cannot be taken"),
            ("bucket(4, b)", 0, "bucket cannot be taken"),
            ("bucket(4, u)", 0, "bucket cannot be taken"),
            ("truncate(4, w)", 0, "decimal256"),
            ("bucket(4)", 8, "expected ,"),
            ("a desc nulls", 12, "first or last"),
            ("a up", 2, "nothing more"),
            ('"odd', 0, "never closed"),
            ("year(d", 6, r"expected \)"),
        ],
    )
    def test_wrong_term_is_refused_by_name_and_position(self, text, position, words):
        with pytest.raises(InvalidKeyError, match=words) as caught:
            parse_terms(text, SCHEMA)
        assert caught.value.details["position"] == position

    def test_term_of_a_column_that_is_gone_says_so(self):
        with pytest.raises(InvalidKeyError, match="column id 99"):
            term_to_text(Term(column_id=99), SCHEMA)


class TestStored:
    SORT = Sort(
        id=3, terms=parse_terms("year(d) desc, bucket(4, a) nulls first", SCHEMA), parameters=(("k", 1),)
    )

    def test_sort_comes_back_from_json(self):
        stored = json.loads(json.dumps(self.SORT.to_json()))
        assert stored == {
            "id": 3,
            "kind": "linear",
            "terms": [
                {"column_id": 8, "transform": "year", "descending": True, "nulls_first": False},
                {"column_id": 1, "transform": "bucket[4]", "descending": False, "nulls_first": True},
            ],
            "parameters": {"k": 1},
        }
        assert Sort.from_json(stored) == self.SORT

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda v: v.update(id="3"), r"sort\.id"),
            (lambda v: v.update(id=0), "id from 1"),
            (lambda v: v.update(kind=5), "kind: expected a kind that a table stores, got 5"),
            (lambda v: v.update(kind="listed"), "kind: expected a kind that a table stores"),
            (lambda v: v.update(terms=[]), "at least one term"),
            (lambda v: v.update(terms=5), "array of terms"),
            (lambda v: v.update(more=5), "an object of"),
            (lambda v: v.pop("kind"), "an object of"),
            (lambda v: v["terms"].append(None), r"terms\[2\]"),
            (lambda v: v["terms"][0].update(column_id=True), "column_id"),
            (lambda v: v["terms"][0].update(descending=0), "descending"),
            (lambda v: v["terms"][0].update(transform="week"), "is not a transform"),
            (lambda v: v["terms"][0].update(transform="bucket[0]"), "is not a transform"),
            (lambda v: v["terms"][0].update(transform="bucket[99999999999]"), "is not a transform"),
            (lambda v: v["terms"][0].update(transform="year\n"), "is not a transform"),
        ],
    )
    def test_malformed_sort_is_refused(self, change, words):
        stored = self.SORT.to_json()
        change(stored)
        with pytest.raises(ValueError, match=words):
            Sort.from_json(stored)


class TestTransforms:
    """Expected numbers are of the Iceberg specification, Appendix B, or follow from its definitions."""

    def test_dates_before_1970_belong_to_their_own_year(self):
        dates = [datetime.date(1970, 1, 1), datetime.date(1969, 12, 31), datetime.date(1968, 12, 31), None]
        for data_type in (pa.date32(), pa.date64()):
            assert values("year", dates, data_type).to_pylist() == [0, -1, -2, None]
            assert values("month", dates, data_type).to_pylist() == [0, -1, -13, None]
            assert values("day", dates, data_type).to_pylist() == dates

    @pytest.mark.parametrize("zone", [None, "UTC", "Europe/Paris", "-08:00"])
    @pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
    def test_instants_just_before_1970_are_rounded_down_whatever_unit_and_zone(self, unit, zone):
        data_type = pa.timestamp(unit, zone)
        instants = [-1, 0, None]
        assert counts("year", instants, data_type) == [-1, 0, None]
        assert counts("month", instants, data_type) == [-1, 0, None]
        assert counts("day", instants, data_type) == [-1, 0, None]
        assert counts("hour", instants, data_type) == [-1, 0, None]

    @pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
    @pytest.mark.parametrize("transform", ["year", "month", "day", "hour"])
    def test_order_holds_to_the_ends_of_the_type(self, unit, transform):
        instants = [-(2**63), -(2**62), -1, 0, 1, 2**62, 2**63 - 1]
        result = counts(transform, instants, pa.timestamp(unit))
        assert None not in result
        assert result == sorted(result)

    @pytest.mark.parametrize("transform", ["year", "month", "day"])
    def test_order_holds_to_the_ends_of_dates(self, transform):
        result = counts(transform, [-(2**31), -(10**8), 0, 10**8, 2**31 - 1], pa.date32())
        assert None not in result
        assert result == sorted(result)

    @given(
        st.sampled_from(["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "date32"]),
        st.integers(1, 2**31 - 1),
        st.data(),
    )
    def test_truncate_keeps_order_and_rounds_down(self, name, width, data):
        data_type = type_from_text(name)
        if pa.types.is_date(data_type):
            data_type = pa.int32()
        bits = data_type.bit_width
        low, high = (0, 2**bits - 1) if name.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        numbers = sorted([*data.draw(st.lists(st.integers(low, high), min_size=1)), low, high])
        result = values(f"truncate[{width}]", numbers, data_type)
        found = result.to_pylist()
        least = -(2 ** (result.type.bit_width - 1))
        assert found == [max(number - number % width, least) for number in numbers]
        assert found == sorted(found)

    @given(
        st.integers(1, 10**9),
        st.lists(st.integers(-(10**38) + 1, 10**38 - 1), min_size=1),
        st.integers(0, 38),
    )
    def test_truncate_of_decimals_works_on_the_unscaled_value(self, width, numbers, scale):
        data_type = pa.decimal128(38, scale)

        def of(unscaled):
            digits = tuple(int(digit) for digit in str(abs(unscaled)))
            return decimal.Decimal((int(unscaled < 0), digits, -scale))

        result = values(f"truncate[{width}]", [of(number) for number in numbers], data_type).to_pylist()
        assert result == [of(max(number - number % width, -(10**38) + 1)) for number in numbers]

    def test_truncate_of_decimals_may_need_one_more_digit(self):
        result = values("truncate[50]", [decimal.Decimal("-999.99"), None], pa.decimal32(5, 2))
        assert result.to_pylist() == [decimal.Decimal("-1000.00"), None]

    @pytest.mark.parametrize("name", ["string", "large_string", "string_view"])
    def test_text_is_truncated_by_code_points(self, name):
        result = values("truncate[2]", ["é😀xyz", "a", "", None, "日本語"], type_from_text(name))
        assert result.to_pylist() == ["é😀", "a", "", None, "日本"]

    @pytest.mark.parametrize("name", ["binary", "large_binary", "binary_view"])
    def test_binary_is_truncated_by_bytes(self, name):
        result = values("truncate[2]", [b"\0\1\2", b"a", None], type_from_text(name))
        assert result.to_pylist() == [b"\0\1", b"a", None]

    @pytest.mark.parametrize(
        ("name", "value", "hashed"),
        [  # Iceberg specification, Appendix B: 32-bit hash of single values
            ("int8", 34, 2017239379),
            ("int16", 34, 2017239379),
            ("int32", 34, 2017239379),
            ("int64", 34, 2017239379),
            ("uint8", 34, 2017239379),
            ("uint32", 34, 2017239379),
            ("decimal128(9, 2)", decimal.Decimal("14.20"), -500754589),
            ("decimal64(9, 2)", decimal.Decimal("14.20"), -500754589),
            ("date32", datetime.date(2017, 11, 16), -653330422),
            ("date64", datetime.date(2017, 11, 16), -653330422),
            ("time64[us]", datetime.time(22, 31, 8), -662762989),
            ("time64[ns]", datetime.time(22, 31, 8), -662762989),
            ("time32[s]", datetime.time(22, 31, 8), -662762989),
            ("timestamp[us]", datetime.datetime(2017, 11, 16, 22, 31, 8), -2047944441),
            ("timestamp[s]", datetime.datetime(2017, 11, 16, 22, 31, 8), -2047944441),
            ("timestamp[ms]", datetime.datetime(2017, 11, 16, 22, 31, 8), -2047944441),
            ("timestamp[ns]", datetime.datetime(2017, 11, 16, 22, 31, 8), -2047944441),
            (
                "timestamp[us, tz=Europe/Paris]",
                datetime.datetime(2017, 11, 16, 22, 31, 8, tzinfo=datetime.UTC),
                -2047944441,
            ),
            ("string", "iceberg", 1210000089),
            ("large_string", "iceberg", 1210000089),
            ("string_view", "iceberg", 1210000089),
            ("binary", b"\0\1\2\3", -188683207),
            ("large_binary", b"\0\1\2\3", -188683207),
            ("fixed_size_binary[4]", b"\0\1\2\3", -188683207),
        ],
    )
    def test_buckets_are_of_icebergs_hash_for_every_type(self, name, value, hashed):
        buckets = 1_000_003
        result = values(f"bucket[{buckets}]", [value, None], type_from_text(name))
        assert result.to_pylist() == [(hashed & (2**31 - 1)) % buckets, None]

    def test_dictionaries_are_decoded(self):
        array = pa.array(["abc", None, "abd", "abc"]).dictionary_encode()
        for transform, expected in (
            ("truncate[1]", ["a", None, "a", "a"]),
            ("identity", ["abc", None, "abd", "abc"]),
        ):
            assert values(transform, array, array.type).to_pylist() == expected

    @pytest.mark.parametrize(
        "text", ["a", "year(d)", "day(s.y)", "truncate(2, c)", "bucket(9, x)", "truncate(3, q)", "f"]
    )
    def test_result_has_the_stated_type_also_when_empty_sliced_or_all_null(self, text):
        (term,) = parse_terms(text, SCHEMA)
        leaf = SCHEMA.leaf_by_id(term.column_id)
        for array in (pa.array([], leaf.type), pa.nulls(3, leaf.type), pa.nulls(5, leaf.type).slice(2, 2)):
            result = transform_array(term, array, leaf.type)
            assert result.type == term_type(term, SCHEMA)
            assert len(result) == len(array) == result.null_count

    def test_slices_give_the_values_of_their_own_rows(self):
        array = pa.array([10, 21, None, 43, 54]).slice(1, 3)
        assert values("truncate[10]", array, pa.int64()).to_pylist() == [20, None, 40]

    def test_only_bucket_is_not_monotonic(self):
        texts = ["a", "year(d)", "month(d)", "day(d)", "hour(s.y)", "truncate(3, a)"]
        assert all(monotonic(term) for term in parse_terms(texts, SCHEMA))
        assert not monotonic(parse_terms("bucket(3, a)", SCHEMA)[0])


def test_pyiceberg_is_only_imported_where_values_are_transformed():
    code = (
        "import sys, pyarrow as pa\n"
        "from tblctl.tableformat.model import cluster_key, options, term_values\n"
        "from tblctl.tableformat.model.schema import schema\n"
        "s = schema.Schema.create(schema.parse_schema('a: int64'))\n"
        "terms = cluster_key.parse_terms('a, bucket(4, a)', s)\n"
        "term_values.transform_array(terms[0], pa.array([1]), pa.int64())\n"
        "bad = [m for m in sys.modules if m.startswith(('pyiceberg', 'pyarrow.dataset'))]\n"
        "assert not bad, bad\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_values_that_lie_anywhere_in_memory_are_transformed():
    """Arrow aligns what it writes to files at 8 bytes; the kernels end the process where they want 16."""
    numbers = pa.array([decimal.Decimal(number) for number in range(100)], pa.decimal128(15, 2))
    content = numbers.buffers()[1].to_pybytes()
    moved = [
        pa.Array.from_buffers(
            numbers.type, 100, [None, pa.py_buffer(bytes(shift) + content).slice(shift)], null_count=0
        )
        for shift in (0, 8)
    ]
    assert {one.buffers()[1].address % 16 for one in moved} == {0, 8}
    aligned, other = (values("bucket[16]", one, numbers.type) for one in moved)
    assert aligned.equals(other)
