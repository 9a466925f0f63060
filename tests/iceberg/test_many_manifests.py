"""Many manifests, and manifests of many columns: decoded in their order, and held no longer than needed."""

from __future__ import annotations

import dataclasses
import random

import pytest

from tblctl.tableformat.iceberg import entries as entries_module
from tblctl.tableformat.iceberg.entries import read_entries

from .manifest_files import records_of, repacked, source_of, written
from .test_manifests import COLUMN_IDS, SCHEMA, UNPARTITIONED, as_rows, by_pyiceberg, entry, read


class Held(bytes):
    """The content of a manifest, which counts how many there are."""

    alive = most = 0

    def __new__(cls, data):
        cls.alive += 1
        cls.most = max(cls.most, cls.alive)
        return super().__new__(cls, data)

    def __del__(self):
        Held.alive -= 1


def test_manifests_are_let_go_of_once_they_are_decoded():
    manifest = written([entry(i) for i in range(3)], schema=SCHEMA, spec=UNPARTITIONED)
    source = source_of(*manifest)
    decoded = read_entries(dataclasses.replace(source, data=Held(source.data)) for _ in range(40))
    assert len(decoded.entries) == 120
    assert Held.most <= 2


@pytest.mark.parametrize("joined", [1, 2, 5, 100])
def test_entries_keep_their_order_however_they_are_joined(joined, monkeypatch):
    monkeypatch.setattr(entries_module, "_JOINED_ENTRIES", joined)
    several = [
        written([entry(i)] * (1 + i % 3), schema=SCHEMA, spec=UNPARTITIONED, version=1 + i % 2)
        for i in range(9)
    ]
    decoded = read_entries([source_of(*manifest) for manifest in several], COLUMN_IDS)
    assert as_rows(decoded) == [row for manifest in several for row in by_pyiceberg(*manifest)]
    assert decoded.entries.manifest.tolist() == [i for i in range(9) for _ in range(1 + i % 3)]


@pytest.mark.parametrize("seed", range(6))
def test_maps_of_many_columns_are_read_whatever_part_of_them_is_alike(seed):
    rng = random.Random(seed)
    texts = {id_ for id_ in range(1, 700) if rng.random() < (0, 0.02, 0.1, 0.5, 1)[seed % 5]}
    missing = 0.02 if seed % 2 else 0.0

    def some(value):
        return {id_: value(id_) for id_ in range(1, 700) if rng.random() >= missing}

    def bound(id_):
        return rng.randbytes(rng.randrange(90) if id_ in texts else 4 + 4 * (id_ % 2))

    entries = [
        entry(i, null_value_counts=some(rng.randrange), lower_bounds=some(bound), upper_bounds=some(bound))
        for i in range(rng.choice((2, 30)))
    ]
    manifest = written(entries, schema=SCHEMA, spec=UNPARTITIONED)
    schema, records = records_of(manifest[0])
    for columns in ((), (1, 2, 64, 200, 699), tuple(range(1, 800, 3))):
        data = repacked(schema, records, sizes=[1, 7])
        assert as_rows(read(data, manifest[1], columns)) == by_pyiceberg(*manifest, columns)
