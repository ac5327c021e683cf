"""Conversion of Arrow tables to columns, without a Python object for each row."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.array_types import Bools, Floats, Ints
from maillard.decisions.action_columns import Actions, by_rank
from maillard.decisions.columns import Columns, context_fields
from maillard.decisions.contexts import Contexts, column_of_arrow
from maillard.decisions.decision import LOG_PROBABILITY_TOLERANCE, POSSIBLE
from maillard.decisions.encoded_contexts import read_encoded_text
from maillard.decisions.files.arrow import NO_FIELDS, cast, pyarrow
from maillard.decisions.files.foreign_logs import are_indices, complete_arms
from maillard.decisions.files.reward_lists import fields_of_late_rewards, late_rewards, list_column
from maillard.decisions.files.row_codec import CONTEXT
from maillard.decisions.reward_rule import Reward
from maillard.decisions.row_numbers import steps_of
from maillard.errors import InvalidLog, InvalidValue

if TYPE_CHECKING:
    from maillard.decisions.files.table_logs import Batches, Table

# The columns that evaluation needs.
_READ_COLUMNS = (
    "id", "experiment", "time", "unit", "arm", "probability", "log_probability", "eligible",
    "log_probabilities", "state", "epoch", "position", "origin", "reward", "closed",
)  # fmt: skip
_ENCODED = ("encoded", "feature_version")  # columns of our files about the context
_SCAN_BATCH_ROWS = 1 << 17  # larger batches for a scan of few columns


def contents_of(table: Table) -> tuple[list[str], dict[str, int], bool, dict[str, tuple[int, int]]]:
    """Scan the table for its arms, the number of rows of each experiment, and closed reward windows.

    The arms are in order of first appearance; numbers are in numerical order. The last result has, for each
    experiment whose rows are not in order of time, the first row that is out of order, and its time. A table
    with a column `state` is in order of states instead.
    """
    pa, pc, source = pyarrow(), pyarrow().compute, table.source
    wanted = [name for name in ("eligible", "arm", "experiment", "closed") if name in table.names]
    arms: dict[str, None] = {}
    experiments: dict[str, int] = {}
    windows, done, order = False, 0, _TimeOrder()
    if "state" not in table.names and "time" in table.names:
        wanted.append("time")
    for batch in itertools.chain.from_iterable(part(wanted, _SCAN_BATCH_ROWS) for part in table.parts):
        for name in [each for each in wanted if each in ("eligible", "arm")]:
            column = cast(batch, name, source).flatten() if name == "eligible" else _arm(batch, source)
            arms.update(dict.fromkeys(pc.unique(column).cast(pa.string()).drop_null().to_pylist()))
        if "experiment" in wanted:
            for each in pc.value_counts(cast(batch, "experiment", source)).to_pylist():
                name = each["values"] or "default"
                experiments[name] = experiments.get(name, 0) + each["counts"]
        if "closed" in wanted:
            windows |= bool(pc.any(cast(batch, "closed", source)).as_py())
        if "time" in wanted and not pa.types.is_integer(batch.column("time").type):
            order.add(batch, done, source)
        done += batch.num_rows
    sizes = experiments or {"default": sum(part.rows for part in table.parts)}
    return complete_arms(arms), sizes, windows, order.first


class _TimeOrder:
    """Finds the first row of each experiment that is older than an earlier row."""

    def __init__(self) -> None:
        self.first: dict[str, tuple[int, int]] = {}
        self._latest: dict[str, int] = {}

    def add(self, batch: Any, done: int, source: str) -> None:
        """Add a batch of rows; `done` is the number of rows before it."""
        time = cast(batch, "time", source)
        known = np.asarray(time.is_valid())
        times = time.fill_null(0).to_numpy(zero_copy_only=False)
        names = None
        if "experiment" in batch.schema.names:
            names = cast(batch, "experiment", source).fill_null("default").to_numpy(zero_copy_only=False)
        for name in ["default"] if names is None else dict.fromkeys(names.tolist()):
            rows = np.flatnonzero(known if names is None else known & (names == name))
            if not rows.size:
                continue
            part = times[rows]
            back = np.diff(part, prepend=self._latest.get(name, part[0])) < 0
            if back.any() and name not in self.first:
                at = rows[int(back.argmax())]
                self.first[name] = int(done + at + 1), int(times[at])
            self._latest[name] = int(part[-1])


def _arm(batch: Any, source: str) -> Any:
    """Return the column of arms, and check that it has strings or integers."""
    types, column = pyarrow().types, batch.column("arm")
    plain = column.type.value_type if types.is_dictionary(column.type) else column.type
    kinds = (types.is_string, types.is_large_string, types.is_string_view, types.is_integer, types.is_null)
    if not any(kind(plain) for kind in kinds):
        raise InvalidValue(f"{source}: arm", str(column.type), "names or whole numbers")
    return column


@dataclass(frozen=True)
class TableColumns:
    """Reads a part of a table as columns, restricted to one experiment."""

    batches: Batches
    names: tuple[str, ...]
    arms: tuple[str, ...]
    source: str
    experiment: str
    reward: Reward | None = None
    "The reward rule, if late rewards are read."
    number: str | None = None
    "The column that may number the rows."
    context: tuple[str, ...] = ()
    "Columns that are keys of the context, if there is no column `context`."
    by_rank: bool = False
    "Whether the arms differ at every decision, so that an arm's index is its rank."

    @property
    def context_columns(self) -> list[str]:
        """The columns that the context is read from."""
        if CONTEXT not in self.names:
            return list(self.context)
        return [CONTEXT, *(name for name in _ENCODED if name in self.names)]

    def contexts_of(self, batch: Any) -> dict[str, Any]:
        """Return the contexts in a batch as fields of `Columns`; empty if no row has one."""
        if CONTEXT in self.names:
            column = batch.column(CONTEXT)
            known = column.null_count < batch.num_rows
            contexts = Contexts.of_arrow(column, f"{self.source}: {CONTEXT}") if known else None
            if not set(_ENCODED) <= set(self.names):  # of another program
                return {"contexts": contexts}
            texts, versions = (batch.column(name).to_pylist() for name in _ENCODED)
            encoded = [None if text is None else read_encoded_text(text) for text in texts]
            return context_fields(contexts, encoded, [each or 0 for each in versions], by_rank=self.by_rank)
        if not self.context:
            return {}
        read = {name: column_of_arrow(batch.column(name), f"{self.source}: {name}") for name in self.context}
        return {"contexts": Contexts(batch.num_rows, read)}

    def __call__(self) -> Iterator[Columns]:
        pa, done = pyarrow(), self.batches.start
        lookup = pa.array(self.arms, pa.string())
        last: tuple[Any, Any] = (None, None)
        before: int | None = None
        names, fields = [name for name in _READ_COLUMNS if name in self.names], NO_FIELDS
        if self.reward is not None:
            names, fields = [*names, "rewards"], {"rewards": fields_of_late_rewards(self.reward)}
        if self.number is not None and self.number not in names:
            names = [*names, self.number]
        names += [name for name in self.context_columns if name not in names]
        names += ["actions"] if self.by_rank else []
        for batch in self.batches(names, fields=fields):
            reader = _BatchReader(batch, lookup, done, self.source, self.reward)
            last = reader.check_repeats(last)
            arms = reader.actions() if self.by_rank else reader.fixed_arms()
            made = replace(reader.columns(**arms).check(self.source), **self.contexts_of(batch))
            if made.actions is not None:
                made = replace(made, actions=made.actions.of_choices(made.repeated))
            done += len(made)
            if self.number is not None:
                steps, before = steps_of_batch(batch, self.number, before)
                made = replace(made, step=steps)
            if "experiment" in self.names:
                same = pa.compute.equal(reader.cast("experiment").fill_null("default"), self.experiment)
                made = made.filter(same.to_numpy(zero_copy_only=False).astype(np.bool_))
            yield made


@dataclass(frozen=True, eq=False)
class _BatchReader:
    """Reads one batch of a table as columns. An error names the row."""

    batch: Any
    arms: Any
    "The names of the log's arms, as an Arrow array."
    start: int
    "The number of rows before this batch."
    source: str
    reward: Reward | None = None

    def refuse(self, name: str, bad: Bools, allowed: str, values: Any = None) -> None:
        """Raise an error about the first bad row, if there is one."""
        if bad.any():
            at = int(bad.argmax())
            value = self.batch.column(name)[at].as_py() if values is None else int(values[at])
            raise InvalidLog(f"{self.source}, row {self.start + at + 1}: {name}", value, allowed)

    def has(self, name: str) -> bool:
        """Whether the batch has this column."""
        return name in self.batch.schema.names

    def cast(self, name: str) -> Any:
        """Return a column, cast to its type in the schema."""
        return cast(self.batch, name, self.source)

    def check_repeats(self, last: tuple[Any, Any]) -> tuple[Any, Any]:
        """Check that no decision occurs twice in a row. Return the state and id of the last row."""
        if not self.has("id") or not self.has("state") or not self.batch.num_rows:
            return None, None
        pa, columns = pyarrow(), (self.cast("state"), self.cast("id"))
        before = [
            pa.concat_arrays([pa.array([one], each.type), each[:-1]])
            for one, each in zip(last, columns, strict=True)
        ]
        same = map(pa.compute.equal, columns, before)
        self.refuse("id", np.asarray(pa.compute.and_(*same).fill_null(False)), "each decision once")
        state, identifier = (each[-1].as_py() for each in columns)
        return state, identifier

    def numbers(self, name: str, otherwise: float | Ints = 0, kind: Any = np.int64) -> Any:
        """Return a column as an array, with a default for missing values."""
        if not self.has(name):
            return np.broadcast_to(np.asarray(otherwise, kind), self.batch.num_rows)
        column = self.cast(name)
        if column.null_count:
            column = column.fill_null(otherwise if isinstance(otherwise, int | bool) else 0)
        return column.to_numpy(zero_copy_only=False).astype(kind, copy=False)

    def reals(self, name: str) -> Floats:
        """Return a column as an array, with NaN for missing values."""
        values: Floats = self.cast(name).to_numpy(zero_copy_only=False)
        return values.astype(np.float64, copy=False)

    def log_probability(self) -> Floats:
        """Return the log probability of each chosen arm."""
        if self.has("log_probability"):
            log = self.reals("log_probability")
            possible = (log <= LOG_PROBABILITY_TOLERANCE) & (log > -np.inf)
            self.refuse("log_probability", ~possible, "a finite number <= 0")
            return log
        probability = self.reals("probability")
        possible = (probability > 0) & (probability <= 1 + LOG_PROBABILITY_TOLERANCE)
        self.refuse("probability", ~possible, POSSIBLE)
        return np.log(probability)

    def columns(self, **arms: Any) -> Columns:
        """Return the batch as columns. `arms` are the fields that depend on the arms."""
        batch, n, types = self.batch, self.batch.num_rows, pyarrow().types
        row = np.arange(self.start + 1, self.start + n + 1)
        log, reward = self.log_probability(), np.full(n, np.nan)
        if self.has("reward"):
            reward, given = self.reals("reward"), np.asarray(batch.column("reward").is_valid())
            self.refuse("reward", given & ~np.isfinite(reward), "a finite number")
        unit, repeated = None, np.broadcast_to(np.False_, n)
        if self.has("unit") and batch.column("unit").null_count < n:
            unit = self.cast("unit").to_numpy(zero_copy_only=False)
        if self.has("origin"):
            repeated = np.asarray(batch.column("origin").is_valid())
        if self.has("time") and types.is_integer(batch.column("time").type):
            allowed = "timestamps; the unit of a number is unknown"
            raise InvalidValue(f"{self.source}: time", str(batch.column("time").type), allowed)
        return Columns(
            row=row,
            reward=reward,
            log_probability=log,
            position=self.numbers("position"),
            epoch=self.numbers("epoch"),
            state=self.numbers("state", row),
            time=self.numbers("time"),
            unit=unit,
            closed=self.numbers("closed", False, np.bool_),
            repeated=repeated,
            late_reward=self.late_reward(),
            **arms,
        )

    def fixed_arms(self) -> dict[str, Any]:
        """Return the fields of `Columns` that depend on the arms, if all decisions share them."""
        arm = places_of(_arm(self.batch, self.source), self.arms)
        self.refuse("arm", arm < 0, "one of the log's arms")
        distributions, eligible = self.distributions()
        return {"arm": arm, "log_probabilities": distributions, "eligible": eligible}

    def actions(self) -> dict[str, Any]:
        """Return the fields of `Columns` that depend on the arms, if each decision has its own."""
        pa, n = pyarrow(), self.batch.num_rows
        names, sizes = self.lists("eligible")
        logs = np.full(len(names), np.nan)
        if self.has("log_probabilities") and self.batch.column("log_probabilities").null_count < n:
            values, lengths = self.lists("log_probabilities")
            self.refuse("log_probabilities", lengths != sizes, "one for each eligible arm", lengths)
            logs = values.to_numpy(zero_copy_only=False)
        texts = self.cast("actions").to_numpy(zero_copy_only=False)
        actions = Actions(names.to_numpy(zero_copy_only=False), np.cumsum(sizes), texts)
        codes = names.dictionary_encode().indices.to_numpy()
        pairs = np.sort(actions.rows * max(len(names), 1) + codes)
        twice = pairs[1:][pairs[1:] == pairs[:-1]] // max(len(names), 1)
        self.refuse("eligible", np.bincount(twice, minlength=n) > 0, "each name once", sizes)
        chosen = pa.compute.equal(names, self.cast("arm").take(pa.array(actions.rows)))
        places = np.flatnonzero(chosen.fill_null(False).to_numpy(zero_copy_only=False))
        self.refuse("arm", np.bincount(actions.rows[places], minlength=n) != 1, "one of the eligible arms")
        return {"arm": actions.ranks[places], "actions": actions, **by_rank(actions, logs)}

    def late_reward(self) -> Floats | None:
        """Return the reward of each decision with late rewards, if late rewards counted."""
        if self.reward is None:
            return None
        return late_rewards(list_column(self.batch, "rewards", self.source), self.reward)

    def lists(self, name: str) -> tuple[Any, Ints]:
        """Return the values of a column of lists, and the length of each list."""
        column = self.cast(name)
        self.refuse(name, np.asarray(column.is_null()), "a list for each row")
        lengths = np.asarray(pyarrow().compute.list_value_length(column)).astype(np.int64)
        return column.flatten(), lengths

    def distributions(self) -> tuple[Any, Any]:
        """Return log probabilities (rows x arms, None if not logged) and the eligible mask (None: all)."""
        n, k = self.batch.num_rows, len(self.arms)
        who = logs = None
        size = np.full(n, k)
        if self.has("eligible"):
            names, size = self.lists("eligible")
            who = np.asarray(pyarrow().compute.index_in(names, self.arms).fill_null(-1)).astype(np.int64)
            unknown = np.bincount(np.repeat(np.arange(n), size)[who < 0], minlength=n) > 0
            self.refuse("eligible", unknown, "arms of the experiment")
        if self.has("log_probabilities") and (
            who is None or self.batch.column("log_probabilities").null_count < n
        ):
            values, lengths = self.lists("log_probabilities")
            wrong = lengths != size
            if wrong.any():
                allowed = f"one for each eligible arm, {size[wrong][0]}"
                self.refuse("log_probabilities", wrong, allowed, lengths)
            logs = values.to_numpy(zero_copy_only=False)
        if who is None or ((size == k).all() and (who.reshape(n, k) == np.arange(k)).all()):
            return (None if logs is None else np.asfortranarray(logs.reshape(n, k))), None
        rows = np.repeat(np.arange(n), size)
        eligible = np.zeros((n, k), np.bool_)
        eligible[rows, who] = True
        self.refuse("eligible", eligible.sum(axis=1) != size, "each name once", size)
        distributions = None
        if logs is not None:
            distributions = np.full((n, k), -np.inf, order="F")
            distributions[rows, who] = logs
        return distributions, None if eligible.all() else np.asfortranarray(eligible)


def steps_of_batch(batch: Any, number: str, last: int | None) -> tuple[Ints | None, int | None]:
    """Return the steps of the row numbers, and the last number; None if some are not whole numbers.

    `last` is the number of the row before the batch.
    """
    pa, column = pyarrow(), batch.column(number)
    if not batch.num_rows or not pa.types.is_integer(column.type) or column.null_count:
        return None, None
    numbers: Ints = column.cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False)
    return steps_of(numbers, last), int(numbers[-1])


def places_of(column: Any, arms: Any) -> Ints:
    """Return the index of each row's arm; -1 for an unknown arm.

    Dictionary values are looked up once. Numbers of arms that are named by their index need no lookup.
    """
    pa = pyarrow()
    if column.type == pa.string():
        found = pa.compute.index_in(column, arms).fill_null(-1)
        places: Ints = found.to_numpy(zero_copy_only=False).astype(np.int64)
        return places
    if pa.types.is_integer(column.type) and not column.null_count and len(column) > 100 * len(arms):
        numbers: Ints = column.to_numpy(zero_copy_only=False).astype(np.int64)
        if 0 <= numbers.min() <= numbers.max() < len(arms) and are_indices(arms.to_pylist()):
            return numbers
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    places = np.append(places_of(column.dictionary.cast(pa.string()), arms), -1)
    codes = column.indices
    if codes.null_count or codes.type != pa.int32():
        codes = codes.cast(pa.int64()).fill_null(len(places) - 1)
    # Arrow has checked the codes; mode="raise" would copy and check them again.
    chosen: Ints = places.take(codes.to_numpy(zero_copy_only=False), mode="clip")
    return chosen
