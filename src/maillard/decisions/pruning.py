"""Removal of old decisions that were exported and verified. The state and the hash chain stay.

A prune removes the rows of the first commits of a log, up to commit P. All other rows stay as they are, so
that their links can still be checked, from the hash of P on. Before anything is removed, one transaction
writes

- a `Prune` event, which has the hash of P, and
- the base state: the state after the last event of P, or after an earlier one, if a decision of a later
  commit was made in an earlier state. From it all later states are rebuilt.

From then on the log is pruned. Then the rows are removed in small transactions, in the order of the chain: a
decision always goes before its rewards, so that no reader sees a decision without them. If the process ends
early, the next prune removes the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from maillard.decisions import chain, ledger
from maillard.decisions.audit import Audit
from maillard.decisions.chain import Link
from maillard.decisions.chain_verification import ChainChecker
from maillard.decisions.events import Prune
from maillard.decisions.files import exported_commits, store_transfer
from maillard.decisions.files.exported_commits import ExportedHead
from maillard.decisions.link_verification import LinkVerifier, StateHistory, block_of
from maillard.decisions.log import DecisionLog
from maillard.decisions.pruned_logs import (
    Base,
    digest_of_base,
    digest_of_events,
    last_prune,
    load_base,
    save_base,
    write_base,
)
from maillard.decisions.pruning_choice import CommitChoice, choose_commit
from maillard.decisions.selection import Time
from maillard.decisions.session import load_state
from maillard.decisions.stores import Store, open_store
from maillard.decisions.stores.contract import Transaction
from maillard.decisions.timestamps import from_microseconds, to_microseconds
from maillard.decisions.verification import Verification
from maillard.errors import CannotAnswer, InvalidValue, Unavailable
from maillard.short_reprs import dataclass_repr

if TYPE_CHECKING:
    from maillard.decisions.bandit import Bandit

MIN_AGE = 86_400_000_000
"The least age of a decision that can be pruned, in microseconds: retries must be over by then."
_MAX_LINKS = 1_000  # per read
_MAX_DISTRIBUTIONS = 2_000  # per transaction
_MAX_ATTEMPTS = 5


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """The result of `prune`.

    >>> from maillard import Bandit, Reward
    >>> from maillard.decisions import export_changes
    >>> with Bandit(["red", "blue"], reward=Reward(low=0, high=1), log="decisions.db") as bandit:
    ...     increment = export_changes(bandit, "archive")
    >>> found = prune("decisions.db", before=1_700_000_000, exported="archive", dry_run=True)
    >>> found.decisions, found.commit
    (0, 0)
    """

    experiment: str
    source: str
    decisions: int
    "The number of decisions that were removed."
    commit: int
    "The last commit whose rows were removed, by this prune or an earlier one; 0 if there is none."
    hash: str
    "The hash of this commit: an anchor for `verify`."
    dry_run: bool = False
    "Whether nothing was removed, because only the number was asked for."

    __repr__ = dataclass_repr


class _Plan(NamedTuple):
    """A prune that is about to begin."""

    choice: CommitChoice
    base: Base
    events_digest: str
    previous: Prune | None
    last_link: int
    "The last link that was considered for `base`."


def prune(
    log: str | Path | Store | Bandit,
    *,
    before: Time,
    exported: str | Path,
    experiment: str | None = None,
    dry_run: bool = False,
    on_rows: Callable[[int], None] | None = None,
) -> Pruned:
    """Remove the decisions before a time from a log, if they are exported, verified and final.

    `before` is an aware datetime, or seconds since 1970; it must be a day ago or more. `exported` is the
    folder to which the log was exported, and `experiment` the name of the experiment, if the log contains
    several. With `dry_run`, nothing is removed, and the result tells how many decisions would be. `on_rows`
    is a callback that receives the number of decisions verified so far. docs/how-to/retention.md describes
    what is removed and what stays.

    >>> from datetime import UTC, datetime, timedelta
    >>> from maillard import Bandit, Reward
    >>> from maillard.decisions import export_changes
    >>> start, rule = datetime(2024, 1, 1, tzinfo=UTC), Reward(low=0, high=1)
    >>> with Bandit(["red", "blue"], reward=rule, log="a.db", clock=lambda: start) as bandit:
    ...     decisions = bandit.choose(size=3)
    >>> written = export_changes("a.db", "archive")
    >>> prune("a.db", before=start + timedelta(days=1), exported="archive").decisions
    3
    """
    limit = to_microseconds("before", before)
    with ExitStack() as closing:
        store = _store_of(log, closing)
        opened = store_transfer.open_shared(store, experiment)
        opened.on_rows = on_rows
        with store.reading(opened.experiment) as transaction:
            now = transaction.now
        if limit > now - MIN_AGE:
            latest = from_microseconds(now - MIN_AGE)
            raise InvalidValue("before", before, f"a time at least one day ago: {latest:%Y-%m-%d %H:%M} UTC")
        if opened.pruned is not None and not dry_run:
            _remove_rows(store, opened.experiment, opened.pruned)  # the rest of an interrupted prune
        head = exported_commits.exported_head(exported, opened.experiment)
        return _prune(store, opened, head, limit, dry_run=dry_run)


def _store_of(log: str | Path | Store | Bandit, closing: ExitStack) -> Store:
    from maillard.decisions.bandit import Bandit

    if isinstance(log, Bandit):
        return log._store
    store = open_store(log, create=False)
    if store is not log:
        closing.callback(store.close)
    return store


def _prune(store: Store, log: DecisionLog, head: ExportedHead, before: int, *, dry_run: bool) -> Pruned:
    earlier = log.pruned
    last = (0, chain.FIRST_HASH.hex()) if earlier is None else (earlier.commit, earlier.hash)
    result = Pruned(
        experiment=log.experiment, source=log.source, decisions=0, commit=last[0], hash=last[1],
        dry_run=dry_run,
    )  # fmt: skip
    with store.reading(log.experiment) as transaction:
        choice = choose_commit(transaction, log, before, head)
    if choice is None:
        return result
    exported_commits.check_files(head)
    if missing := exported_commits.missing_decisions(head, choice.ids):
        allowed = f"all decisions up to commit {choice.link.number}; {', '.join(missing)} is not there"
        raise InvalidValue("exported", str(head.folder), allowed)
    states = _verified(log, choice)
    result = replace(result, decisions=choice.count, commit=choice.link.number, hash=choice.link.hash.hex())
    if dry_run:
        return result
    for _ in range(_MAX_ATTEMPTS):
        plan = _plan(store, log, choice, states)
        event = _write_event(store, log, plan, before)
        if event is not None:
            _remove_rows(store, log.experiment, event)
            store.reclaim()
            return result
    raise Unavailable(f"log {store.where}: decisions in old states were logged meanwhile; try again")


def _verified(log: DecisionLog, choice: CommitChoice) -> StateHistory:
    """Verify the commits that are about to be removed; raise an error if there is a contradiction."""
    assert log.read_chain is not None  # the log is in a store
    found = Verification(experiment=log.experiment, source=log.source)
    checker = ChainChecker(found.add_problem, prune=log.pruned)
    states = StateHistory(log.read_chain, log.base_state(), log.source)
    if log.pruned is not None:
        with log.read_chain() as transaction:
            checker.check_kept_events(transaction, log.pruned)
    LinkVerifier(log, found, Audit(), checker=checker, states=states).run(choice.link.number)
    if found.problem_count:
        first = found.problems[0]
        what = f"{first.decision or 'the log'}: {first.what}"
        raise CannotAnswer(
            f"{log.source}: nothing was removed, because the decisions are not consistent ({what}). "
            "Run maillard verify"
        )
    if checker.report.head != choice.link.hash.hex():
        raise Unavailable(f"log {log.source}: the chain changed while it was read; try again")
    return states


def _plan(store: Store, log: DecisionLog, choice: CommitChoice, states: StateHistory) -> _Plan:
    """Find the base state: no remaining decision may have been made in an earlier state."""
    with store.reading(log.experiment) as transaction:
        last = transaction.last_link()
        stale = transaction.count_earlier_states(choice.last_event) - choice.count_before(choice.last_event)
        number = choice.last_event
        for link in _links(transaction, choice.link.number) if stale > 0 else ():
            for row in transaction.decisions(chain.id_texts(link.decisions)).values():
                if row.state < choice.last_event:
                    stale, number = stale - 1, min(number, row.state)
            if not stale:
                break
        if stale:
            advice = "Export the log and import it into a new one, which has a chain of all its decisions"
            raise CannotAnswer(f"{log.source}: some decisions are not in the hash chain. {advice}")
        epoch = transaction.head.epoch if transaction.head is not None else 0
        removed = Counter(choice.arms_of_epoch.get(epoch, {}))
        if log.pruned is not None and (known := load_base(transaction, log.pruned)).epoch == epoch:
            removed.update(known.decisions)
        digest = digest_of_events(transaction, number, choice.last_event)
    base = Base(states.at(number), epoch, dict(removed))
    return _Plan(choice, base, digest, log.pruned, last.number if last else 0)


def _links(transaction: Transaction, after: int) -> Iterator[Link]:
    while links := transaction.links(after, _MAX_LINKS):
        yield from links
        after = links[-1].number


def _write_event(store: Store, log: DecisionLog, plan: _Plan, before: int) -> Prune | None:
    """Write the event and the base state. Return None if a decision was logged that needs an older state."""
    choice, base = plan.choice, plan.base
    with store.transaction(log.experiment, lock=True, exclusive=True) as transaction:
        current = last_prune(transaction.administrative_events())
        if current != plan.previous:
            raise Unavailable(f"log {store.where}: another process has pruned it; try again")
        for link in _links(transaction, plan.last_link):
            rows = transaction.decisions(chain.id_texts(link.decisions))
            if any(row.state < base.state.number for row in rows.values()):
                return None
        if transaction.head is not None and transaction.head.epoch != base.epoch:
            return None
        content = write_base(base)
        earlier = 0 if plan.previous is None else plan.previous.decisions
        event = Prune(
            commit=choice.link.number,
            hash=choice.link.hash.hex(),
            last_event=choice.last_event,
            base=base.state.number,
            decisions=earlier + choice.count,
            before=before,
            base_digest=digest_of_base(content),
            events_digest=plan.events_digest,
        )
        state = ledger.change(transaction, load_state(transaction, store.where), lambda _: event)
        save_base(transaction, content)
        transaction.save_checkpoint(state.number, state.write())
    return replace(event, number=state.number)


def _remove_rows(store: Store, experiment: str, event: Prune) -> None:
    """Remove the rows of the pruned commits, a part in each transaction."""
    while True:
        with store.transaction(experiment, lock=True) as transaction:
            first = transaction.links(0, _MAX_LINKS)
            links = block_of([link for link in first if link.number <= event.commit])
            if not links:
                break
            transaction.remove_links(links, event.base)
    done = False
    while not done:
        with store.transaction(experiment, lock=True) as transaction:
            done = transaction.remove_distributions(event.base, _MAX_DISTRIBUTIONS)
