"""Bulk reads of large logs with compiled code: see `native_columns`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from maillard.array_types import Ints
from maillard.decisions.stores.bulk_columns import Arrays, OddRows
from maillard.decisions.stores.bulk_reads import BulkReader
from maillard.decisions.stores.contract import Transaction
from maillard.decisions.stores.machine_code import loops
from maillard.decisions.stores.native_columns import NativeColumns
from maillard.decisions.stores.packed_reads import PackedReader

MIN_DECISIONS = 20_000  # below, loading machine code takes longer than it saves
MIN_BUILT = 200_000  # below, machine code is not made


class NativeReader(PackedReader):
    """Reads the rows of an experiment with all columns, like `PackedReader`, with compiled code."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__(transaction)
        self._native = NativeColumns(self._connection)

    def _columns(
        self, types: Mapping[str, str], source: str, parameters: Sequence[Any], order: str
    ) -> Arrays:
        return self._native.read(types, f"{source} ORDER BY {order}", parameters)

    def read(self, types: Mapping[str, str], source: str, *parameters: Any) -> Arrays:
        return self._native.read(types, source, parameters)

    def places(self, wanted: NDArray[Any], among: NDArray[Any]) -> Ints:
        found = self._native.places(wanted, among)
        return super().places(wanted, among) if found is None else found


def bulk_reader(transaction: Transaction) -> BulkReader:
    """Return the fastest reader for the check of a log, which depends on its size."""
    reader = BulkReader(transaction)
    return _native_reader(reader) or reader


def packed_reader(transaction: Transaction) -> PackedReader:
    """Return the fastest reader of all columns of a log, which depends on its size."""
    reader = PackedReader(transaction)
    return _native_reader(reader) or reader


def _native_reader(plain: BulkReader) -> NativeReader | None:
    """Return a reader with compiled code, if the log is large and there is machine code for it."""
    if not plain.has_decisions(MIN_DECISIONS):
        return None
    if loops(build=False) is None and not (plain.has_decisions(MIN_BUILT) and loops(build=True)):
        return None
    try:
        return NativeReader(plain.transaction)
    except OddRows:  # tables that are not STRICT, for example
        return None
