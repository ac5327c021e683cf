"""The live bandit: decisions sampled from exactly the distribution that is logged, rewards, and changes."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, overload

from maillard.decisions import call_arguments, configuration, events, ledger
from maillard.decisions.chain import ChainHead, head_of
from maillard.decisions.context_rules import ContextTally
from maillard.decisions.decision import Decision, Outcome
from maillard.decisions.experiment_changes import ExperimentChanges
from maillard.decisions.experiment_summary import summarize
from maillard.decisions.frames import records_of
from maillard.decisions.identifiers import check_id, check_name
from maillard.decisions.reward_rule import Reward
from maillard.decisions.session import Session
from maillard.decisions.state import State
from maillard.decisions.stores import Store, open_store
from maillard.decisions.stores.contract import Transaction
from maillard.decisions.timestamps import clock_of
from maillard.errors import Conflict, InvalidValue, MaillardError, PolicyHint
from maillard.features import Features
from maillard.policies import Policy
from maillard.short_reprs import COLUMNS, cut
from maillard.tally import Tally

_MAX_REWARDS = 1_000  # rewards in one transaction


class Bandit(ExperimentChanges):
    """Chooses among arms, logs every choice with its exact probability, and updates its policy from rewards.

    `policy` is a spec or a policy; without it, rewards from 0 to 1 get `kl-ms+:floor=0.1` and those of other
    ranges `ms+:floor=0.1`. `reward` is the reward rule. `log` is None (memory), a path (one SQLite file) or
    a postgresql:// URL. Opening an existing log resumes its `experiment`. With `sticky`, a unit
    keeps the arm that was first chosen for it. A choice uses everything that is committed when it is made.
    If other processes apply many rewards, `staleness` allows a choice to use a state that is up to this
    many seconds old; the log stores the distribution that was used, so the logged probabilities are still
    exact.

    Choices can depend on a context. With `features`, the policy is a linear one; the `model` is "disjoint"
    (one for each arm, the default) or "shared" (one for all; then `arms` maps each name to its features, or
    is empty if every decision has `actions` of its own). With `segments`, any other policy is used, with one
    tally for each combination of the values of these keys of the context.

    `clock` and `seed` are for tests, simulations and backfills. The clock is a function that returns the
    current time as an aware datetime; by default it is the clock of the store. A seed makes choices and ids
    reproducible, in one thread. The log records that they were used.

    >>> bandit = Bandit(["red", "blue"], reward=Reward(low=0, high=1))
    >>> decision = bandit.choose(unit="user-17")
    >>> decision.probabilities
    {'red': 0.5, 'blue': 0.5}
    >>> bandit.reward(decision.id, 1.0)
    'applied'
    """

    _warns = True  # whether a new bandit warns of its hints

    def __init__(
        self,
        arms: Sequence[str] | Mapping[str, Mapping[str, Any]] | None = None,
        policy: str | Policy | None = None,
        *,
        features: Features | None = None,
        model: str | None = None,
        segments: Sequence[str] | None = None,
        reward: Reward | None = None,
        log: str | Path | Store | None = None,
        experiment: str = "default",
        sticky: bool | None = None,
        staleness: float = 0.0,
        clock: Callable[[], datetime] | None = None,
        seed: int | None = None,
    ) -> None:
        self.experiment = check_name("experiment", experiment)
        if not isinstance(staleness, int | float) or not 0 <= staleness <= 1e9:
            raise InvalidValue("staleness", staleness, "seconds, from 0 to 1e9")
        names = None if arms is None else call_arguments.check_arms(arms, allow_none=model == "shared")
        given: dict[str, Any] = {"arms": names, "policy": policy, "reward": reward, "sticky": sticky}
        if (features, model, segments) != (None, None, None) or isinstance(arms, Mapping):
            if arms is None:
                allowed = "arms as well: the log knows how its experiments use contexts"
                raise InvalidValue("arms", None, allowed)
            given["context"] = configuration.context_rule(arms, features, model, segments)
        if arms is not None and _would_create(log):
            configuration.start_event(**given)  # report an invalid argument before creating a file
        simulation = configuration.check_simulation(seed, clock)
        self._arguments = log, staleness, simulation
        self._store = open_store(
            log, create=arms is not None, clock=None if clock is None else clock_of(clock)
        )
        try:
            self.session = Session(self._store, self.experiment, given, float(staleness), simulation)
            "The connection between this bandit and its log. A server submits many calls to it at once."
        except BaseException:
            if self._store is not log:
                self._store.close()
            raise
        if self._warns and self.session.created:
            for hint in self.hints:
                warnings.warn(hint, PolicyHint, stacklevel=2)

    # Decisions and rewards.

    @overload
    def choose(
        self,
        unit: str | None = None,
        eligible: Iterable[str] | None = None,
        size: None = None,
        idempotency_key: str | None = None,
        *,
        context: Mapping[str, Any] | None = None,
        actions: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Decision: ...

    @overload
    def choose(
        self,
        unit: str | None = None,
        eligible: Iterable[str] | None = None,
        *,
        size: int,
        idempotency_key: str | None = None,
        context: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        actions: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> list[Decision]: ...

    @overload
    def choose(
        self,
        unit: str | None = None,
        eligible: Iterable[str] | None = None,
        size: None = None,
        idempotency_key: str | None = None,
        *,
        context: Sequence[Mapping[str, Any]],
        actions: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> list[Decision]: ...

    def choose(
        self,
        unit: str | None = None,
        eligible: Iterable[str] | None = None,
        size: int | None = None,
        idempotency_key: str | None = None,
        *,
        context: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        actions: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Decision | list[Decision]:
        """Choose an arm and log the decision. The decision is durable when this returns.

        `eligible` names the arms that may be chosen, by default all that are not retired. With `size`,
        return a list of that many decisions, all sampled from one distribution. A repeated
        `idempotency_key` returns the decisions of the first call with that key.

        `context` is what is known about the decision, such as {"device": "phone"}. A list of contexts
        returns a list with one decision for each. `actions` are the arms of this decision with their
        attributes, if the experiment has no fixed arms.

        >>> bandit = Bandit(["red", "blue", "green"], reward=Reward(low=0, high=1))
        >>> bandit.choose(unit="user-17", eligible=["red", "blue"]).probabilities
        {'red': 0.5, 'blue': 0.5}
        >>> len(bandit.choose(size=100))
        100
        >>> bandit.choose(idempotency_key="order-1") == bandit.choose(idempotency_key="order-1")
        True
        """
        request = call_arguments.check_request(
            unit, eligible, idempotency_key, size, context=context, actions=actions
        )
        self.session.check_open()
        rows = self.session.decide(request) if request.size else []
        return rows[0] if size is None and not isinstance(context, list | tuple) else rows

    def reward(
        self,
        decision: str | Decision,
        value: float,
        at: datetime | float | None = None,
        event: str | None = None,
    ) -> Outcome:
        """Log a reward of a decision, apply it to the tally, and return the outcome.

        `decision` is a decision or its id. `at` is the time at which the reward occurred (an aware datetime
        or seconds since 1970; by default now).
        `event` distinguishes several rewards of one decision. The same event with the same value is a
        "duplicate"; with another value it raises Conflict.

        >>> bandit = Bandit(["red", "blue"], reward=Reward(low=0, high=1))
        >>> decision = bandit.choose()
        >>> bandit.reward(decision, 1), bandit.reward(decision, 1)
        ('applied', 'duplicate')
        """
        row = configuration.check_reward_event(self.state.reward, decision, value, at, event)
        (outcome,) = self.session.apply_rewards([row])
        if isinstance(outcome, MaillardError):
            raise outcome
        return outcome

    def rewards(self, rows: Any) -> list[Outcome]:
        """Log many rewards and return the outcome of each.

        `rows` is a pandas or polars frame, an Arrow table, or mappings, with `decision`, `value` and
        optionally `at` and `event`. All rows are checked before any is written. The outcome of a row that
        contradicts an earlier reward is "conflict".

        >>> bandit = Bandit(["red", "blue"], reward=Reward(low=0, high=1))
        >>> one, two = bandit.choose(size=2)
        >>> bandit.rewards([{"decision": one.id, "value": 1}, {"decision": two.id, "value": 0.5}])
        ['applied', 'applied']
        """
        self.session.check_open()
        rule, names = self.state.reward, ("decision", "value", "at", "event")
        offered = [
            configuration.check_reward_event(rule, *map(row.get, names), where=f"rows[{i}]: ")
            for i, row in enumerate(records_of(rows))
        ]
        outcomes: list[Outcome] = []
        for start in range(0, len(offered), _MAX_REWARDS):
            for outcome in self.session.apply_rewards(offered[start : start + _MAX_REWARDS]):
                refused: Outcome = "conflict" if isinstance(outcome, Conflict) else "refused"
                outcomes.append(refused if isinstance(outcome, MaillardError) else outcome)
        return outcomes

    def append(self, decisions: Iterable[Decision]) -> int:
        """Log decisions that another process sampled from this experiment's states but could not log itself.

        Returns the number of new decisions. Rewards that arrived before them were "parked" and are applied
        now. `verify` checks appended decisions like all others.

        >>> here, elsewhere = (Bandit(["red", "blue"], reward=Reward(low=0, high=1)) for _ in range(2))
        >>> decisions = elsewhere.choose(size=3)
        >>> here.append(decisions), here.append(decisions)
        (3, 0)
        """
        rows = list(decisions)

        def add(transaction: Transaction, state: State) -> int:
            state = state.after(transaction.events(state.number))
            for row in rows:
                configuration.check_decision(row, self.experiment, state)
            return ledger.append(transaction, state.reward, rows)

        added: int = self.session.write(add)
        return added

    def settle(self) -> None:
        """Close due reward windows: rewards become final, and decisions without one get the default.

        Every write to the log also does this, so there is rarely a reason to call it.

        >>> bandit = Bandit(["red", "blue"], reward=Reward.clicks(window="1h"))
        >>> decision = bandit.choose()
        >>> bandit.settle()
        >>> int(bandit.tally.pulls.sum())  # its window is still open
        0
        """
        self.session.settle()

    # Erasure.

    def erase_unit(self, unit: str) -> int:
        """Replace a unit's name and idempotency keys by a random token, and remove its contexts.

        Return the number of changed rows.

        >>> bandit = Bandit(["red", "blue"], reward=Reward(low=0, high=1))
        >>> decision = bandit.choose(unit="user-17")
        >>> bandit.erase_unit("user-17")
        1
        >>> bandit.decision(decision.id).unit.startswith("erased-")
        True
        """
        unit, token = check_name("unit", unit), "erased-" + secrets.token_hex(8)

        def erase(transaction: Transaction, state: State) -> int:
            ledger.change(transaction, state, lambda _: events.EraseUnit(token=token))
            return transaction.erase_unit(unit, token)

        rows: int = self.session.write(erase)
        self._store.scrub()
        return rows

    # Reading.

    @property
    def arms(self) -> list[str]:
        """The arms that are not retired."""
        return self.state.active_arms

    @property
    def policy(self) -> Policy:
        """The current policy."""
        return self.state.policy

    @property
    def hints(self) -> list[str]:
        """Advice on the policy: whether another one fits the rewards better."""
        return configuration.policy_hints(self.state)

    @property
    def tally(self) -> Tally:
        """A copy of the tally, in the order of `summary()["arms"]`."""
        return self.state.tally.copy()

    @property
    def statistics(self) -> ContextTally | None:
        """A copy of the statistics that the policy uses if choices depend on contexts; else None."""
        statistics = self.state.statistics
        return None if statistics is None else statistics.copy()

    def decision(self, decision_id: str) -> Decision:
        """Read a decision from the log."""
        identifier = check_id(decision_id, "decision_id")
        self.session.check_open()
        with self._store.reading(self.experiment) as transaction:
            found = transaction.decisions([identifier])
        if not found:
            allowed = f"a decision of experiment {self.experiment!r} in {self._store.where}"
            allowed += " (old ones were pruned)" if self.state.pruned else ""
            raise InvalidValue("decision_id", identifier, allowed)
        return found[identifier]

    def head(self) -> ChainHead:
        """The end of the log's hash chain, for `verify(log, anchor=...)` at a later time.

        >>> from maillard import verify
        >>> bandit = Bandit(["red", "blue"], reward=Reward(low=0, high=1))
        >>> published, decision = bandit.head().hash, bandit.choose()
        >>> verify(bandit, anchor=published).problem_count
        0
        """
        self.session.check_open()
        with self._store.reading(self.experiment) as transaction:
            return head_of(transaction.last_link())

    def summary(self) -> dict[str, Any]:
        """The arms, counts, policy and status of the experiment.

        `pulls` and `sum` of an arm are the tally that the policy uses. Its `mean` is that of `final` rewards:
        of decisions whose window has closed. `pending` decisions have an open window, and `missing` ones got
        no reward. `units` is the number of different units in this epoch. `note` says how the policy learns,
        and `refusal` why the means are not conclusive.

        >>> bandit = Bandit(["red", "blue"], reward=Reward(low=0, high=1))
        >>> outcome = bandit.reward(bandit.choose(eligible=["red"]), 0.5)
        >>> bandit.summary()["decisions"], bandit.summary()["arms"]["red"]["mean"]
        (1, 0.5)
        """
        self.settle()

        return summarize(self.session)

    def close(self) -> None:
        """Close the log.

        >>> with Bandit(["red", "blue"], reward=Reward(low=0, high=1), log="decisions.db") as bandit:
        ...     decision = bandit.choose()
        >>> bandit = Bandit(log="decisions.db")  # opens the log again
        >>> bandit.close()
        """
        self.session.close()

    def __repr__(self) -> str:
        text = f"Bandit {self.experiment!r} on {self._store.where}: {self.policy} over {len(self.arms)} arms"
        return f"<{cut(text, COLUMNS - 2)}>"

    def __enter__(self) -> Bandit:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., Bandit], tuple[Any, ...]]:
        log, staleness, simulation = self._arguments
        if simulation is not None:
            raise MaillardError("cannot pickle a bandit with a clock or a seed; open the log again instead")
        if not isinstance(log, str | Path):
            problem = f"cannot pickle a bandit whose log is {self._store.where}"
            raise MaillardError(f"{problem}; give log= a path or a URL to share it")
        return _reopen, (log, self.experiment, staleness)


def _reopen(log: str | Path, experiment: str, staleness: float) -> Bandit:
    return Bandit(log=log, experiment=experiment, staleness=staleness)


def _would_create(log: str | Path | Store | None) -> bool:
    """Whether opening the log would create a file."""
    try:
        return isinstance(log, str | Path) and "://" not in str(log) and not Path(log).exists()
    except (OSError, ValueError):  # not a path: the store raises the error
        return False
