"""The table of a log, from Arrow straight to columns: what `rows` would give, without a Python object for each row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.decisions.columns import Columns
from maillard.decisions.files.arrow import pyarrow, types
from maillard.decisions.files.foreign import in_order
from maillard.decisions.records import SLACK
from maillard.errors import InvalidValue

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Batches", "arms_of", "columns_of"]

# What evaluation reads of the table.
_READ = (
    "experiment", "time", "unit", "arm", "probability", "log_probability", "eligible", "log_probabilities", "state",
    "epoch", "position", "origin", "reward", "closed",
)  # fmt: skip
Batches = Callable[[Sequence[str]], Iterable[Any]]


def arms_of(batches: Batches, names: Sequence[str], source: str) -> tuple[list[str], list[str]]:
    """The arms of a table, and its experiments, in the order in which they appear; numbered arms by their numbers."""
    pa = pyarrow()
    wanted = [name for name in ("arm", "eligible", "experiment") if name in names]
    seen: dict[str, dict[str, None]] = {"arm": {}, "experiment": {}}
    for batch in batches(wanted):
        for name in wanted:
            column = _cast(batch, name, source)
            if name == "eligible":
                column = column.flatten()
            found = pa.compute.unique(column).to_pylist()
            seen["experiment" if name == "experiment" else "arm"].update(
                dict.fromkeys(each for each in found if each is not None)
            )
    return in_order(seen["arm"]), sorted(seen["experiment"]) or ["default"]


def columns_of(
    batches: Batches, names: Sequence[str], arms: Sequence[str], source: str, experiment: str | None = None
) -> Iterator[Columns]:
    """The columns of a table's decisions, of one experiment where it holds several."""
    pa = pyarrow()
    lookup = pa.array(list(arms), pa.string())
    done, last = 0, -1
    for batch in batches([name for name in _READ if name in names]):
        made = _columns(batch, lookup, done, source).check(source)
        done += len(made)
        if experiment is not None and "experiment" in names:
            same = pa.compute.equal(_cast(batch, "experiment", source), experiment)
            made = made.where(same.to_numpy(zero_copy_only=False).astype(np.bool_))
        if not len(made):
            continue
        back = np.diff(made.state, prepend=max(last, made.state[0] if last < 0 else last)) < 0
        if back.any():
            at = int(back.argmax())
            raise InvalidValue(
                f"{source}, row {made.row[at]}: state",
                int(made.state[at]),
                "rows in the order of their states",
            )
        last = int(made.state[-1])
        yield made


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
        column = _cast(batch, name, source)
        if column.null_count:
            column = pc.fill_null(column, otherwise if isinstance(otherwise, int | bool) else 0)
        return column.to_numpy(zero_copy_only=False).astype(kind, copy=False)

    def reals(name: str) -> NDArray[np.float64]:
        column = _cast(batch, name, source)
        values: NDArray[np.float64] = column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        return values

    arm = pc.index_in(_cast(batch, "arm", source), arms)
    refuse("arm", np.asarray(pc.is_null(arm)), "one of the log's arms")
    if "log_probability" in names:
        log = reals("log_probability")
        refuse("log_probability", ~((log <= SLACK) & (log > -np.inf)), "a number <= 0")
    else:
        chance = reals("probability")
        refuse("probability", ~((chance > 0) & (chance <= 1 + SLACK)), "a number > 0 and <= 1")
        log = np.log(chance)
    if "reward" in names:
        reward = reals("reward")
        given = ~np.asarray(pc.is_null(batch.column("reward")))
        refuse("reward", given & ~np.isfinite(reward), "a finite number")
    else:
        reward = np.full(n, np.nan)
    laws, eligible = _laws(batch, arms, source, row)
    unit = None
    if "unit" in names and batch.column("unit").null_count < n:
        unit = _cast(batch, "unit", source).to_numpy(zero_copy_only=False)
    return Columns(
        row=row,
        arm=arm.to_numpy(zero_copy_only=False).astype(np.int64),
        reward=reward,
        log_probability=log,
        log_probabilities=laws,
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


def _laws(batch: Any, arms: Any, source: str, row: NDArray[Any]) -> tuple[Any, Any]:
    """The log probability of every arm, and who was eligible."""
    pc, n, k = pyarrow().compute, batch.num_rows, len(arms)
    names = batch.schema.names
    if "log_probabilities" not in names and "eligible" not in names:
        return None, None
    who = logs = None
    size = np.full(n, k)
    if "eligible" in names:
        column = _cast(batch, "eligible", source)
        _whole(column, "eligible", source, row)
        size = np.asarray(pc.list_value_length(column)).astype(np.int64)
        who = np.asarray(pc.index_in(column.flatten(), arms)).astype(np.int64)
    if "log_probabilities" in names:
        column = _cast(batch, "log_probabilities", source)
        if column.null_count < n or who is None:
            _whole(column, "log_probabilities", source, row)
            lengths = np.asarray(pc.list_value_length(column)).astype(np.int64)
            if (lengths != size).any():
                at = int((lengths != size).argmax())
                where = f"{source}, row {row[at]}: log_probabilities"
                raise InvalidValue(where, int(lengths[at]), f"one for each eligible arm, {size[at]}")
            logs = column.flatten().to_numpy(zero_copy_only=False)
    if (size == k).all() and (who is None or (who.reshape(n, k) == np.arange(k)).all()):
        return (None if logs is None else logs.reshape(n, k)), None
    if who is None:
        who = np.tile(np.arange(k), n)
    rows = np.repeat(np.arange(n), size)
    eligible = np.zeros((n, k), np.bool_)
    eligible[rows, who] = True
    laws = None
    if logs is not None:
        laws = np.full((n, k), -np.inf)
        laws[rows, who] = logs
    return laws, None if eligible.all() else eligible


def _whole(column: Any, name: str, source: str, row: NDArray[Any]) -> None:
    if column.null_count:
        at = int(np.asarray(column.is_null()).argmax())
        raise InvalidValue(f"{source}, row {row[at]}: {name}", None, "a list for each row")


def _cast(batch: Any, name: str, source: str) -> Any:
    """A column in the type that a log has there."""
    pa = pyarrow()
    exact = types(pa.timestamp("us", tz="UTC"), pa.string())[name]
    column = batch.column(name)
    try:
        if name == "time":
            return column.cast(exact).cast(pa.int64())
        return column if column.type == exact else column.cast(exact)
    except (pa.ArrowException, ValueError) as error:
        allowed = f"values of type {exact} ({error})"
        raise InvalidValue(f"{source}: {name}", str(column.type), allowed) from None
