"""Which partitions and manifests may hold rows that satisfy a condition.

PyIceberg projects conditions onto partition transforms.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from tblctl.tableformat.iceberg.partitions import Partitions
from tblctl.tableformat.model.schema.types import is_any_binary, is_any_string
from tblctl.tableformat.predicate.nodes import (
    AllOf,
    AnyOf,
    Constant,
    Negation,
    Node,
    Operator,
    Test,
    Truth,
    tests_of,
)

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.manifest import ManifestFile, PartitionFieldSummary
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema as IcebergSchema

_COMPARED = (Operator.LESS, Operator.LESS_EQUAL, Operator.GREATER, Operator.GREATER_EQUAL)


def matching_partitions(
    node: Node, partitions: Partitions, specs: Mapping[int, PartitionSpec], schema: IcebergSchema
) -> np.ndarray:
    """Return which partitions may hold rows for which a condition is true; all, where that cannot be known.

    Args:
        node: the condition, resolved for `schema`.
        partitions: of the table's files.
        specs: the table's specs by id.
        schema: the table's columns.
    """
    from pyiceberg.expressions.visitors import expression_evaluator, inclusive_projection
    from pyiceberg.schema import Schema
    from pyiceberg.typedef import Record

    kept = np.ones(len(partitions.texts), bool)
    if not _names_fit(node, schema):
        return kept
    expression = implied(node, want=True)
    for spec_id in set(partitions.spec_ids):
        spec = specs.get(spec_id)
        if spec is None or not spec.fields:
            continue
        try:
            projected = inclusive_projection(schema, spec)(expression)
            is_kept = expression_evaluator(Schema(*spec.partition_type(schema).fields), projected, True)  # noqa: FBT003
        except _UNKNOWN:
            continue
        for place, (own, values) in enumerate(zip(partitions.spec_ids, partitions.values, strict=True)):
            if own == spec_id:
                kept[place] = _holds(is_kept, Record(*values))
    return kept


def has_live(manifest: ManifestFile) -> bool:
    """Return whether a manifest has live entries, as far as the manifest list says."""
    return bool(manifest.has_added_files() or manifest.has_existing_files())


def matching_manifests(
    node: Node, manifests: Sequence[ManifestFile], specs: Mapping[int, PartitionSpec], schema: IcebergSchema
) -> tuple[ManifestFile, ...]:
    """Return the manifests with files that may hold rows for which a condition is true, by their partition summaries.

    All of a spec stay where that cannot be known: a column was dropped, a transform is unknown. So do manifests whose
    summaries are missing or have no bounds, and all of a partition field of floats: bounds leave NaN out.

    Args:
        node: the condition, resolved for `schema`.
        manifests: of data files.
        specs: the table's specs by id.
        schema: the table's columns.
    """
    if not _names_fit(node, schema):
        return tuple(manifests)
    expression = implied(node, want=True)
    tests = {spec_id: _manifest_test(expression, spec, schema) for spec_id, spec in specs.items()}
    return tuple(
        manifest
        for manifest in manifests
        if (test := tests.get(manifest.partition_spec_id)) is None or _may_match(manifest, test)
    )


def _manifest_test(
    expression: BooleanExpression, spec: PartitionSpec, schema: IcebergSchema
) -> Callable[[ManifestFile], bool] | None:
    from pyiceberg.expressions.visitors import inclusive_projection, manifest_evaluator
    from pyiceberg.types import DoubleType, FloatType

    try:
        kinds = [field.field_type for field in spec.partition_type(schema).fields]
        if not kinds or any(isinstance(kind, FloatType | DoubleType) for kind in kinds):
            return None
        return manifest_evaluator(spec, schema, inclusive_projection(schema, spec)(expression))
    except _UNKNOWN:
        return None


def _may_match(manifest: ManifestFile, test: Callable[[ManifestFile], bool]) -> bool:
    if not all(_is_summed_up(field) for field in manifest.partitions or ()):
        return True
    try:
        return test(manifest)
    except (struct.error, IndexError, *_UNKNOWN):  # bounds of another type than the field's
        return True


def _is_summed_up(field: PartitionFieldSummary) -> bool:
    """Return whether a summary has both bounds, or none since all values are null."""
    if field.lower_bound is None and field.upper_bound is None:
        return field.contains_null
    return field.lower_bound is not None and field.upper_bound is not None


def _names_fit(node: Node, schema: IcebergSchema) -> bool:
    """Return whether the schema means the same columns by the condition's names."""
    try:
        return all(schema.find_field(test.leaf.name).field_id == test.leaf.id for test in tests_of(node))
    except ValueError:
        return False


_UNKNOWN = (ValueError, TypeError, KeyError, NotImplementedError)
"""What PyIceberg raises of a column that was dropped, or of a transform that it does not know."""


def _holds(is_kept: Any, record: Any) -> bool:
    try:
        return bool(is_kept(record))
    except (TypeError, ValueError):  # a value of another type than the field's
        return True


def implied(node: Node, *, want: bool) -> BooleanExpression:
    """Return an expression that is true for all rows for which a condition has the value `want`.

    What PyIceberg cannot say becomes true.
    """
    from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, Or

    if isinstance(node, Constant):
        return AlwaysTrue() if node.value is want else AlwaysFalse()
    if isinstance(node, AllOf | AnyOf):
        join = And if isinstance(node, AllOf) is want else Or
        return reduce(join, (implied(child, want=want) for child in node.children))
    if isinstance(node, Negation):
        return implied(node.child, want=not want)
    if isinstance(node, Truth):
        return implied(node.child, want=node.value) if want and node.value is not None else AlwaysTrue()
    found: BooleanExpression = _implied_by_test(node, want=want is not node.negated)
    return found


def _implied_by_test(test: Test, *, want: bool) -> Any:
    from pyiceberg import expressions

    ice: Any = expressions  # its constructors have other types than their hints say
    name, true = test.leaf.name, ice.AlwaysTrue()
    if test.operator is Operator.NULL:
        return ice.IsNull(name) if want else ice.NotNull(name)
    if pt.is_floating(test.leaf.type) and not want:
        return true  # NaN is neither less nor greater than a value
    if test.operator is Operator.IN:
        values = [] if test.values is None else [_literal(value) for value in test.values]
        if any(value is None for value in values):
            return true
        return ice.In(name, values) if want else ice.NotIn(name, values)
    value = None if test.value is None else _literal(test.value)
    if value is None:
        return true
    if test.operator is Operator.PREFIX:
        if not is_any_string(test.leaf.type) or not isinstance(value.value, bytes):
            return true
        text = value.value.decode(errors="replace")
        return ice.StartsWith(name, text) if want else ice.NotStartsWith(name, text)
    if test.operator is Operator.EQUAL:
        return ice.EqualTo(name, value) if want else ice.NotEqualTo(name, value)
    if test.operator not in _COMPARED:
        return true
    positive = {
        Operator.LESS: ice.LessThan,
        Operator.LESS_EQUAL: ice.LessThanOrEqual,
        Operator.GREATER: ice.GreaterThan,
        Operator.GREATER_EQUAL: ice.GreaterThanOrEqual,
    }
    opposite = {
        Operator.LESS: ice.GreaterThanOrEqual,
        Operator.LESS_EQUAL: ice.GreaterThan,
        Operator.GREATER: ice.LessThanOrEqual,
        Operator.GREATER_EQUAL: ice.LessThan,
    }
    return (positive if want else opposite)[test.operator](name, value)


def _literal(value: pa.Scalar) -> Any:
    """Return a value as a literal of PyIceberg; None if it has no such values."""
    from pyiceberg.expressions import literals

    kind = value.type
    if pt.is_date32(kind):
        return literals.DateLiteral(value.value)
    if pt.is_timestamp(kind) and kind.unit == "us":
        return literals.TimestampLiteral(value.value)
    if pt.is_time64(kind) and kind.unit == "us":
        return literals.TimeLiteral(value.value)
    if pt.is_temporal(kind) or pt.is_fixed_size_binary(kind):
        return None
    found = value.as_py()
    known = isinstance(found, bool | int | float | str | Decimal) or (
        isinstance(found, bytes) and (is_any_binary(kind) or is_any_string(kind))
    )
    return literals.literal(found) if known else None
