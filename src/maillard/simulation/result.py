"""The results of `simulate`: regret at checkpoints and pulls of every trial, with their provenance."""

from __future__ import annotations

import json
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.errors import InvalidValue, MaillardError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_FORMAT, _ARRAYS = "maillard simulation 1", ("rounds", "values", "pulls")


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

    def plot(self, kind: str = "curves") -> Figure:
        """Return a figure of mean "curves" with bands (5% to 95% quantile), or of final "distributions"."""
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


@dataclass(frozen=True, eq=False)
class Result(Outcome):
    """Regret (or loss, for a threshold problem) and pulls of every trial of every policy."""

    policies: tuple[str, ...]
    measure: str  # "regret" or "loss"
    rounds: NDArray[np.int64]  # the checkpoints
    values: Floats  # policy x trial x checkpoint
    pulls: NDArray[np.int64]  # policy x trial x arm
    provenance: dict[str, Any]

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

    def save(self, path: str | Path) -> None:
        """Write everything to an .npz file that `Result.load` reads."""
        header: dict[str, Any] = {"format": _FORMAT, "labels": self.policies, "measure": self.measure}
        header["provenance"] = self.provenance
        path = Path(path)
        if path.suffix != ".npz":
            raise InvalidValue("path", str(path), "a name that ends in .npz")
        with path.open("wb") as file:
            arrays = {name: getattr(self, name) for name in _ARRAYS}
            np.savez_compressed(file, header=np.array(json.dumps(header)), **arrays)

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
