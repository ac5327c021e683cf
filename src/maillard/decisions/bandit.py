"""The live bandit: choices that are drawn from exactly the law that is logged, rewards, and changes."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, overload

from maillard.decisions import ledger
from maillard.decisions.configuration import (
    check_arms,
    check_decision,
    check_request,
    check_reward_event,
    check_snapshot,
    describe_policy,
    start_event,
    tally_for,
)
from maillard.decisions.decision import Decision
from maillard.decisions.events import (
    AddArm,
    Archive,
    ChangePolicy,
    EraseUnit,
    Pause,
    Reset,
    Resume,
    RetireArm,
    WarmStart,
)
from maillard.decisions.identifiers import check_id, check_name
from maillard.decisions.ledger import Outcome
from maillard.decisions.reward_rule import Reward
from maillard.decisions.session import Session
from maillard.decisions.state import State
from maillard.decisions.stores import Store, open_store
from maillard.decisions.stores.contract import Transaction
from maillard.errors import Conflict, InvalidValue, MaillardError, UnknownName
from maillard.policies import Policy
from maillard.tally import Tally

__all__ = ["Bandit"]

_MOST_ROWS = 1_000  # rewards in one transaction


class Bandit:
    """Chooses among arms, logs every choice with its exact probability, and learns from rewards.

    `policy` is a spec or a policy; `reward` says what a reward is. `log` is None (memory), a path (one SQLite file) or a
    postgresql:// URL; opening a log again resumes its `experiment`. With `sticky` a unit keeps the arm that was first drawn for
    it. A choice is drawn from all that is committed when it is made; where other processes learn much, `staleness` lets it be drawn
    from a state that is so many seconds old: the log holds the law that was used, so it is no less exact.

    >>> bandit = Bandit(["red", "blue"], "ms+:booster=8", reward=Reward(low=0, high=1))
    >>> decision = bandit.choose(unit="user-17")
    >>> decision.probabilities
    {'red': 0.5, 'blue': 0.5}
    >>> bandit.reward(decision.id, 1.0)
    'applied'
    """

    def __init__(
        self,
        arms: Sequence[str] | None = None,
        policy: str | Policy | None = None,
        *,
        reward: Reward | None = None,
        log: str | Path | Store | None = None,
        experiment: str = "default",
        sticky: bool | None = None,
        staleness: float = 0.0,
    ) -> None:
        self.experiment = check_name("experiment", experiment)
        if not isinstance(staleness, int | float) or not 0 <= staleness <= 1e9:
            raise InvalidValue("staleness", staleness, "seconds, from 0 to 1e9")
        given: dict[str, Any] = {
            "arms": None if arms is None else check_arms(arms),
            "policy": policy,
            "reward": reward,
            "sticky": sticky,
        }
        if arms is not None and _is_new(log):
            start_event(**given)  # whatever is wrong comes up before a file is made
        self._arguments = log, staleness
        self._store = open_store(log, create=arms is not None)
        try:
            self.session = Session(self._store, self.experiment, given, float(staleness))
            "What stands between this bandit and its log, for whoever has many calls at hand."
        except BaseException:
            if self._store is not log:
                self._store.close()
            raise

    # Choosing and learning.

    @overload
    def choose(
        self,
        unit: str | None = None,
        eligible: Iterable[str] | None = None,
        size: None = None,
        idempotency_key: str | None = None,
    ) -> Decision: ...

    @overload
    def choose(
        self,
        unit: str | None = None,
        eligible: Iterable[str] | None = None,
        *,
        size: int,
        idempotency_key: str | None = None,
    ) -> list[Decision]: ...

    def choose(
        self,
        unit: str | None = None,
        eligible: Iterable[str] | None = None,
        size: int | None = None,
        idempotency_key: str | None = None,
    ) -> Decision | list[Decision]:
        """Draw an arm and log it; when this returns, the decision is durable.

        `eligible` names the arms that may be drawn, by default all that are not retired. With `size`, that many decisions, all
        drawn from one law. A call with an `idempotency_key` that was used before draws nothing: it returns what that call
        returned.
        """
        request = check_request(unit, eligible, idempotency_key, 1 if size is None else size)
        self.session.check_open()
        rows = self.session.decide(request) if request.size else []
        return rows[0] if size is None else rows

    def reward(
        self,
        decision_id: str,
        value: float,
        at: datetime | float | None = None,
        event: str | None = None,
    ) -> Outcome:
        """Log a reward of a decision and learn from it; what became of it.

        `at` is when it occurred (an aware datetime, or seconds since 1970; by default now), `event` tells several rewards of one
        decision apart. The same event and value again is a "duplicate", another value an error.
        """
        row = check_reward_event(self.state.reward, decision_id, value, at, event)
        (outcome,) = self.session.apply_rewards([row])
        if isinstance(outcome, MaillardError):
            raise outcome
        return outcome

    def rewards(self, rows: Any) -> list[Outcome]:
        """Log many rewards; what became of each.

        `rows` is a pandas or polars frame, an Arrow table, or mappings, with `decision_id`, `value` and, if wanted, `at` and `event`.
        Each is checked before any is written; one that contradicts an earlier one comes out as "conflict".
        """
        from maillard.decisions.frames import records_of

        self.session.check_open()
        rule, names = self.state.reward, ("decision_id", "value", "at", "event")
        offered = [
            check_reward_event(rule, *map(row.get, names), where=f"rows[{i}]: ")
            for i, row in enumerate(records_of(rows))
        ]
        outcomes: list[Outcome] = []
        for start in range(0, len(offered), _MOST_ROWS):
            for outcome in self.session.apply_rewards(offered[start : start + _MOST_ROWS]):
                refused: Outcome = "conflict" if isinstance(outcome, Conflict) else "refused"
                outcomes.append(refused if isinstance(outcome, MaillardError) else outcome)
        return outcomes

    def append(self, decisions: Iterable[Decision]) -> int:
        """Log decisions that another process drew from this experiment's states and could not log itself; how many are new.

        Rewards may have come before them: those wait, "parked", and are learned now. `verify` checks what was appended like the rest.
        """
        rows = list(decisions)
        self.session.check_open()

        def add(transaction: Transaction, state: State) -> int:
            state = state.after(transaction.events(state.number))
            for row in rows:
                check_decision(row, self.experiment, state)
            return ledger.append(transaction, state.reward, rows)

        added: int = self.session.write(add)
        return added

    def settle(self) -> None:
        """Close the windows that are due: rewards freeze, and decisions without one get the default.

        Whatever is written does this by the way, so there is seldom a reason to call it.
        """
        self.session.check_open()
        self.session.settle()

    # Changes: each is an event of the log. With `expected`, the number of the last one that the caller knows of
    # (`state.administrative`), it is made only if that is still the last one.

    def add_arm(self, arm: str, *, expected: int | None = None) -> None:
        """A new arm, or one that was retired, which comes back with what it has learned."""
        arm = check_name("arm", arm)

        def make(state: State) -> AddArm:
            if arm in state.active_arms:
                raise InvalidValue("arm", arm, "a name that no active arm has")
            return AddArm(arm=arm)

        self.session.change(make, expected)

    def retire_arm(self, arm: str, *, expected: int | None = None) -> None:
        """Choose an arm no more. What was learned of it stays, and rewards of its decisions still count."""
        arm = check_name("arm", arm)

        def make(state: State) -> RetireArm:
            if arm not in state.active_arms:
                raise UnknownName("arm", arm, state.active_arms)
            if len(state.active_arms) == 1:
                raise InvalidValue("arm", arm, "an arm that is not the last one")
            return RetireArm(arm=arm)

        self.session.change(make, expected)

    def change_policy(self, policy: str | Policy, *, expected: int | None = None) -> None:
        """From now on another policy, as a new version; what was learned stays."""

        def make(state: State) -> ChangePolicy:
            spec, formula = describe_policy(policy, state.reward)
            return ChangePolicy(policy=spec, formula=formula)

        self.session.change(make, expected)

    def pause(self, *, expected: int | None = None) -> None:
        """Make no choices until `resume`; rewards are still taken."""
        self.session.change(lambda _: Pause(), expected)

    def resume(self, *, expected: int | None = None) -> None:
        """Choose again."""
        self.session.change(lambda _: Resume(), expected)

    def archive(self, *, expected: int | None = None) -> None:
        """Make no choices and no changes until `resume`; rewards are still taken."""
        self.session.change(lambda _: Archive(), expected)

    def reset(self, *, expected: int | None = None) -> None:
        """Forget what was learned: a new epoch begins. The log keeps everything."""
        self.session.change(lambda _: Reset(), expected)

    def snapshot(self) -> dict[str, Any]:
        """Arms, policy and tally as plain data, for `restore` here or in another log."""
        return self.session.refresh().snapshot()

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Begin a new epoch with the arms, policy and tally of a snapshot."""
        checked = check_snapshot(snapshot, self.state.reward)
        self.session.change(lambda _: checked)

    def warm_start(
        self, source: Tally | Mapping[str, tuple[int, float]] | str | Path, *, experiment: str | None = None
    ) -> None:
        """Add what was learned elsewhere to the tally.

        A `Tally` in the order of the arms, `{arm: (pulls, sum)}`, or an old log (a path or URL, and which experiment of
        it), whose arms are matched by name; of a log with epochs, the last one.
        """
        given = source if isinstance(source, Tally | Mapping) else _learned(source, experiment)
        self.session.change(lambda state: WarmStart(tally=tally_for(given, state)))

    def erase_unit(self, unit: str) -> int:
        """Put a random token in the place of a unit's name, and of its idempotency keys, in every row; how many rows had it."""
        unit, token = check_name("unit", unit), "erased-" + secrets.token_hex(8)

        def erase(transaction: Transaction, state: State) -> int:
            ledger.change(transaction, state, lambda _: EraseUnit(token=token))
            return transaction.erase_unit(unit, token)

        rows: int = self.session.write(erase)
        self._store.scrub()
        return rows

    # Looking.

    @property
    def arms(self) -> list[str]:
        """The arms that are not retired."""
        return self.state.active_arms

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self.state.policy

    @property
    def tally(self) -> Tally:
        """What has been learned, in the order of `summary()["arms"]`; a copy."""
        return self.state.tally.copy()

    @property
    def state(self) -> State:
        """The state that the next choice would be drawn from, as far as this process knows."""
        return self.session.state

    def decision(self, decision_id: str) -> Decision:
        """A decision of the log."""
        identifier = check_id(decision_id)
        self.session.check_open()
        with self._store.reading(self.experiment) as transaction:
            found = transaction.decisions([identifier])
        if not found:
            raise InvalidValue(
                "decision_id",
                identifier,
                f"a decision of experiment {self.experiment!r} in {self._store.where}",
            )
        return found[identifier]

    def summary(self) -> dict[str, Any]:
        """Where the experiment stands."""
        self.settle()
        state = self.session.refresh()
        with self._store.reading(self.experiment) as transaction:
            counts = transaction.counts()
        law = state.choice_distribution()
        chances = dict(zip(law.arms, law.probabilities.tolist(), strict=True))
        pulls, sums = state.tally.pulls.tolist(), state.tally.sums.tolist()
        return {
            "experiment": self.experiment,
            "log": self._store.where,
            "policy": str(state.policy),
            "policy_version": state.policy_version,
            "epoch": state.epoch,
            "state": state.number,
            "paused": state.paused,
            "archived": state.archived,
            "sticky": state.sticky,
            "reward": dataclasses.asdict(state.reward),
            "decisions": sum(counts.decisions.values()),
            "rewards": counts.rewards,
            "late": counts.late,
            "parked": counts.parked,
            "arms": {
                arm: {
                    "active": active,
                    "decisions": counts.decisions.get(arm, 0),
                    "pulls": pulls[place],
                    "sum": sums[place],
                    "mean": sums[place] / pulls[place] if pulls[place] else None,
                    "probability": chances.get(arm, 0.0),
                }
                for place, (arm, active) in enumerate(zip(state.arms, state.active, strict=True))
            },
        }

    def close(self) -> None:
        """Let go of the log."""
        self.session.close()

    def __repr__(self) -> str:
        return (
            f"<Bandit {self.experiment!r} on {self._store.where}: {self.policy} over {len(self.arms)} arms>"
        )

    def __enter__(self) -> Bandit:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., Bandit], tuple[Any, ...]]:
        log, staleness = self._arguments
        if not isinstance(log, str | Path):
            raise MaillardError(
                f"a bandit whose log is {self._store.where} stays in its process; give log= a path or a URL to share it"
            )
        return _reopen, (log, self.experiment, staleness)


def _reopen(log: str | Path, experiment: str, staleness: float) -> Bandit:
    return Bandit(log=log, experiment=experiment, staleness=staleness)


def _is_new(log: str | Path | Store | None) -> bool:
    """Whether a file would be made for the log."""
    try:
        return isinstance(log, str | Path) and "://" not in str(log) and not Path(log).exists()
    except (OSError, ValueError):  # no path at all: the store says so
        return False


def _learned(log: str | Path, experiment: str | None) -> dict[str, Tally]:
    """What an old log has learned of each arm: in its last epoch, or in all where it has none."""
    from maillard.decisions.opening import read_log

    with read_log(log, experiment) as opened:
        if not opened.foreign:
            state = opened.final_state()
            observed = {arm: state.tally.only(place) for place, arm in enumerate(state.arms)}
        else:
            observed = {arm: Tally.empty(1) for arm in opened.arms}
            for row in opened.rows():
                if (value := opened.reward_of(row)) is not None:
                    observed.setdefault(row.decision.arm, Tally.empty(1)).add(0, value)
    return {arm: tally for arm, tally in observed.items() if tally.pulls[0]}
