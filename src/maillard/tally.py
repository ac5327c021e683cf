"""Tallies: the number of observed rewards of each arm, and their exact sum.

A tally is the whole state of a policy. Tallies of several processes can be added in any order with identical
results, because sums are kept without rounding; `sums` contains the exact sums, rounded once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from maillard.array_types import Bools, Floats, Ints
from maillard.errors import InvalidValue
from maillard.short_reprs import fields_repr
from maillard.tally_display import TallyDisplay

# Every finite float is an integer multiple of 2**-1074, so sums of such multiples are exact integers. To
# divide them by _ONE gives the correctly rounded float.
_SCALE = 1074
_ONE = 1 << _SCALE


def _to_fixed(value: float) -> int:
    numerator, denominator = value.as_integer_ratio()
    return numerator * (_ONE // denominator)


class Tally(TallyDisplay):
    """The number of pulls and the sum of rewards of each arm.

    >>> tally = Tally(pulls=[2, 1], sums=[1.0, 1.0])
    >>> tally.add(1, 0.0)
    >>> tally.means, tally.round
    (array([0.5, 0.5]), 5)
    >>> tally + Tally(pulls=[1, 0], sums=[0.25, 0])
    Tally(pulls=[3, 2], sums=[1.25, 1.0])

    Sums do not depend on the order of the rewards:

    >>> a, b = Tally.empty(1), Tally.empty(1)
    >>> for reward in (1e16, 1.0, -1e16): a.add(0, reward)
    >>> for reward in (1e16, -1e16, 1.0): b.add(0, reward)
    >>> a == b, a.sums
    (True, array([1.]))
    """

    __hash__ = None  # type: ignore[assignment]  # mutable, so not hashable
    __slots__ = ("_pulls", "_residues", "_sums", "pulls", "round", "sums")

    pulls: Ints
    "Number of observed rewards of each arm (read-only)."
    sums: Floats
    "Sum of the rewards of each arm: the exact sum, rounded once (read-only)."
    round: int
    "1 + the pulls of all arms."

    def __init__(self, pulls: ArrayLike, sums: ArrayLike) -> None:
        counts = _whole_numbers(pulls)
        totals = _finite_numbers(sums)
        if counts.ndim != 1 or counts.size == 0:
            raise InvalidValue("pulls", pulls, "a list with one number per arm and at least one arm")
        if counts.sum(dtype=np.float64) > 2.0**62:
            raise InvalidValue("pulls", float(counts.sum(dtype=np.float64)), "a total of at most 2**62")
        if totals.shape != counts.shape:
            raise InvalidValue("sums", sums, f"{counts.size} numbers, as many as pulls")
        if np.any(totals[counts == 0]):
            arm = int(np.flatnonzero((counts == 0) & (totals != 0))[0])
            raise InvalidValue(f"sums[{arm}]", float(totals[arm]), "0, because the arm has no pulls")
        self._assign(counts, totals, {})

    def _assign(self, pulls: Ints, sums: Floats, residues: dict[int, int]) -> None:
        self._pulls, self._sums = pulls, sums
        # The rounding error of `sums` as an integer multiple of 2**-1074, for arms where it is not 0.
        self._residues = residues
        self.pulls, self.sums = pulls.view(), sums.view()
        self.pulls.flags.writeable = self.sums.flags.writeable = False
        self.round = 1 + int(pulls.sum())

    @classmethod
    def empty(cls, arms: int) -> Tally:
        """Return a tally of `arms` arms without any rewards."""
        if isinstance(arms, bool) or not isinstance(arms, int | np.integer) or arms < 1:
            raise InvalidValue("arms", arms, "a whole number >= 1")
        return cls(np.zeros(arms, np.int64), np.zeros(arms))

    def __len__(self) -> int:
        return self._pulls.size

    @property
    def means(self) -> Floats:
        """The mean reward of each arm; NaN for an arm without pulls."""
        means = np.full(len(self), np.nan)
        np.divide(self._sums, self._pulls, out=means, where=self._pulls > 0)
        return means

    @property
    def is_exact(self) -> bool:
        """Whether `sums` are the exact sums, so that nothing was rounded."""
        return not self._residues

    def add(self, arm: int, reward: float) -> None:
        """Add one observed reward of an arm, in place."""
        if isinstance(arm, bool) or not isinstance(arm, int | np.integer) or not 0 <= arm < len(self):
            raise InvalidValue("arm", arm, f"a whole number from 0 to {len(self) - 1}")
        try:
            value = math.nan if isinstance(reward, str | bytes) else float(reward)
        except (TypeError, ValueError, OverflowError):
            value = math.nan
        if not math.isfinite(value):
            raise InvalidValue("reward", reward, "a finite number")
        self._add_exactly(int(arm), value, 0)
        self._pulls[arm] += 1
        self.round += 1

    def revise(self, arm: int, old: float, new: float) -> None:
        """Replace one observed reward of an arm, in place and exactly.

        >>> tally = Tally([3], [0.75])
        >>> tally.revise(0, 0.25, 1.0)
        >>> tally
        Tally(pulls=[3], sums=[1.5])
        """
        if not isinstance(arm, int) or not 0 <= arm < len(self) or not self._pulls[arm]:
            raise InvalidValue("arm", arm, "the position of an arm with at least one observed reward")
        # A single exact step, so no intermediate sum can overflow.
        self._add_exactly(arm, new, -_to_fixed(old))

    def remove(self, arm: int, reward: float, count: int = 1) -> None:
        """Remove an observed reward of an arm, or `count` equal ones, in place and exactly.

        >>> tally = Tally([3], [0.75])
        >>> tally.remove(0, 0.25, 2)
        >>> tally
        Tally(pulls=[1], sums=[0.25])
        """
        if not isinstance(arm, int) or not 0 <= arm < len(self) or self._pulls[arm] < count:
            raise InvalidValue("arm", arm, f"the position of an arm with at least {count} observed rewards")
        self._add_exactly(arm, 0.0, -count * _to_fixed(reward))
        self._pulls[arm] -= count
        self.round -= count

    def only(self, arm: int) -> Tally:
        """Return the tally of one arm.

        >>> Tally([2, 1], [1.0, 0.5]).only(1).sums
        array([0.5])
        """
        single = Tally.__new__(Tally)
        rest = {0: self._residues[arm]} if arm in self._residues else {}
        single._assign(self._pulls[arm : arm + 1].copy(), self._sums[arm : arm + 1].copy(), rest)
        return single

    @classmethod
    def joined(cls, parts: Sequence[Tally]) -> Tally:
        """Concatenate the arms of several tallies.

        >>> Tally.joined([Tally([2], [1]), Tally.empty(1)])
        Tally(pulls=[2, 0], sums=[1.0, 0.0])
        """
        combined, residues, start = cls.__new__(cls), {}, 0
        for part in parts:
            residues.update({start + arm: rest for arm, rest in part._residues.items()})
            start += len(part)
        pulls = np.concatenate([part._pulls for part in parts])
        combined._assign(pulls, np.concatenate([part._sums for part in parts]), residues)
        return combined

    def _add_exactly(self, arm: int, value: float, residue: int) -> None:
        before = float(self._sums[arm])
        after = before + value
        residue += self._residues.pop(arm, 0)
        # Knuth's two-sum computes the rounding error of a + b exactly.
        part = after - before
        lost = (before - (after - part)) + (value - part)
        if residue or lost != 0.0:  # also true for NaN, when the sum overflowed
            exact = _to_fixed(before) + _to_fixed(value) + residue
            try:
                after = exact / _ONE
            except OverflowError:
                raise InvalidValue(
                    f"sums[{arm}]", value, "a reward that keeps the sum within the range of floats"
                ) from None
            if rest := exact - _to_fixed(after):
                self._residues[arm] = rest
        self._sums[arm] = after

    def __add__(self, other: Tally) -> Tally:
        if not isinstance(other, Tally):
            return NotImplemented
        if len(other) != len(self):
            raise InvalidValue("tally", len(other), f"a tally of {len(self)} arms, like the other")
        merged = self.copy()
        merged._merge(other)
        return merged

    def _merge(self, other: Tally) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            after = self._sums + other._sums
            part = after - self._sums
            lost = (self._sums - (after - part)) + (other._sums - part)
        inexact = set(np.flatnonzero(lost != 0.0).tolist()) | set(self._residues) | set(other._residues)
        before = {arm: float(self._sums[arm]) for arm in inexact}
        self._sums[:] = after
        for arm in inexact:
            self._sums[arm] = before[arm]
            self._add_exactly(arm, float(other._sums[arm]), other._residues.get(arm, 0))
        self._pulls += other._pulls
        _refuse(self._pulls > 2**53, self._pulls, "pulls", "at most 2**53 pulls per arm")
        self._assign(self._pulls, self._sums, self._residues)

    def copy(self) -> Tally:
        """Return an independent tally with the same content.

        >>> tally = Tally([2, 1], [1.0, 0.5])
        >>> tally.copy() == tally
        True
        """
        copied = Tally.__new__(Tally)
        copied._assign(self._pulls.copy(), self._sums.copy(), dict(self._residues))
        return copied

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tally):
            return NotImplemented
        return (
            np.array_equal(self._pulls, other._pulls)
            and np.array_equal(self._sums, other._sums)
            and self._residues == other._residues
        )

    def __repr__(self) -> str:
        return fields_repr("Tally", [("pulls", self._pulls), ("sums", self._sums)], what="arms")

    def _columns(self) -> dict[str, list[Any]]:
        pulls, sums = self._pulls.tolist(), self._sums.tolist()
        return {"arm": list(range(len(self))), "pulls": pulls, "sum": sums, "mean": self.means.tolist()}

    def __getstate__(self) -> dict[str, Any]:
        return {"pulls": self._pulls, "sums": self._sums, "residues": self._residues}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._assign(state["pulls"].copy(), state["sums"].copy(), dict(state["residues"]))

    def to_json(self) -> str:
        """Return JSON from which `from_json` restores an equal tally, including the exact sums.

        A sum that no float represents exactly is written as a list of floats that add up to it:

        >>> tally = Tally.empty(2)
        >>> for _ in range(3): tally.add(0, 0.1)
        >>> tally.to_json()
        '{"pulls": [3, 0], "sums": [[0.30000000000000004, -2.7755575615628914e-17], 0.0]}'
        """
        sums: list[float | list[float]] = self._sums.tolist()
        for arm, residue in self._residues.items():
            parts, rest = [float(self._sums[arm])], residue
            while rest:
                parts.append(rest / _ONE)
                rest -= _to_fixed(parts[-1])
            sums[arm] = parts
        return json.dumps({"pulls": self._pulls.tolist(), "sums": sums})

    @classmethod
    def from_json(cls, text: str | bytes) -> Tally:
        """Return the tally that `to_json` wrote.

        >>> tally = Tally([2, 1], [1.0, 0.5])
        >>> Tally.from_json(tally.to_json()) == tally
        True
        """
        try:
            data = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidValue("tally", text, f"valid JSON ({error})") from None
        if not isinstance(data, dict) or set(data) != {"pulls", "sums"}:
            raise InvalidValue("tally", data, 'an object with "pulls" and "sums"')
        if not isinstance(data["sums"], list) or not isinstance(data["pulls"], list):
            raise InvalidValue("tally", data, '"pulls" and "sums" as lists')
        first = [parts[0] if isinstance(parts, list) and parts else parts for parts in data["sums"]]
        tally = cls(data["pulls"], first)
        for arm, parts in enumerate(data["sums"]):
            if isinstance(parts, list):
                if not tally._pulls[arm]:
                    raise InvalidValue(f"sums[{arm}]", parts, "0, because the arm has no pulls")
                rest = _finite_numbers(parts[1:])
                if rest.ndim != 1:
                    raise InvalidValue(f"sums[{arm}]", parts, "a number, or a list of numbers")
                for part in rest.tolist():
                    tally._add_exactly(arm, part, 0)
        return tally


def _numbers(values: ArrayLike, field: str, allowed: str) -> NDArray[Any]:
    try:
        array = np.asarray(values)
        # Python integers with more than 64 bits, or an empty list.
        if array.dtype.kind == "O" or not array.size:
            array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidValue(field, values, allowed) from None
    if array.dtype.kind not in "iuf":
        raise InvalidValue(field, values, allowed)
    return array


def _whole_numbers(values: ArrayLike) -> Ints:
    allowed = "whole numbers from 0 to 2**53"
    array = _numbers(values, "pulls", allowed)
    bad = ~((array >= 0) & (array <= 2.0**53))
    if array.dtype.kind == "f":
        bad |= array != np.floor(array)
    _refuse(bad, array, "pulls", allowed)
    return array.astype(np.int64)


def _finite_numbers(values: ArrayLike) -> Floats:
    with np.errstate(over="ignore"):
        array = _numbers(values, "sums", "finite numbers").astype(np.float64)
    _refuse(~np.isfinite(array), array, "sums", "finite numbers")
    return array


def _refuse(bad: Bools, array: NDArray[Any], field: str, allowed: str) -> None:
    if bad.any():
        place = np.unravel_index(int(np.argmax(bad)), bad.shape)
        where = "".join(f"[{int(i)}]" for i in place)
        raise InvalidValue(f"{field}{where}", array[place].item(), allowed)
