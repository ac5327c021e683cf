"""The types of features. Each turns a value into one column of the feature and its number.

A number is counted in grid units, whole multiples of 2**-16. All other columns of the feature are 0.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np

from maillard.errors import InvalidValue
from maillard.feature_grid import STEPS
from maillard.short_reprs import dataclass_repr

_OTHER = "(other)"
_MAX_CACHED_TEXT = 200  # characters of a text whose hash is cached
_FORMS = "a range (low, high), a list of levels, bool, hashed(m), or number(), category() or flag()"


@dataclass(frozen=True, repr=False)
class FeatureType(ABC):
    """How a value becomes numbers."""

    kind: ClassVar[str]
    default: Any = field(default=None, kw_only=True)
    "The value to use if a value is missing; None if a missing value is an error."

    __repr__ = dataclass_repr

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of columns."""

    @abstractmethod
    def columns(self, name: str) -> list[str]:
        """Names of the columns."""

    @abstractmethod
    def encode(self, name: str, value: Any) -> tuple[int, int]:
        """The column that is not 0, and its number in grid units."""

    def default_for(self, name: str) -> Any:
        """The default; a missing value is an error if there is none."""
        if self.default is None:
            raise InvalidValue(name, None, "a value, because the feature declares no default")
        return self.default

    def remark(self, value: Any) -> str | None:
        """What is worth counting about a value: "default", "clipped", "other" or nothing."""
        return "default" if value is None else None

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """The arguments of the type, as plain data."""

    def to_data(self) -> dict[str, Any]:
        """The type as plain data, for `type_from_data`."""
        default = {} if self.default is None else {"default": self.default}
        return {"type": self.kind, **self.options(), **default}

    def _check_default(self) -> None:
        if isinstance(self.default, np.generic):
            object.__setattr__(self, "default", self.default.item())
        if self.default is not None:
            self.encode("default", self.default)


@dataclass(frozen=True, repr=False)
class Number(FeatureType):
    """A number from `low` to `high`, scaled to -1 to 1. Values outside are clipped."""

    kind = "number"
    low: float
    high: float

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, _finite(name, getattr(self, name)))
        if not self.low < self.high or math.isinf(self.high - self.low):
            raise InvalidValue("range", (self.low, self.high), "low < high, with a finite difference")
        self._check_default()
        if self.default is not None and not self.low <= self.default <= self.high:
            raise InvalidValue("default", self.default, f"a number from {self.low} to {self.high}")

    @property
    def width(self) -> int:
        return 1

    def columns(self, name: str) -> list[str]:
        return [name]

    def encode(self, name: str, value: Any) -> tuple[int, int]:
        number = value if type(value) is float and -math.inf < value < math.inf else _finite(name, value)
        low, high = self.low, self.high
        inside = low if number < low else high if number > high else number  # noqa: FURB136  # much faster
        return 0, round(((inside - low) / (high - low) * 2.0 - 1.0) * STEPS)

    def encode_all(self, values: np.ndarray) -> tuple[np.ndarray, int]:
        """Encode an array of finite numbers as `encode` does: the grid units, and how many were clipped."""
        inside = np.clip(values, self.low, self.high)
        units = np.rint(((inside - self.low) / (self.high - self.low) * 2.0 - 1.0) * STEPS)
        return units.astype(np.int64), int(np.count_nonzero(inside != values))

    def remark(self, value: Any) -> str | None:
        return super().remark(value) if value is None or self.low <= float(value) <= self.high else "clipped"

    def options(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high}


@dataclass(frozen=True, repr=False)
class Flag(FeatureType):
    """True or False (or 1 or 0): one column that is 1 or 0."""

    kind = "flag"

    def __post_init__(self) -> None:
        self._check_default()

    @property
    def width(self) -> int:
        return 1

    def columns(self, name: str) -> list[str]:
        return [name]

    def encode(self, name: str, value: Any) -> tuple[int, int]:
        if value is True:
            return 0, STEPS
        if value is False:
            return 0, 0
        if isinstance(value, int | float) and value in (0, 1):
            return 0, STEPS if value else 0
        raise InvalidValue(name, value, "True or False")

    def options(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, repr=False)
class Category(FeatureType):
    """One of several levels: one 0/1 column per level, and one for any other value."""

    kind = "category"
    levels: tuple[str, ...]
    _places: dict[str, int] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        if isinstance(self.levels, str | bytes) or not isinstance(self.levels, Iterable):
            raise InvalidValue("levels", self.levels, "a list of levels")
        levels = tuple(text_of("level", level) for level in self.levels)
        if not levels or len(set(levels)) < len(levels):
            raise InvalidValue("levels", list(levels), "at least one level, each once")
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "_places", {level: place for place, level in enumerate(levels)})
        self._check_default()

    @property
    def width(self) -> int:
        return len(self.levels) + 1

    def columns(self, name: str) -> list[str]:
        return [f"{name}={level}" for level in (*self.levels, _OTHER)]

    def encode(self, name: str, value: Any) -> tuple[int, int]:
        text = value if type(value) is str else text_of(name, value)
        return self._places.get(text, len(self.levels)), STEPS

    def remark(self, value: Any) -> str | None:
        return super().remark(value) if value is None or text_of("", value) in self._places else "other"

    def options(self) -> dict[str, Any]:
        return {"levels": list(self.levels)}


@dataclass(frozen=True, repr=False)
class Hashed(FeatureType):
    """A category with many levels, hashed into `buckets` 0/1 columns."""

    kind = "hashed"
    buckets: int
    numbers: Literal["text", "bins"] = field(default="text", kw_only=True)
    "Whether a number is a category of its own, or belongs to a bin with numbers of similar size."

    def __post_init__(self) -> None:
        if type(self.buckets) is not int or self.buckets < 1:
            raise InvalidValue("buckets", self.buckets, "a whole number >= 1")
        if self.numbers not in ("text", "bins"):
            raise InvalidValue("numbers", self.numbers, "'text' or 'bins'")
        self._check_default()

    @property
    def width(self) -> int:
        return self.buckets

    def columns(self, name: str) -> list[str]:
        return [f"{name}#{bucket}" for bucket in range(self.buckets)]

    def encode(self, name: str, value: Any) -> tuple[int, int]:
        return self.bucket(name, value if type(value) is str else self.text(name, value)), STEPS

    def text(self, name: str, value: Any) -> str:
        """The text of a value, which is hashed."""
        if self.numbers == "bins" and isinstance(value, int | float) and not isinstance(value, bool):
            return bin_of(_finite(name, value))
        return text_of(name, value)

    def bucket(self, name: str, text: str) -> int:
        """The first 8 bytes of the BLAKE2b hash of the text, as a big-endian number, modulo `buckets`."""
        try:
            number = _cached_hash(text) if len(text) <= _MAX_CACHED_TEXT else _hash(text)
        except UnicodeEncodeError:
            raise InvalidValue(name, text, "text that can be encoded as UTF-8") from None
        return number % self.buckets

    def options(self) -> dict[str, Any]:
        return {"buckets": self.buckets} | ({} if self.numbers == "text" else {"numbers": self.numbers})


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode()).digest()[:8], "big")


_cached_hash = lru_cache(maxsize=1 << 15)(_hash)


def bin_of(number: float) -> str:
    """The bin of a number, as text: its end that is nearer to 0. There are two bins per power of 2.

    >>> [bin_of(each) for each in (0, 18, 24, 36.5, 47, -0.3)]
    ['~0.0', '~16.0', '~24.0', '~32.0', '~32.0', '~-0.25']
    """
    half = math.ldexp(1.0, math.frexp(number)[1] - 1)  # the largest power of 2 that is at most |number|
    end = half * 1.5 if abs(number) >= 1.5 * half else half
    return f"~{math.copysign(end, number)}" if number else "~0.0"


def number(low: float, high: float, *, default: float | None = None) -> Number:
    """A number from `low` to `high`; the short form is `(low, high)`.

    >>> number(18, 90, default=40)
    Number(default=40, low=18.0, high=90.0)
    """
    return Number(low, high, default=default)


def flag(*, default: bool | None = None) -> Flag:
    """True or False; the short form is `bool`.

    >>> flag(default=False)
    Flag(default=False)
    """
    return Flag(default=default)


def category(levels: Iterable[str], *, default: str | None = None) -> Category:
    """One of several levels; the short form is a list of them.

    A default that is not a level belongs to "other", like any such value.

    >>> category(["phone", "desktop"], default="phone")
    Category(default='phone', levels=('phone', 'desktop'))
    """
    return Category(levels, default=default)  # type: ignore[arg-type]  # becomes a tuple


def hashed(buckets: int, *, default: str | None = None, numbers: Literal["text", "bins"] = "text") -> Hashed:
    """A category with too many levels to list them, hashed into `buckets` columns.

    With `numbers="bins"`, a number belongs to the bin of numbers of similar size. By default, whole numbers
    are categories like texts, and other numbers are refused.

    >>> hashed(64, default="unknown")
    Hashed(default='unknown', buckets=64, numbers='text')
    >>> from maillard import Features
    >>> Features({"city": hashed(64)}).dimension  # with the intercept
    65
    """
    return Hashed(buckets, default=default, numbers=numbers)


def type_of(name: str, declared: object) -> FeatureType:
    """The type that a declaration in short or long form means."""
    try:
        match declared:
            case FeatureType():
                return declared
            case type() if declared is bool:
                return Flag()
            case tuple((int() | float() as low, int() | float() as high)):
                return Number(low, high)
            case list() | tuple():
                return Category(tuple(declared))
    except InvalidValue as error:
        raise error.with_location(f"features[{name!r}]") from None
    raise InvalidValue(f"features[{name!r}]", declared, _FORMS)


def type_from_data(data: Any) -> FeatureType:
    """The type that `FeatureType.to_data` wrote."""
    types: dict[str, type[FeatureType]] = {cls.kind: cls for cls in (Number, Flag, Category, Hashed)}
    if not isinstance(data, dict) or data.get("type") not in list(types):
        raise InvalidValue("feature", data, f"an object with the type {', '.join(types)}")
    try:
        return types[data["type"]](**{name: value for name, value in data.items() if name != "type"})
    except TypeError:
        raise InvalidValue("feature", data, f"the fields of a {data['type']}") from None


def plain(value: Any) -> Any:
    """The value as a Python object; None if it is missing (None, NaN, or the NA or NaT of pandas)."""
    if isinstance(value, np.generic):
        value = value.item()
    is_nan = isinstance(value, float) and math.isnan(value)
    return None if is_nan or type(value).__name__ in ("NAType", "NaTType") else value


def _finite(name: str, value: Any) -> float:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            converted = float(value)
        except OverflowError:
            converted = math.inf
        if math.isfinite(converted):
            return converted
    raise InvalidValue(name, value, "a finite number")


def text_of(name: str, value: Any) -> str:
    """The text of a category's value: whole numbers are written in decimal digits."""
    if isinstance(value, str):
        return str(value)
    # A column of whole numbers with missing values is a column of floats in pandas.
    whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    if whole and abs(value) < 2**64:
        return str(int(value))
    raise InvalidValue(name, value, "text or a whole number of at most 64 bits")
