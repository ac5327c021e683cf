"""Targets for logs whose arms differ at every decision: they choose among the actions of each decision.

The arm of a row is the rank of an action: the order in which the caller listed the actions. So each target
gives, as on other logs, a table of distributions over ranks and the place of each row in it. A row has -1 if
the target cannot choose among its actions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from maillard import specs
from maillard.array_types import Bools, Floats, Ints
from maillard.decisions.action_columns import Actions
from maillard.decisions.columns import Columns
from maillard.decisions.contexts import context_key
from maillard.decisions.state import State
from maillard.errors import InvalidLog, InvalidValue, UnknownName
from maillard.evaluation.bound_targets import Target, counting_number, state_number
from maillard.evaluation.contextual_targets import (
    ContextualTarget,
    LoggedTarget,
    check_features,
    contexts_of,
    distribution_of,
)
from maillard.evaluation.rules import Rule
from maillard.policies import Policy, Uniform
from maillard.policies.targets import FixedArm
from maillard.similar_names import similar_names

if TYPE_CHECKING:
    from maillard.evaluation.evaluation_log import EvaluationLog

ActionFunction = Callable[[dict[str, Any], dict[str, dict[str, Any]]], Any]
ALLOWED = (
    "uniform, logged, rank:1 (the action that was listed first), arm:NAME, rule:..., frozen:STATE, or a "
    "function of the context and the actions, because the arms differ at every decision"
)
_MAX_LISTED = 20  # names in an error message


def actions_of(columns: Columns) -> Actions:
    """The actions of some rows."""
    assert columns.actions is not None  # the log has actions
    return columns.actions


@lru_cache(maxsize=1)
def _each_rank(width: int) -> Floats:
    """The distributions that always choose one rank, which the targets of a rule share."""
    made = np.eye(width)
    made.setflags(write=False)
    return made


@dataclass(frozen=True, eq=False, kw_only=True)
class ActionTarget(ContextualTarget):
    """A target that chooses among the actions of each decision.

    `probabilities` are only bounds on its distributions, because each row has its own actions.
    """

    @property
    def summarises(self) -> bool:
        return True

    @property
    def only_arm(self) -> int | None:
        """None: a rank is no arm, since another action has it in the next row."""
        return None


@dataclass(frozen=True, eq=False, kw_only=True)
class UniformOverActions(ActionTarget):
    """Each action of a decision with the same probability."""

    @classmethod
    def of(cls, log: EvaluationLog) -> UniformOverActions:
        """The target; with a floor E, its weights are at most 1 / E, whatever the number of actions."""
        width = len(log.arms)
        return cls("uniform", np.full((1, width), 1.0 / width))

    def rows_of(self, columns: Columns, source: str) -> tuple[Floats, Ints]:  # noqa: ARG002
        sizes = np.arange(1, self.probabilities.shape[1] + 1)
        table = np.tril(np.ones((sizes.size, sizes.size))) / sizes[:, np.newaxis]
        return table, actions_of(columns).sizes - 1


@dataclass(frozen=True, eq=False, kw_only=True)
class RankTarget(ActionTarget):
    """The action that the caller listed at a rank, such as the first. Rows with fewer actions lack it."""

    @classmethod
    def of(cls, number: str, log: EvaluationLog) -> RankTarget:
        """The target at a rank that is numbered from 1."""
        width, rank = len(log.arms), counting_number(number)
        if rank is None or rank > width:
            allowed = f"rank:1 for the action that was listed first, up to rank:{width}"
            raise InvalidValue("target", f"rank:{number}", allowed)
        return cls(f"rank:{rank}", np.eye(width)[[rank - 1]])

    def rows_of(self, columns: Columns, source: str) -> tuple[Floats, Ints]:  # noqa: ARG002
        return self.probabilities, np.zeros(len(columns), np.int64)


@dataclass(frozen=True, eq=False, kw_only=True)
class NamedAction(ActionTarget):
    """The action of this name, in the rows that have it."""

    action: str

    @classmethod
    def of(cls, name: str, log: EvaluationLog) -> NamedAction:
        """The target; an error if no decision had this action. Quotes around the name are optional."""
        assert log.action_names is not None
        if name not in log.action_names and len(quoted := specs.read(f"arm:{name}").values) == 1:
            name = str(quoted[0])
        if name not in log.action_names:
            known = sorted(log.action_names)
            raise UnknownName("target: action", name, similar_names(name, known) or known[:_MAX_LISTED])
        return cls(f"arm:{name}", _each_rank(len(log.arms)), action=name)

    def rows_of(self, columns: Columns, source: str) -> tuple[Floats, Ints]:  # noqa: ARG002
        return self.probabilities, actions_of(columns).ranks_of(self.action)


@dataclass(frozen=True, eq=False, kw_only=True)
class RuleOverActions(ActionTarget):
    """A rule whose arms are names of actions, or uniform over the actions of the row."""

    rule: Rule
    clauses: tuple[ActionTarget, ...]
    "The target of each clause."

    @classmethod
    def of(cls, spec: str, log: EvaluationLog) -> RuleOverActions:
        """The target of a spec, as in rule:device=phone->article-17,else->uniform."""
        rule = Rule.read(spec)
        log.require_keys(rule.keys)
        wanted = dict.fromkeys(each.arm for each in rule.clauses)
        made: dict[str | None, ActionTarget] = {
            arm: UniformOverActions.of(log) if arm is None else NamedAction.of(arm, log) for arm in wanted
        }
        # All names have the same distributions, which are wide.
        bounds = np.vstack(list({type(each): each.probabilities for each in made.values()}.values()))
        return cls(str(rule), bounds, rule=rule, clauses=tuple(made[each.arm] for each in rule.clauses))

    def rows_of(self, columns: Columns, source: str) -> tuple[Floats, Ints]:
        clause = self.rule.places(contexts_of(columns, source))
        place, size = np.full(len(columns), -1, np.int64), 0
        tables: dict[type[ActionTarget], tuple[int, Floats]] = {}
        for number in np.union1d(clause, [len(self.clauses) - 1]).tolist():  # at least one table
            target = self.clauses[number]
            table, own = target.rows_of(columns, source)
            if type(target) not in tables:
                tables[type(target)] = size, table
                size += len(table)
            start, _ = tables[type(target)]
            decides = (clause == number) & (own >= 0)
            place[decides] = own[decides] + start
        return np.vstack([table for _, table in tables.values()]), place


@dataclass(frozen=True, eq=False, kw_only=True)
class _OwnDistributions(ActionTarget):
    """A target that is asked for its distribution in each row, once for rows with the same content."""

    _known: dict[bytes, Floats] = field(default_factory=dict, repr=False)

    def rows_of(self, columns: Columns, source: str) -> tuple[Floats, Ints]:
        table = np.zeros((len(columns), self.probabilities.shape[1]))
        chosen = self.selects(columns)
        possible = np.ones(len(columns), np.bool_) if chosen is None else chosen[1]
        contents = self._contents(columns, source)
        for row in np.flatnonzero(possible).tolist():
            digest = hashlib.blake2b(contents[row], digest_size=16).digest()
            found = self._known.get(digest)
            if found is None:
                found = self._known[digest] = self._distribution(columns, row, source)
            table[row, : found.size] = found
        return table, np.where(possible, np.arange(len(columns)), -1)

    def _contents(self, columns: Columns, source: str) -> list[bytes]:
        """What the distribution of each row depends on."""
        raise NotImplementedError

    def _distribution(self, columns: Columns, row: int, source: str) -> Floats:
        """The probability of each action of a row."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False, kw_only=True)
class FunctionOverActions(_OwnDistributions):
    """What a function of the context and the actions returns for each row."""

    function: ActionFunction

    @classmethod
    def of(cls, function: ActionFunction, log: EvaluationLog) -> FunctionOverActions:
        """The target of a function."""
        name = getattr(function, "__name__", type(function).__name__)
        return cls(f"function {name}", np.eye(len(log.arms)), function=function)

    def selects(self, columns: Columns) -> tuple[str, Bools] | None:
        return "with unknown actions", actions_of(columns).known

    def _contents(self, columns: Columns, source: str) -> list[bytes]:
        contexts, codes = contexts_of(columns, source).distinct()
        keys, texts = list(map(context_key, contexts)), actions_of(columns).texts.tolist()
        return [f"{keys[code]}\n{text}".encode() for code, text in zip(codes.tolist(), texts, strict=True)]

    def _distribution(self, columns: Columns, row: int, source: str) -> Floats:
        actions = actions_of(columns).values(row)
        assert actions is not None  # otherwise the row is left out
        names = list(actions)
        contexts, codes = contexts_of(columns, source).distinct()
        returned = self.function(dict(contexts[codes[row]]), actions)
        return np.array(distribution_of(returned, names))


@dataclass(frozen=True, eq=False, kw_only=True)
class FrozenOverActions(_OwnDistributions):
    """The log's own policy as it was after one of its events, asked with the rows that it encoded."""

    state: State
    after: int
    "The number of the state; earlier decisions are left out."

    @classmethod
    def of(cls, number: str, log: EvaluationLog) -> FrozenOverActions:
        """The policy as it was after the event with this number."""
        after = state_number(number)
        width = len(log.arms)
        return cls(f"frozen:{after}", np.eye(width), state=log.state_at(after), after=after)

    def selects(self, columns: Columns) -> tuple[str, Bools] | None:
        return f"before state {self.after:,}", columns.state >= self.after

    def rows_of(self, columns: Columns, source: str) -> tuple[Floats, Ints]:
        if columns.feature_version is not None:
            check_features(columns, self.after, self.state, source)
        return super().rows_of(columns, source)

    def _contents(self, columns: Columns, source: str) -> list[bytes]:
        found: list[Any] = [None] * len(columns) if columns.encoded is None else columns.encoded.tolist()
        if None in found:
            row = columns.row[found.index(None)]
            raise InvalidLog(f"{source}, row {row}: encoded", None, "the feature rows of its actions")
        return found

    def _distribution(self, columns: Columns, row: int, source: str) -> Floats:
        names = tuple(actions_of(columns).names_of(row))
        return self.state.choice_from(names, self._contents(columns, source)[row]).probabilities


def bind_to_actions(target: Any, log: EvaluationLog) -> ContextualTarget:
    """The target over the actions of a log whose arms differ at every decision."""
    if isinstance(target, ContextualTarget):
        return target
    if isinstance(target, FixedArm) and isinstance(target.arm, str):
        return NamedAction.of(target.arm, log)
    if isinstance(target, Uniform):
        return UniformOverActions.of(log)
    if callable(target) and not isinstance(target, Policy | Target):
        return FunctionOverActions.of(target, log)
    spec = target.strip() if isinstance(target, str) else ""
    if spec in _WORDS:
        return _WORDS[spec](log)
    kind, _, rest = spec.partition(":")
    if kind not in _KINDS or not rest:
        raise InvalidValue("target", str(target), ALLOWED)
    return _KINDS[kind](rest, log)


_WORDS: Mapping[str, Callable[[EvaluationLog], ContextualTarget]] = {
    "uniform": UniformOverActions.of,
    "logged": LoggedTarget.of,
}
_KINDS: Mapping[str, Callable[[str, EvaluationLog], ContextualTarget]] = {
    "rank": RankTarget.of,
    "arm": NamedAction.of,
    "rule": RuleOverActions.of,
    "frozen": FrozenOverActions.of,
}
