"""Conversion of Arrow tables to columns, without a Python object for each row."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from maillard.decisions.columns import Columns
from maillard.decisions.decision import LOG_PROBABILITY_TOLERANCE
from maillard.decisions.files.arrow import column_types, pyarrow
from maillard.decisions.files.foreign_logs import complete_arms
from maillard.errors import InvalidValue

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The columns that evaluation needs.
_READ_COLUMNS = (
    "id", "experiment", "time", "unit", "arm", "probability", "log_probability", "eligible",
    "log_probabilities", "state", "epoch", "position", "origin", "reward", "closed",
)  # fmt: skip


_SCAN_BATCH_ROWS = 1 << 17  # larger batches for a scan of few columns


class Batches(Protocol):
    """A part of an Arrow table: `rows` rows from row `start` on. A call yields batches of some columns."""

    @property
    def start(self) -> int: ...

    @property
    def rows(self) -> int: ...

    def __call__(self, names: Sequence[str], rows: int = ..., /) -> Iterable[Any]: ...


class Contents(NamedTuple):
    """The arms and experiments in a table."""

    arms: list[str]
    "In order of first appearance; numbers in numerical order."
    experiments: dict[str, int]
    "The number of rows of each."
    windows: bool
    "Whether any reward window had closed."


def contents_of(parts: Sequence[Batches], names: Sequence[str], source: str) -> Contents:
    """Scan the table for its arms and experiments."""
    pa = pyarrow()
    pc = pa.compute
    wanted = [name for name in ("eligible", "arm", "experiment", "closed") if name in names]
    arms: dict[str, None] = {}
    experiments: dict[str, int] = {}
    rows, windows = 0, False
    for batch in itertools.chain.from_iterable(part(wanted, _SCAN_BATCH_ROWS) for part in parts):
        rows += batch.num_rows
        for name in [each for each in wanted if each in ("eligible", "arm")]:
            column = cast(batch, name, source).flatten() if name == "eligible" else _arm(batch, source)
            arms.update(dict.fromkeys(pc.unique(column).cast(pa.string()).drop_null().to_pylist()))
        if "experiment" in wanted:
            for each in pc.value_counts(cast(batch, "experiment", source)).to_pylist():
                name = each["values"] or "default"
                experiments[name] = experiments.get(name, 0) + each["counts"]
        if "closed" in wanted:
            windows |= bool(pc.any(cast(batch, "closed", source)).as_py())
    return Contents(complete_arms(arms), experiments or {"default": rows}, windows)


def _arm(batch: Any, source: str) -> Any:
    """Return the column of arms, and check that it has strings or integers."""
    pa, column = pyarrow(), batch.column("arm")
    plain = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    kinds = pa.types
    if not any(
        kind(plain)
        for kind in (
            kinds.is_string,
            kinds.is_large_string,
            kinds.is_string_view,
            kinds.is_integer,
            kinds.is_null,
        )
    ):
        raise InvalidValue(f"{source}: arm", str(column.type), "names or whole numbers")
    return column


@dataclass(frozen=True)
class TableColumns:
    """Reads a part of a table as columns, restricted to one experiment."""

    batches: Batches
    names: tuple[str, ...]
    arms: tuple[str, ...]
    source: str
    experiment: str | None = None

    def __call__(self) -> Iterator[Columns]:
        pa, done = pyarrow(), self.batches.start
        lookup = pa.array(self.arms, pa.string())
        last: tuple[Any, Any] = (None, None)
        for batch in self.batches([name for name in _READ_COLUMNS if name in self.names]):
            last = _check_repeats(batch, last, done, self.source)
            made = _columns(batch, lookup, done, self.source).check(self.source)
            done += len(made)
            if self.experiment is not None and "experiment" in self.names:
                experiments = cast(batch, "experiment", self.source).fill_null("default")
                same = pa.compute.equal(experiments, self.experiment)
                made = made.filter(same.to_numpy(zero_copy_only=False).astype(np.bool_))
            yield made


def _check_repeats(batch: Any, last: tuple[Any, Any], done: int, source: str) -> tuple[Any, Any]:
    """Check that no decision occurs twice in a row. Return the state and id of the last row."""
    if not {"id", "state"} <= set(batch.schema.names) or not batch.num_rows:
        return None, None
    pa = pyarrow()
    ids, states = cast(batch, "id", source), cast(batch, "state", source)
    before = [
        pa.concat_arrays([pa.array([one], each.type), each[:-1]])
        for one, each in zip(last[::-1], (ids, states), strict=True)
    ]
    again = pa.compute.and_(pa.compute.equal(ids, before[0]), pa.compute.equal(states, before[1])).fill_null(
        False
    )
    if pa.compute.any(again).as_py():
        at = int(np.asarray(again).argmax())
        raise InvalidValue(f"{source}, row {done + at + 1}: id", ids[at].as_py(), "each decision once")
    return states[-1].as_py(), ids[-1].as_py()


def _columns(batch: Any, arms: Any, done: int, source: str) -> Columns:
    pc, n = pyarrow().compute, batch.num_rows
    names, row = batch.schema.names, np.arange(done + 1, done + n + 1)

    def refuse(name: str, bad: NDArray[np.bool_], allowed: str) -> None:
        if bad.any():
            at = int(bad.argmax())
            value = batch.column(name)[at].as_py()
            raise InvalidValue(f"{source}, row {row[at]}: {name}", value, allowed)

    def numbers(name: str, otherwise: float | NDArray[Any], kind: Any = np.int64) -> Any:
        if name not in names:
            return np.broadcast_to(np.asarray(otherwise, kind), n)
        column = cast(batch, name, source)
        if column.null_count:
            column = pc.fill_null(column, otherwise if isinstance(otherwise, int | bool) else 0)
        return column.to_numpy(zero_copy_only=False).astype(kind, copy=False)

    def reals(name: str) -> NDArray[np.float64]:
        column = cast(batch, name, source)
        values: NDArray[np.float64] = column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        return values

    arm = places_of(_arm(batch, source), arms)
    refuse("arm", arm < 0, "one of the log's arms")
    if "log_probability" in names:
        log = reals("log_probability")
        impossible = ~((log <= LOG_PROBABILITY_TOLERANCE) & (log > -np.inf))
        refuse("log_probability", impossible, "a finite number <= 0")
    else:
        probability = reals("probability")
        invalid = ~((probability > 0) & (probability <= 1 + LOG_PROBABILITY_TOLERANCE))
        refuse("probability", invalid, "a number > 0 and <= 1")
        log = np.log(probability)
    if "reward" in names:
        reward = reals("reward")
        given = ~np.asarray(pc.is_null(batch.column("reward")))
        refuse("reward", given & ~np.isfinite(reward), "a finite number")
    else:
        reward = np.full(n, np.nan)
    distributions, eligible = _read_distributions(batch, arms, source, row)
    unit = None
    if "unit" in names and batch.column("unit").null_count < n:
        unit = cast(batch, "unit", source).to_numpy(zero_copy_only=False)
    return Columns(
        row=row,
        arm=arm,
        reward=reward,
        log_probability=log,
        log_probabilities=distributions,
        eligible=eligible,
        position=numbers("position", 0),
        epoch=numbers("epoch", 0),
        state=numbers("state", row),
        time=numbers("time", 0),
        unit=unit,
        closed=numbers("closed", False, np.bool_),
        repeated=np.asarray(pc.is_valid(batch.column("origin")))
        if "origin" in names
        else np.broadcast_to(np.False_, n),
    )


def places_of(column: Any, arms: Any) -> NDArray[np.int64]:
    """Return the index of each row's arm; -1 for an unknown arm. Dictionary values are looked up once."""
    pa = pyarrow()
    if column.type != pa.string() and not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes, names = None, column
    if pa.types.is_dictionary(column.type):
        codes, names = column.indices, column.dictionary.cast(pa.string())
    found = pa.compute.index_in(names, arms).fill_null(-1)
    places: NDArray[np.int64] = found.to_numpy(zero_copy_only=False).astype(np.int64)
    if codes is None:
        return places
    chosen: NDArray[np.int64] = np.append(places, -1)[
        codes.cast(pa.int64()).fill_null(len(places)).to_numpy(zero_copy_only=False)
    ]
    return chosen


def _read_distributions(batch: Any, arms: Any, source: str, row: NDArray[Any]) -> tuple[Any, Any]:
    """Return the log probabilities of all arms, and which arms were eligible."""
    pc, n, k = pyarrow().compute, batch.num_rows, len(arms)
    names = batch.schema.names
    if "log_probabilities" not in names and "eligible" not in names:
        return None, None
    who = logs = None
    size = np.full(n, k)
    if "eligible" in names:
        column = cast(batch, "eligible", source)
        _refuse_nulls(column, "eligible", source, row)
        size = np.asarray(pc.list_value_length(column)).astype(np.int64)
        who = np.asarray(pc.index_in(column.flatten(), arms).fill_null(-1)).astype(np.int64)
        if (who < 0).any():
            at = int(np.repeat(np.arange(n), size)[(who < 0).argmax()])
            raise InvalidValue(
                f"{source}, row {row[at]}: eligible", column[at].as_py(), "arms of the experiment"
            )
    if "log_probabilities" in names:
        column = cast(batch, "log_probabilities", source)
        if column.null_count < n or who is None:
            _refuse_nulls(column, "log_probabilities", source, row)
            lengths = np.asarray(pc.list_value_length(column)).astype(np.int64)
            if (lengths != size).any():
                at = int((lengths != size).argmax())
                where = f"{source}, row {row[at]}: log_probabilities"
                raise InvalidValue(where, int(lengths[at]), f"one for each eligible arm, {size[at]}")
            logs = column.flatten().to_numpy(zero_copy_only=False)
    if (size == k).all() and (who is None or (who.reshape(n, k) == np.arange(k)).all()):
        return (None if logs is None else np.asfortranarray(logs.reshape(n, k))), None
    if who is None:
        who = np.tile(np.arange(k), n)
    rows = np.repeat(np.arange(n), size)
    eligible = np.zeros((n, k), np.bool_)
    eligible[rows, who] = True
    twice = eligible.sum(axis=1) != size
    if twice.any():
        at = int(twice.argmax())
        raise InvalidValue(f"{source}, row {row[at]}: eligible", int(size[at]), "each name once")
    distributions = None
    if logs is not None:
        distributions = np.full((n, k), -np.inf)
        distributions[rows, who] = logs
    distributions = None if distributions is None else np.asfortranarray(distributions)
    return distributions, None if eligible.all() else np.asfortranarray(eligible)


def _refuse_nulls(column: Any, name: str, source: str, row: NDArray[Any]) -> None:
    if column.null_count:
        at = int(np.asarray(column.is_null()).argmax())
        raise InvalidValue(f"{source}, row {row[at]}: {name}", None, "a list for each row")


def cast(batch: Any, name: str, source: str) -> Any:
    """Return a column, cast to its type in the schema."""
    pa = pyarrow()
    exact = column_types(pa.timestamp("us", tz="UTC"), pa.string())[name]
    column = batch.column(name)
    try:
        if name == "time" and pa.types.is_integer(column.type):
            raise InvalidValue(
                f"{source}: time", str(column.type), "timestamps; the unit of a number is unknown"
            )
        if name == "time":
            return column.cast(exact).cast(pa.int64())
        return column if column.type == exact else column.cast(exact)
    except (pa.ArrowException, ValueError) as error:
        allowed = f"values of type {exact} ({error})"
        raise InvalidValue(f"{source}: {name}", str(column.type), allowed) from None
