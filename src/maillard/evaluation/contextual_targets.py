"""Targets whose distribution depends on the row: rules, functions of the context, and frozen policies.

Each gives, for a batch of rows, a table of distributions and the place of each row in it. Estimators see only
these, so they do not know what a target depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard.array_types import Bools, Floats, Ints
from maillard.decisions.columns import Columns
from maillard.decisions.contexts import Contexts, context_key
from maillard.decisions.encoded_contexts import decode, encode, has_row_of_each_arm
from maillard.decisions.state import State
from maillard.errors import CannotAnswer, InvalidValue, UnknownName
from maillard.evaluation.bound_targets import Target, shortened
from maillard.evaluation.linear_rules import LinearRule
from maillard.evaluation.rules import Rule
from maillard.features import Features
from maillard.linear_tally import LinearTally
from maillard.policies import Policy

if TYPE_CHECKING:
    from maillard.evaluation.evaluation_log import EvaluationLog

_MAX_TABLE = 4096  # distributions in the table of a difference, above which each row gets its own
_MAX_CACHED = 100_000  # distributions that a frozen policy remembers

Function = Callable[[dict[str, Any]], Any]


def contexts_of(columns: Columns, source: str) -> Contexts:
    """The contexts of some rows, all of them missing if there are none."""
    if columns.contexts is None:
        return Contexts(len(columns), where=source, known=np.zeros(len(columns), np.bool_))
    return columns.contexts


@dataclass(frozen=True, eq=False, kw_only=True)
class ContextualTarget(Target):
    """A target whose distribution depends on the row; `probabilities` are all distributions that it has."""

    @property
    def contextual(self) -> bool:
        return True

    @property
    def positions(self) -> int:
        """1: it does not depend on the position."""
        return 1

    def describe(self, place: int) -> str:  # noqa: ARG002  # subclasses use it
        """The contexts that have the distribution at this place of the table, in words; "" if unknown."""
        return ""


@dataclass(frozen=True, eq=False, kw_only=True)
class RuleTarget(ContextualTarget):
    """A rule over the arms of a log."""

    rule: Rule

    @classmethod
    def of(cls, spec: str, arms: Sequence[str]) -> RuleTarget:
        """The target of a spec, as in rule:device=phone->blue,else->red."""
        rule = Rule.read(spec)
        return cls(str(rule), rule.probabilities(arms), rule=rule)

    def rows_of(self, columns: Columns, source: str) -> tuple[Floats, Ints]:
        return self.probabilities, self.rule.places(contexts_of(columns, source))

    def describe(self, place: int) -> str:
        return self.rule.clauses[place].when


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearRuleTarget(ContextualTarget):
    """A linear rule over the arms of a log."""

    rule: LinearRule

    @classmethod
    def of(cls, spec: str, arms: Sequence[str]) -> LinearRuleTarget:
        """The target of a spec; linear_rules.py describes it."""
        rule = LinearRule.read(spec)
        return cls(shortened(str(rule)), rule.probabilities(arms), rule=rule)

    def rows_of(self, columns: Columns, source: str) -> tuple[Floats, Ints]:
        return self.probabilities, self.rule.places(contexts_of(columns, source))

    def describe(self, place: int) -> str:
        return f"contexts in which {self.rule.arms[place]!r} has the largest score"


@dataclass(frozen=True, eq=False, kw_only=True)
class LoggedTarget(ContextualTarget):
    """The logging policy itself, with the probabilities that it had in each row: what was earned."""

    @classmethod
    def of(cls, log: EvaluationLog) -> LoggedTarget:
        """The target; an error if the log has only the probabilities of chosen arms."""
        if not log.has_all_probabilities:
            raise CannotAnswer(
                f"{log.source}: target logged needs the probability of every arm, and the log has only those "
                "of the chosen arms. What the logging policy earned is the mean reward of the log"
            )
        return cls("logged", np.eye(len(log.arms)))

    @property
    def summarises(self) -> bool:
        return True

    def rows_of(self, columns: Columns, source: str) -> tuple[Floats, Ints]:
        p = columns.probabilities
        if p is None:
            raise CannotAnswer(f"{source}: some rows have only the probability of the chosen arm")
        # Other programs write few digits.
        return p / p.sum(axis=1, keepdims=True), np.arange(len(columns))


@dataclass(frozen=True, eq=False, kw_only=True)
class FunctionTarget(ContextualTarget):
    """What a function of the context returned for each distinct context of a log."""

    places: Mapping[str, int]
    "The place in the table, by the context as text."

    @classmethod
    def of(cls, function: Function, log: EvaluationLog) -> FunctionTarget:
        """Call the function once for each distinct context of the log."""
        log.require_contexts()
        table: dict[tuple[float, ...], int] = {}
        places: dict[str, int] = {}
        for columns in log.columns():
            contexts, codes = contexts_of(columns, log.source).distinct()
            for code in np.unique(codes).tolist():
                key = context_key(contexts[code])
                if key not in places:
                    found = distribution_of(function(dict(contexts[code])), log.arms)
                    places[key] = table.setdefault(found, len(table))
        name = getattr(function, "__name__", type(function).__name__)
        return cls(f"function {name}", np.array(list(table), np.float64), places=places)

    def rows_of(self, columns: Columns, source: str) -> tuple[Floats, Ints]:
        contexts, codes = contexts_of(columns, source).distinct()
        used = np.unique(codes)
        place = np.zeros(len(contexts), np.int64)
        place[used] = [self.places[context_key(contexts[code])] for code in used.tolist()]
        return self.probabilities, place[codes]


def distribution_of(returned: Any, arms: Sequence[str]) -> tuple[float, ...]:
    """What a function returned, as the probability of each arm."""
    given = {returned: 1.0} if isinstance(returned, str) else returned
    if not isinstance(given, Mapping):
        allowed = "a function that returns the name of an arm, or a mapping of arms to probabilities"
        raise InvalidValue("target", returned, allowed)
    for arm in given:
        if arm not in arms:
            raise UnknownName("target: arm", str(arm), list(arms))
    try:
        found = np.array([float(given.get(arm, 0.0)) for arm in arms])
    except (TypeError, ValueError):
        found = np.array([np.nan])
    if not (found >= 0).all() or not abs(found.sum() - 1.0) < 1e-9:
        raise InvalidValue("target", returned, "probabilities >= 0 with sum 1")
    return tuple((found / found.sum()).tolist())


@dataclass(frozen=True, eq=False, kw_only=True)
class FrozenTarget(ContextualTarget):
    """A policy that no longer learns: its probabilities are those of one tally.

    It is asked for its probabilities given the eligible arms of a row and, if it uses a context, the row's
    encoded features.
    """

    policy: Policy
    tally: Any
    places: Ints
    "The places of the tally's arms among those of the log."
    active: Bools
    "Which of the tally's arms may be chosen."
    after: int
    "The number of the state; earlier decisions are left out."
    features: Features | None = None
    "How contexts are encoded for the policy; None if the log has encoded rows."
    _cache: dict[bytes, Floats] = field(default_factory=dict, repr=False)

    @classmethod
    def of(  # noqa: PLR0917
        cls,
        policy: Policy,
        tally: Any,
        arms: Sequence[str],
        log_arms: Sequence[str],
        active: Sequence[bool] | None = None,
        after: int = 0,
        name: str | None = None,
        features: Features | None = None,
    ) -> FrozenTarget:
        """The target over the arms of a log; `arms` are those of the tally."""
        for arm in arms:
            if arm not in log_arms:
                raise UnknownName("frozen policy: arm", arm, list(log_arms))
        bound, order = policy.bind(arms), list(log_arms)
        able = np.ones(len(arms), np.bool_) if active is None else np.array(active, np.bool_)
        places = np.array([order.index(arm) for arm in arms], np.int64)
        # Any distribution over the active arms is possible. These are its corners.
        corners = np.zeros((int(able.sum()), len(order)))
        corners[np.arange(len(corners)), places[able]] = 1.0
        more: dict[str, Any] = {"places": places, "active": able, "after": after, "features": features}
        return cls(name or f"frozen {policy}", corners, policy=bound, tally=tally, **more)

    @classmethod
    def at_state(cls, number: int, log: EvaluationLog) -> FrozenTarget:
        """The policy of a bandit's log as it was after event `number`."""
        state = log.state_at(number)
        more: dict[str, Any] = {"active": state.active, "after": number, "name": f"frozen:{number}"}
        made = cls.of(state.policy, state.tally, state.arms, log.arms, **more)
        return made if state.context is None else FrozenState(**vars(made), state=state)

    @property
    def summarises(self) -> bool:
        return True

    def selects(self, columns: Columns) -> tuple[str, Bools] | None:
        return f"before state {self.after:,}", columns.state >= self.after

    def rows_of(self, columns: Columns, source: str) -> tuple[Floats, Ints]:
        n, width = len(columns), self.probabilities.shape[1]
        able = np.broadcast_to(self.active, (n, self.active.size))
        if columns.eligible is not None:
            able = able & columns.eligible[:, self.places]
        keys: list[Any] = [np.ascontiguousarray(able)]
        inputs = None
        if self.policy.uses_context:
            inputs = self._inputs(columns, source)
            keys.append(inputs.view(np.uint8).reshape(n, -1))
        _, first, row = np.unique(np.hstack(keys), axis=0, return_index=True, return_inverse=True)
        table = np.zeros((first.size, width))
        for place, at in enumerate(first.tolist()):
            if not able[at].any():
                table[place, 0] = 1.0  # a distribution that no row uses
            else:
                x = None if inputs is None else inputs[at]
                table[place, self.places] = self._probabilities(able[at], x)
        row = row.reshape(-1).astype(np.int64)
        # In some rows the policy could not have chosen at all.
        return table, np.where(able.any(axis=1), row, -1)

    def _probabilities(self, able: Bools, x: Floats | None) -> Floats:
        key = able.tobytes() + (b"" if x is None else x.tobytes())
        found = self._cache.get(key)
        if found is None:
            mask: Any = None if able.all() else able
            given = () if x is None else (x,)
            found = self.policy.probabilities(self.tally, *given, eligible=mask)
            if len(self._cache) < _MAX_CACHED:
                self._cache[key] = found
        return found

    def _inputs(self, columns: Columns, source: str) -> Floats:
        """The encoded features of each row."""
        contexts = contexts_of(columns, source)
        from maillard.evaluation.context_encoding import encode_contexts

        rows = contexts.rows if self.features is None else encode_contexts(self.features, contexts)
        if not isinstance(self.tally, LinearTally) or self.tally.arms is None or rows is None:
            raise CannotAnswer(
                f"{source}: a frozen {self.policy.name} needs one row of encoded features per decision, "
                "and a disjoint linear model"
            )
        if rows.shape[1] != self.tally.features:
            allowed = f"{self.tally.features} features, like those of the policy"
            raise InvalidValue(f"{source}: encoded features", rows.shape[1], allowed)
        return np.ascontiguousarray(rows)


@dataclass(frozen=True, eq=False, kw_only=True)
class FrozenState(FrozenTarget):
    """The policy of an experiment that uses contexts, as it was after one of its events."""

    state: State

    def rows_of(self, columns: Columns, source: str) -> tuple[Floats, Ints]:
        versions = columns.feature_version
        if columns.encoded is None or versions is None:
            raise CannotAnswer(f"{source}: {self.name} needs the encoded contexts of later decisions")
        check_features(columns, self.after, self.state, source)
        shape = len(columns), self.probabilities.shape[1]
        eligible = np.ones(shape, np.bool_) if columns.eligible is None else columns.eligible
        able = np.zeros(shape, np.bool_)
        able[:, self.places] = eligible[:, self.places] & self.active
        place: dict[tuple[bytes, bytes | None], int] = {}
        keys = zip(map(bytes, np.packbits(eligible, axis=1)), columns.encoded.tolist(), strict=True)
        row = np.array([place.setdefault(key, len(place)) for key in keys], np.int64)
        _, first = np.unique(row, return_index=True)
        table = np.zeros((first.size, shape[1]))
        possible = able.any(axis=1) & (columns.state >= self.after)
        for each, at in enumerate(first.tolist()):
            if able[at].any() and versions[at] == self.state.feature_version:
                table[each] = self._at(eligible[at], able[at], columns.encoded[at])
        return table, np.where(possible, row, -1)

    def _at(self, eligible: Bools, able: Bools, encoded: bytes) -> Floats:
        """The probability of each arm of the log, given the encoded context."""
        key = eligible.tobytes() + encoded
        found = self._cache.get(key)
        if found is None:
            if has_row_of_each_arm(encoded):
                rows = decode(encoded)
                assert not isinstance(rows, tuple)  # it is no segment
                encoded = encode(rows[able[eligible]])
            chosen = able[self.places]  # in the order of the state's arms
            arms = tuple(compress(self.state.arms, chosen.tolist()))
            found = np.zeros(able.size)
            found[self.places[chosen]] = self.state.choice_from(arms, encoded).probabilities
            if len(self._cache) < _MAX_CACHED:
                self._cache[key] = found
        return found


def check_features(columns: Columns, after: int, state: State, source: str) -> None:
    """Raise an error if rows from state `after` on were encoded with other features than those of `state`."""
    assert columns.feature_version is not None
    other = (columns.state >= after) & (columns.feature_version != state.feature_version)
    if other.any():
        raise CannotAnswer(
            f"{source}: the features changed after state {after:,}: row "
            f"{columns.row[other.argmax()]:,} was encoded in another way. Name a later state."
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class DifferenceTarget(ContextualTarget):
    """The difference of two targets, of which at least one depends on the row."""

    first: Target
    second: Target

    @classmethod
    def of(cls, first: Target, second: Target) -> DifferenceTarget:
        """The first minus the second."""
        both = np.vstack([first.probabilities, -second.probabilities])
        return cls(f"{first.name} - {second.name}", both, first=first, second=second)

    @property
    def is_difference(self) -> bool:
        return True

    @property
    def parts(self) -> tuple[Target, ...]:
        return self.first, self.second

    @property
    def summarises(self) -> bool:
        return self.first.summarises or self.second.summarises

    def selects(self, columns: Columns) -> tuple[str, Bools] | None:
        found = [each for target in (self.first, self.second) if (each := target.selects(columns))]
        if len(found) < 2:
            return found[0] if found else None
        return found[0][0], found[0][1] & found[1][1]

    def rows_of(self, columns: Columns, source: str) -> tuple[Floats, Ints]:
        (p, i), (q, j) = (target.rows_of(columns, source) for target in self.parts)
        missing = (i < 0) | (j < 0)
        if len(p) * len(q) <= _MAX_TABLE:
            table = (p[:, np.newaxis] - q[np.newaxis]).reshape(-1, p.shape[1])
            return table, np.where(missing, -1, i * len(q) + j)
        return p[i] - q[j], np.where(missing, -1, np.arange(len(columns)))
