"""Rules: targets that choose an arm by the context, written as a spec.

    rule:device=phone&age<30->blue,device=phone->uniform,else->red

A rule is a list of clauses, separated by commas. Each has conditions, joined by `&`, and after `->` the name
of an arm, or `uniform`. The first clause whose conditions all hold decides; `else` comes last. A condition is
`key=value`, `key<number` or `key>=number`. `age=30` holds for the numbers 30 and 30.0 and for the text "30",
`returning=true` for a flag. No condition holds for a missing value. Keys, values and arms that contain a
character other than letters, digits, `_`, `.`, `+`, `-` and inner spaces are quoted: 'a, b', with '' for a
quote.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from maillard.array_types import Bools, Floats, Ints
from maillard.decisions.contexts import Contexts, Value, value_text
from maillard.errors import InvalidValue, UnknownName

PREFIX = "rule:"
_FORMAT = "clauses such as rule:device=phone&age<30->blue,else->red"
_TOKEN = re.compile(r"\s*(?:('(?:[^']|'')*')|(->|>=|[=<&,])|([^'=<>&,]+?)(?=\s*(?:->|>=|[=<&,']|$)))")
_PLAIN = re.compile(r"[\w.+-](?:[\w.+ -]*[\w.+])?")
_UNIFORM = "uniform"
_MAX_LEVELS = 12


@dataclass(frozen=True)
class Condition:
    """A comparison of one key of the context with a value."""

    key: str
    operator: str
    "One of =, < and >=."
    value: str

    def holds(self, contexts: Contexts) -> Bools:
        """Return whether it holds, for each row."""
        column = contexts.column(self.key)
        pairs = zip(column.values, column.used.tolist(), strict=True)
        each: Bools = np.array([used and self.holds_for(value) for value, used in pairs], np.bool_)
        return each[column.codes]

    def holds_for(self, value: Value) -> bool:
        """Whether it holds for a value; an error if a text is compared with a number."""
        if value is None:
            return False
        if self.operator == "=":
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return value == _number(self.value) if is_number else value_text(value) == self.value
        if isinstance(value, str | bool):
            raise InvalidValue(f"rule: {self}", value, f"numbers as values of {self.key!r}")
        return value < float(self.value) if self.operator == "<" else value >= float(self.value)

    def __str__(self) -> str:
        return f"{_quoted(self.key)}{self.operator}{_quoted(self.value)}"


@dataclass(frozen=True)
class Clause:
    """An arm, or None for the uniform distribution, and the conditions under which it is chosen."""

    conditions: tuple[Condition, ...]
    arm: str | None

    @property
    def when(self) -> str:
        """The conditions as text; else without conditions."""
        return "&".join(map(str, self.conditions)) or "else"

    def __str__(self) -> str:
        arm = _UNIFORM if self.arm is None else "'uniform'" if self.arm == _UNIFORM else _quoted(self.arm)
        return f"{self.when}->{arm}"


@dataclass(frozen=True)
class Rule:
    """Clauses in order, of which the last has no conditions.

    >>> rule = Rule.read("rule:device=phone & age<30 -> blue, else->'uniform'")
    >>> str(rule)
    "rule:device=phone&age<30->blue,else->'uniform'"
    >>> rule.keys
    ('device', 'age')
    >>> rule.clause_of({"device": "phone", "age": 25}).arm
    'blue'
    """

    clauses: tuple[Clause, ...]

    @classmethod
    def read(cls, text: str) -> Rule:
        """Parse a spec; an error states what is wrong."""
        tokens = _tokens(text)
        clauses: list[Clause] = []
        while True:
            conditions, arm, tokens = _clause(tokens, text)
            if clauses and not clauses[-1].conditions:
                raise InvalidValue("rule", text, "else as the last clause")
            clauses.append(Clause(conditions, arm))
            if not tokens:
                break
            tokens = tokens[1:]
        if clauses[-1].conditions:
            raise InvalidValue("rule", text, "else->ARM as the last clause, for all other contexts")
        return cls(tuple(clauses))

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that the conditions use."""
        return tuple(dict.fromkeys(each.key for clause in self.clauses for each in clause.conditions))

    def __str__(self) -> str:
        return PREFIX + ",".join(map(str, self.clauses))

    def describe(self) -> str:
        """The rule as text that can be read: its spec."""
        return str(self)

    def clause_of(self, context: Mapping[str, Value]) -> Clause:
        """Return the clause that decides for a context."""
        return next(
            clause
            for clause in self.clauses
            if all(each.holds_for(context.get(each.key)) for each in clause.conditions)
        )

    def places(self, contexts: Contexts) -> Ints:
        """Return the index of the clause that decides, for each row."""
        place = np.full(len(contexts), len(self.clauses) - 1, np.int64)
        for index in range(len(self.clauses) - 2, -1, -1):
            held = [each.holds(contexts) for each in self.clauses[index].conditions]
            place[np.logical_and.reduce(held)] = index
        return place

    def probabilities(self, arms: Sequence[str]) -> Floats:
        """Return the distribution over the arms of each clause."""
        table = np.zeros((len(self.clauses), len(arms)))
        for row, clause in zip(table, self.clauses, strict=True):
            if clause.arm is None:
                row[:] = 1.0 / len(arms)
            elif clause.arm in arms:
                row[list(arms).index(clause.arm)] = 1.0
            else:
                raise UnknownName(f"{self}: arm", clause.arm, list(arms))
        return table


def common_values(counts: Mapping[str, int]) -> list[str]:
    """The values that learned rules may use: the most common ones, in this order."""
    return sorted(counts, key=lambda text: (-counts[text], text))[:_MAX_LEVELS]


def _clause(
    tokens: list[tuple[str, bool]], text: str
) -> tuple[tuple[Condition, ...], str | None, list[tuple[str, bool]]]:
    """Parse the first clause; returns its conditions, its arm and the remaining tokens."""
    conditions: list[Condition] = []
    if tokens[:1] == [("else", False)]:
        tokens = tokens[1:]
    else:
        while True:
            condition, tokens = _condition(tokens, text)
            conditions.append(condition)
            if tokens[:1] != [("&", False)]:
                break
            tokens = tokens[1:]
    if tokens[:1] != [("->", False)] or len(tokens) < 2 or _is_operator(tokens[1]):
        raise InvalidValue("rule", text, "-> and an arm after the conditions, " + _FORMAT)
    (word, quoted), rest = tokens[1], tokens[2:]
    if rest and rest[0] != (",", False):
        raise InvalidValue("rule", text, "a comma between clauses, " + _FORMAT)
    if rest and len(rest) == 1:
        raise InvalidValue("rule", text, "a clause after the last comma")
    return tuple(conditions), None if word == _UNIFORM and not quoted else word, rest


def _condition(tokens: list[tuple[str, bool]], text: str) -> tuple[Condition, list[tuple[str, bool]]]:
    operators = [("=", False), ("<", False), (">=", False)]
    complete = len(tokens) >= 3 and not _is_operator(tokens[0]) and not _is_operator(tokens[2])
    if not complete or tokens[1] not in operators:
        allowed = "conditions key=value, key<number or key>=number, " + _FORMAT
        raise InvalidValue("rule", text, allowed)
    (key, _), (operator, _), (value, _) = tokens[:3]
    if operator == "=":
        return Condition(key, operator, value), tokens[3:]
    if _number(value) is None:
        raise InvalidValue(f"rule: {key}{operator}", value, "a number")
    return Condition(key, operator, value), tokens[3:]


def _number(text: str) -> float | None:
    """Return text as a finite number; None if it is something else."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _is_operator(token: tuple[str, bool]) -> bool:
    return not token[1] and token[0] in ("->", ">=", "=", "<", "&", ",")


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Return the words and operators of a spec, and whether each was quoted."""
    found: list[tuple[str, bool]] = []
    place, body = 0, text.strip().removeprefix(PREFIX).rstrip()
    while place < len(body):
        match = _TOKEN.match(body, place)
        if match is None:
            allowed = "closed quotes, and no single > or other operator outside of them, " + _FORMAT
            raise InvalidValue("rule", text, allowed)
        quoted, operator, word = match.groups()
        found.append((quoted[1:-1].replace("''", "'"), True) if quoted else (operator or word.strip(), False))
        place = match.end()
    if not found:
        raise InvalidValue("rule", text, _FORMAT)
    return found


def _quoted(word: str) -> str:
    plain = _PLAIN.fullmatch(word) and word not in ("else", _UNIFORM)
    return word if plain else "'" + word.replace("'", "''") + "'"
