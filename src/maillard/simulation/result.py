"""The results of `simulate`: regret at checkpoints and pulls of every trial, with their provenance."""

from __future__ import annotations

import json
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard import html_fragments
from maillard.errors import InvalidValue, MaillardError
from maillard.optional_packages import data_frame, needs_extra
from maillard.short_reprs import COLUMNS, cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from pandas import DataFrame

    Floats = NDArray[np.float64]

_FORMAT, _ARRAYS = "maillard simulation 1", ("rounds", "values", "pulls")
_SHOWN = 20  # policies that a representation lists


class Outcome:
    """What `Result` and `Summary` have in common."""

    policies: tuple[str, ...]
    measure: str  # "regret" or "loss"
    rounds: NDArray[np.int64]  # the checkpoints
    provenance: dict[str, Any]
    mean: Any
    sd: Any
    max: Any
    final: Any
    trials: Any

    def quantile(self, q: float | Sequence[float]) -> Floats:
        """Quantiles over trials: policy x checkpoint, or with several q, q first."""
        raise NotImplementedError

    @property
    def final_regret(self) -> Floats:
        """Cumulative regret at the horizon: policy x trial."""
        return self._require("regret", self.final)

    @property
    def mean_regret(self) -> Floats:
        """Mean over trials: policy x checkpoint."""
        return self._require("regret", self.mean)

    @property
    def final_loss(self) -> Floats:
        """For a threshold problem, whether the final answer is wrong: policy x trial."""
        return self._require("loss", self.final)

    @property
    def mean_loss(self) -> Floats:
        """For a threshold problem, the fraction of wrong answers: policy x checkpoint."""
        return self._require("loss", self.mean)

    @property
    def standard_error(self) -> Floats:
        """Standard error of the mean: policy x checkpoint."""
        return np.asarray(self.sd / np.sqrt(self.trials))

    def tail(self, above: float) -> NDArray[np.int64]:
        """Return the number of trials whose final regret (or loss) exceeds a value, for each policy."""
        return np.asarray((self.final > above).sum(axis=1))

    def _require(self, measure: str, values: Floats) -> Floats:
        if measure != self.measure:
            raise MaillardError(f"this problem has no {measure}; use {self.measure}")
        return values

    def summary(self) -> list[dict[str, Any]]:
        """Return one row per policy with statistics over trials, at the horizon.

        The keys are policy, mean, standard error, deviation, median, 95% (the quantile) and max.
        """
        last = self.final
        median, high = np.quantile(last, (0.5, 0.95), axis=1)
        columns = {
            "mean": self.mean[:, -1],
            "standard error": self.standard_error[:, -1],
            "deviation": self.sd[:, -1],
            "median": median,
            "95%": high,
            "max": last.max(axis=1),
        }
        return [
            {"policy": name} | {column: float(values[i]) for column, values in columns.items()}
            for i, name in enumerate(self.policies)
        ]

    @property
    def _title(self) -> str:
        count = "1 policy" if len(self.policies) == 1 else f"{len(self.policies)} policies"
        return f"{self.measure} of {count} on {self.provenance['problem']}"

    @property
    def _sizes(self) -> str:
        return f"{self.trials:,} trials of {int(self.rounds[-1]):,} rounds"

    def __dir__(self) -> list[str]:
        # A problem has regret or loss, and the attributes of the other raise an error.
        other = {"regret": "loss", "loss": "regret"}[self.measure]
        hidden = {other, f"final_{other}", f"mean_{other}"}
        return [name for name in super().__dir__() if name not in hidden]

    def __repr__(self) -> str:
        """The final mean of each policy with its standard error, and the distribution over trials."""
        head = ("policy", "mean ± standard error", "median", "95%", "max")
        rows = self.summary()
        table: list[tuple[str, ...]] = [head]
        for row in rows[:_SHOWN]:
            middle = f"{row['mean']:.4g} ± {row['standard error']:.2g}"
            table.append((cut(row["policy"], 50), middle, *(f"{row[name]:.4g}" for name in head[2:])))
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in table
        ]
        title = cut(f"{type(self).__name__}: {self._title}, {self._sizes}", COLUMNS)
        more = [f"... and {len(rows) - _SHOWN} more policies"] if len(rows) > _SHOWN else []
        return "\n".join([title, *lines, *more])

    def _repr_html_(self) -> str:
        rows = self.summary()
        names = [name for name in rows[0] if name != "policy"]
        least = min(range(len(rows)), key=lambda place: float(rows[place]["mean"]))
        table = html_fragments.table(
            ["policy", *names],
            [[html_fragments.code(row["policy"]), *(row[name] for name in names)] for row in rows],
            marked=[least],
            caption=f"Final {self.measure} over trials; the least mean is bold",
        )
        return html_fragments.fragment(f"{type(self).__name__}: {self._title}", table, facts=self._sizes)

    @needs_extra("notebook")
    def plot(self, kind: str = "curves") -> Figure:
        """Return a figure of mean "curves" with bands (5% to 95% quantile), or of final "distributions".

        >>> import maillard
        >>> result = maillard.simulate(["ms+", "ts"], "bernoulli:0.6,0.4", horizon=100, trials=5)
        >>> result.plot().get_size_inches().tolist()
        [8.6, 4.8]
        """
        from maillard import figures

        title = f"{self.provenance['problem']}, {self.trials} trials"
        if kind == "curves":
            low, high = self.quantile([0.05, 0.95])
            return figures.curves(
                self.rounds, self.policies, self.mean, low, high, label=self.measure, title=title
            )
        if kind == "distributions":
            return figures.distributions(
                self.policies, self.final, label=f"final {self.measure}", title=title
            )
        raise InvalidValue("kind", kind, "curves or distributions")

    def to_frame(self, kind: str = "curves") -> DataFrame:
        """Return a pandas data frame with the "curves", the values of the "trials", or the "summary".

        - "curves": a row for each policy and checkpoint, with the columns `policy`, `round`, `mean`,
          `standard error`, `5%`, `median`, `95%` and `max` (over trials).
        - "trials": a row for each policy, trial and checkpoint, with the columns `policy`, `trial`, `round`
          and `regret` (or `loss`). A `Summary` has these values only at the horizon.
        - "summary": a row for each policy, with what `summary()` returns.

        >>> import maillard
        >>> result = maillard.simulate(["ms+", "ts"], "bernoulli:0.6,0.4", horizon=100, trials=5)
        >>> result.to_frame().columns.tolist()
        ['policy', 'round', 'mean', 'standard error', '5%', 'median', '95%', 'max']
        >>> result.to_frame("trials").query("round == 100")["policy"].value_counts().to_dict()
        {'ms+': 5, 'ts': 5}
        """
        if kind == "summary":
            rows = self.summary()
            return data_frame({name: [row[name] for row in rows] for name in rows[0]})
        if kind not in ("curves", "trials"):
            raise InvalidValue("kind", kind, "curves, trials or summary")
        if kind == "curves":
            low, median, high = self.quantile([0.05, 0.5, 0.95])
            columns = {"mean": self.mean, "standard error": self.standard_error, "5%": low}
            columns |= {"median": median, "95%": high, "max": self.max}
            policy, place = np.indices(self.mean.shape).reshape(2, -1)
            index: dict[str, Any] = {"policy": np.array(self.policies)[policy], "round": self.rounds[place]}
            return data_frame(index | {name: values.ravel() for name, values in columns.items()})
        rounds, values = self._trials()
        policy, trial, place = np.indices(values.shape).reshape(3, -1)
        index = {"policy": np.array(self.policies)[policy], "trial": trial, "round": rounds[place]}
        return data_frame(index | {self.measure: values.ravel()})

    def _trials(self) -> tuple[NDArray[np.int64], Floats]:
        """Checkpoints, and the values of each trial there: policy x trial x checkpoint."""
        return self.rounds[-1:], self.final[:, :, np.newaxis]


@dataclass(frozen=True, eq=False)
class Result(Outcome):
    """Regret (or loss, for a threshold problem) and pulls of every trial of every policy.

    >>> from maillard import simulate
    >>> result = simulate(["ms", "uniform"], "bernoulli:0.5,0.4", horizon=100, trials=10, seed=1)
    >>> result.values.shape, result.pulls.shape
    ((2, 10, 41), (2, 10, 2))
    >>> [row["policy"] for row in result.summary()], result.mean_regret[:, -1].round(2)
    (['ms', 'uniform'], array([4.35, 4.99]))
    >>> result.quantile([0.05, 0.95])[:, :, -1].round(1), result.tail(above=4)
    (array([[2. , 4.4],
           [6.6, 5.6]]), array([ 6, 10]))
    >>> result.plot().savefig("regret.png")
    >>> result.save("result.npz")
    >>> Result.load("result.npz").trials
    10
    """

    policies: tuple[str, ...]
    measure: str  # "regret" or "loss"
    rounds: NDArray[np.int64]  # the checkpoints
    values: Floats  # policy x trial x checkpoint
    pulls: NDArray[np.int64]  # policy x trial x arm
    provenance: dict[str, Any]

    __repr__ = Outcome.__repr__

    @property
    def regret(self) -> Floats:
        """Cumulative regret: policy x trial x checkpoint."""
        return self._require("regret", self.values)

    @property
    def trials(self) -> int:
        """Number of trials of each policy."""
        return int(self.values.shape[1])

    @property
    def final(self) -> Floats:
        """Regret or loss at the horizon: policy x trial."""
        return self.values[:, :, -1]

    @property
    def mean(self) -> Floats:
        """Mean over trials: policy x checkpoint."""
        return np.asarray(self.values.mean(axis=1))

    @property
    def sd(self) -> Floats:
        """Standard deviation over trials: policy x checkpoint; 0 for a single trial."""
        more = self.trials > 1
        return np.asarray(self.values.std(axis=1, ddof=1)) if more else np.zeros_like(self.mean)

    @property
    def max(self) -> Floats:
        """Maximum over trials: policy x checkpoint."""
        return np.asarray(self.values.max(axis=1))

    def quantile(self, q: float | Sequence[float]) -> Floats:
        """Quantiles over trials: policy x checkpoint, or with several q, q first."""
        return np.asarray(np.quantile(self.values, q, axis=1))

    def _trials(self) -> tuple[NDArray[np.int64], Floats]:
        return self.rounds, self.values

    def save(self, path: str | Path) -> None:
        """Write everything to an .npz file that `Result.load` reads."""
        header: dict[str, Any] = {"format": _FORMAT, "labels": self.policies, "measure": self.measure}
        header["provenance"] = self.provenance
        path = Path(path)
        if path.suffix != ".npz":
            raise InvalidValue("path", str(path), "a name that ends in .npz")
        arrays = {"header": np.array(json.dumps(header)), **{name: getattr(self, name) for name in _ARRAYS}}
        # As np.savez_compressed, which has no such level: a fifth of the time for a quarter more bytes.
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
            for name, array in arrays.items():
                with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)

    @classmethod
    def load(cls, path: str | Path) -> Result:
        """Read a file written by `save`."""
        try:
            with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as stored:
                header = json.loads(str(stored["header"]))
                arrays = {name: stored[name] for name in _ARRAYS}
                if header["format"] != _FORMAT:
                    raise KeyError("format")  # noqa: TRY301  # reported like every other defect of the file
                labels, measure, provenance = tuple(header["labels"]), header["measure"], header["provenance"]
        except FileNotFoundError:
            raise InvalidValue("path", str(path), "an existing file") from None
        except (ValueError, KeyError, TypeError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
            reason = f"a file written by Result.save ({type(error).__name__}: {error})"
            raise InvalidValue("path", str(path), reason) from None
        return cls(labels, measure, **arrays, provenance=provenance)
