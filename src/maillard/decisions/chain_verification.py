"""Checks the hash chain of a log: whether rows were deleted, added or changed after they were committed."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

from maillard.decisions import chain
from maillard.decisions.chain import FIRST_HASH, Commit, Link
from maillard.decisions.chain_screening import screen_links
from maillard.decisions.decision import RewardEvent
from maillard.decisions.events import Prune
from maillard.decisions.pruned_logs import digest_of_events, last_prune
from maillard.decisions.stores.bulk_columns import OddRows
from maillard.decisions.stores.bulk_reads import BulkReader
from maillard.decisions.stores.contract import ChainRows, Transaction
from maillard.decisions.stores.native_reads import NativeReader, bulk_reader
from maillard.decisions.stores.vectors import digest_of
from maillard.decisions.timestamps import from_microseconds
from maillard.errors import InvalidValue, MaillardError, Unavailable

_MAX_LINKS = 256  # per transaction
# Links and rows that are screened at once: with compiled reads, there are no objects that take memory.
_MAX_SCREENED_BATCHES, _SCREENED_ROWS, _NATIVE_ROWS = 32, 60_000, 150_000
_MAX_FAILURES = 8  # batches that could not be screened, after which no more are
_MAX_NAMED = 3  # decisions in a message
_HASH = re.compile("[0-9a-f]{64}")

# Receives the id of a decision, or None, and a problem.
OnProblem = Callable[[str | None, str], None]


@dataclass(kw_only=True)
class ChainReport:
    """What the hash chain says about a log."""

    commits: int = 0
    "The number of links, of which each is a commit."
    head: str = FIRST_HASH.hex()
    "The hash of the last link, in hexadecimal digits."
    time: int | None = None
    "When the last link was added, in microseconds since 1970."
    decisions: int = 0
    "The number of decisions in the chain."
    erased: int = 0
    "Of these, how many had their unit erased. The chain still covers the rest of their rows."
    unchained: int = 0
    "Decisions that were logged before the log had a chain."
    anchor: int | None = None
    "The number of the commit that has the hash of the given anchor."
    pruned: PrunedCommits | None = None
    "The first commits, if they were pruned. The other fields except `commits` do not count them."


@dataclass(frozen=True)
class PrunedCommits:
    """Commits whose decisions were removed from the log."""

    commit: int
    "The number of the last one."
    hash: str
    decisions: int
    "How many decisions were removed."
    before: int
    "The decisions were made before this time, in microseconds since 1970."


def check_anchor(anchor: str) -> str:
    """Return a hash in lower case, or raise InvalidValue."""
    if isinstance(anchor, str) and _HASH.fullmatch(lowered := anchor.strip().lower()):
        return lowered
    raise InvalidValue(
        "anchor", anchor, "the hash of a head: 64 hexadecimal digits, as `maillard head` prints"
    )


def check_chain(
    read: Callable[[], AbstractContextManager[Transaction]],
    on_problem: OnProblem,
    anchor: str | None = None,
    prune: Prune | None = None,
) -> ChainReport:
    """Recompute the hashes of all links from the rows, and report every contradiction.

    `read` begins a read-only transaction. The chain only grows, so it is read in several of them. `prune` is
    the event that removed the first commits, if one did.
    """
    checker = ChainChecker(on_problem, anchor, prune)
    if prune is not None:
        with read() as transaction:
            checker.check_kept_events(transaction, prune)
    if check_links(checker, read):
        checker.check_anchor()
    return checker.report


def check_links(
    checker: ChainChecker,
    read: Callable[[], AbstractContextManager[Transaction]],
    through: Callable[[Transaction, int], int | None] = lambda *_: None,
) -> bool:
    """Check the next links, and the numbers of rows after the last one; return False if that is impossible.

    Before each batch, `through` gets the number of the last link, and returns the commit after which to stop,
    without a comparison of the numbers of rows; None if there is none.
    """
    # Screening does not count the rewards of decisions that were pruned.
    limit, failures = _MAX_LINKS, _MAX_FAILURES if checker.pruned else 0
    while True:
        try:
            with read() as transaction:
                done = checker.report.commits
                last = through(transaction, done)
                links = transaction.links(done, limit if last is None else max(min(limit, last - done), 0))
                if not links:
                    if last is None:
                        checker.compare_counts(transaction)
                    return True
                if failures < _MAX_FAILURES:
                    accepted = checker.screen(transaction, links)
                    limit = _next_limit(links, checker.screened_rows)
                    failures += accepted < len(links)
                    # Read on where batches of the usual size begin, so that errors name the same commit.
                    links = links[accepted:][: _MAX_LINKS - checker.report.commits % _MAX_LINKS]
                else:
                    limit = _MAX_LINKS
                rows = transaction.chain_rows(links)
                checker.count_lost_rewards(transaction, links)
            for link in links:
                checker.check(link, rows)
        except MaillardError as error:
            checker.on_problem(
                None, f"the chain cannot be checked after commit {checker.report.commits}: {error}"
            )
            return False


def _next_limit(links: Sequence[Link], most: int) -> int:
    """Return how many links to read next, so that they have about this number of rows."""
    rows = sum(
        link.events + len(link.decisions) // chain.ID_SIZE + len(link.rewards) // chain.REWARD_KEY_SIZE
        for link in links
    )
    batches = most * len(links) // max(rows, 1) // _MAX_LINKS
    return min(max(batches, 1), _MAX_SCREENED_BATCHES) * _MAX_LINKS


def refuse_pruned_meanwhile(
    read: Callable[[], AbstractContextManager[Transaction]], known: Prune | None
) -> None:
    """Raise Unavailable if the log was pruned while it was read: then problems mean nothing."""
    with read() as transaction:
        if last_prune(transaction.administrative_events()) != known:
            raise Unavailable("the log was pruned while it was verified; verify it again")


class ChainChecker:
    """Checks links one after the other."""

    def __init__(self, on_problem: OnProblem, anchor: str | None = None, prune: Prune | None = None) -> None:
        self.report, self.on_problem, self.anchor = ChainReport(), on_problem, anchor
        self.previous, self.rewards, self.pruned = FIRST_HASH, 0, prune is not None
        self.first_event, self.next_event = 0, 1  # of the links so far, and after them; 0 if it is not known
        self.complete = True  # whether the chain begins with the log
        self._reader_type: type[BulkReader] | None = None
        if prune is not None:
            self.report.pruned = PrunedCommits(prune.commit, prune.hash, prune.decisions, prune.before)
            self.start_after(prune.commit, prune.hash, prune.last_event)

    def start_after(self, commit: int, hashed: str, last_event: int) -> None:
        """Begin with the link after this commit."""
        self.report.commits, self.report.head = commit, hashed
        self.previous, self.next_event = bytes.fromhex(hashed), last_event + 1
        if hashed == self.anchor:
            self.report.anchor = commit

    def check_anchor(self) -> None:
        """Report an anchor that no link has."""
        if self.anchor is None or self.report.anchor is not None:
            return
        reason = "its end was cut off, its history was rewritten, or the anchor belongs to another log"
        if self.report.pruned is not None:
            pruned = f"a commit before {self.report.pruned.commit}, which was pruned"
            reason += f"; or it is the hash of {pruned}, and you can verify the export instead"
        missing = f"no commit of this log has the hash {self.anchor}"
        self.on_problem(None, f"{missing}, so it does not extend the published head: {reason}")

    def check_kept_events(self, transaction: Transaction, prune: Prune) -> None:
        """Check the events that pruning left without their links."""
        if digest_of_events(transaction, prune.base, prune.last_event) != prune.events_digest:
            span = f"the events up to {prune.last_event} that pruning kept"
            self.on_problem(None, f"{span} do not have the digest of event {prune.number}: one was changed")

    def count_lost_rewards(self, transaction: Transaction, links: Sequence[Link]) -> None:
        """Leave out the rewards of decisions that were pruned, as the counts of the log do."""
        if self.pruned:
            keys = [chain.id_text(key[: chain.ID_SIZE]) for link in links for key in chain.reward_keys(link)]
            known = transaction.decision_summaries(set(keys))
            self.rewards -= sum(key not in known for key in keys)

    def count_leftovers(self, transaction: Transaction) -> int:
        """Count the rows of pruned links that an interrupted prune has left; return that of decisions."""
        decisions = after = 0
        last = self.report.pruned.commit if self.report.pruned is not None else 0
        while links := [link for link in transaction.links(after, _MAX_LINKS) if link.number <= last]:
            decisions += sum(len(link.decisions) for link in links) // chain.ID_SIZE
            self.rewards += sum(len(link.rewards) for link in links) // chain.REWARD_KEY_SIZE
            self.count_lost_rewards(transaction, links)
            after = links[-1].number
        return decisions

    def screen(self, transaction: Transaction, links: Sequence[Link]) -> int:
        """Check links many at once; return how many of them, from the first on, are certainly correct."""
        accepted = 0
        with suppress(OddRows, MaillardError, sqlite3.Error):  # `check` reports the error
            reader = self._reader(transaction)
            for link, found in zip(links, screen_links(reader, links), strict=True):
                self._begin(link)
                gap = link.events and link.first_event != (self.next_event or link.first_event)
                if gap or link.number != self.report.commits + 1:
                    break
                if chain.next_hash(self.previous, found.digest) != link.hash:
                    break
                self._advance(link, found.erased)
                accepted += 1
        return accepted

    @property
    def screened_rows(self) -> int:
        """The number of rows that are screened at once."""
        native = self._reader_type is not None and issubclass(self._reader_type, NativeReader)
        return _NATIVE_ROWS if native else _SCREENED_ROWS

    def _reader(self, transaction: Transaction) -> BulkReader:
        """Return a reader for a transaction, always of the same type."""
        if self._reader_type is None:
            self._reader_type = type(bulk_reader(transaction))
        return self._reader_type(transaction)

    def check(self, link: Link, rows: ChainRows) -> None:
        """Check the next link."""
        report = self.report
        self._begin(link)
        if link.number != report.commits + 1:
            self.on_problem(None, f"commit {report.commits + 1} of the chain is missing")
        if link.events and link.first_event != (self.next_event or link.first_event):
            first = f"begins with event {link.first_event}, not {self.next_event}"
            self.on_problem(None, f"{_describe(link)} {first}")
        missing = list(_missing_rows(link, rows))
        for decision, problem in missing:
            self.on_problem(decision, problem)
        if not missing and chain.next_hash(self.previous, _digest(link, rows)) != link.hash:
            self.on_problem(None, _changed(link))
        seals = [rows.decisions[key][1] for key in chain.id_texts(link.decisions) if key in rows.decisions]
        self._advance(link, sum(map(chain.is_erased, seals)))

    def _begin(self, link: Link) -> None:
        if not self.report.commits and link.first_event != 1:
            self.complete, self.next_event = False, 0

    def _advance(self, link: Link, erased: int) -> None:
        """Continue after a link."""
        report = self.report
        self.previous = link.hash
        if link.events:
            self.first_event = self.first_event or link.first_event
            self.next_event = link.first_event + link.events
        report.commits, report.head, report.time = link.number, link.hash.hex(), link.time
        report.erased += erased
        report.decisions += len(link.decisions) // chain.ID_SIZE
        self.rewards += len(link.rewards) // chain.REWARD_KEY_SIZE
        if report.head == self.anchor:
            report.anchor = link.number

    def compare_counts(self, transaction: Transaction) -> None:
        """Compare the numbers of rows in the log and in its chain, after the last link."""
        report, head = self.report, transaction.head
        last = self.next_event - 1
        if head is not None and self.next_event and report.commits and head.number != last:
            self.on_problem(None, f"the log has {head.number} events, but its chain ends with event {last}")
        end = transaction.chain_end()
        if (end[0] if end else 0) != report.commits or (end and end[1].hex() != report.head):
            shown = f"commit {end[0]} with the hash {end[1].hex()}" if end else "no commit"
            problem = f"the chain ends with commit {report.commits}, but the log was left with {shown}"
            self.on_problem(None, problem)
        extra = transaction.count_decisions() - report.decisions - self.count_leftovers(transaction)
        if not self.complete or not report.commits:
            report.unchained = max(extra, 0)
            return
        more = transaction.count_rewards(self.rewards) - self.rewards
        for rows, number in (("decisions", extra), ("rewards", more)):
            if number > 0:
                self.on_problem(None, f"{number} {rows} are not in the chain: they were added from outside")


def _describe(link: Link) -> str:
    return f"commit {link.number} ({from_microseconds(link.time):%Y-%m-%d %H:%M:%S} UTC)"


def _changed(link: Link) -> str:
    ids = chain.id_texts(link.decisions)
    parts = [
        f"decisions {', '.join(ids[:_MAX_NAMED])}{', ...' if len(ids) > _MAX_NAMED else ''}" if ids else "",
        f"events {link.first_event} to {link.first_event + link.events - 1}" if link.events else "",
        "rewards" if link.rewards else "",
    ]
    named = "; ".join(part for part in parts if part)
    return f"{_describe(link)} does not have the hash of its rows: one of them was changed ({named})"


def _missing_rows(link: Link, rows: ChainRows) -> Iterator[tuple[str | None, str]]:
    """Yield the rows that a link names and the log does not have."""
    for key in chain.id_texts(link.decisions):
        if key not in rows.decisions:
            yield key, f"was deleted: {_describe(link)} contains it"
    for number in range(link.first_event, link.first_event + link.events):
        if number not in rows.events:
            yield None, f"event {number} was deleted: {_describe(link)} contains it"
    found = {chain.reward_record(row)[: chain.REWARD_KEY_SIZE] for row in _rewards_of(link, rows)}
    for reward in chain.reward_keys(link):
        if reward not in found:
            yield chain.id_text(reward[: chain.ID_SIZE]), f"lost a reward: {_describe(link)} contains it"


def _rewards_of(link: Link, rows: ChainRows) -> Iterator[RewardEvent]:
    for key in set(chain.id_texts(link.rewards, chain.REWARD_KEY_SIZE)):
        yield from rows.rewards.get(key, ())


def _digest(link: Link, rows: ChainRows) -> bytes:
    """The digest of a link's rows, none of which is missing."""
    commit = Commit()
    for key in chain.id_texts(link.decisions):
        decision, seal = rows.decisions[key]
        vector = digest_of(decision.eligible, decision.log_probabilities)
        commit.decisions.append(chain.decision_record(decision, seal, vector))
    commit.add_events(rows.events[link.first_event + place] for place in range(link.events))
    keys = set(chain.reward_keys(link))
    records = map(chain.reward_record, _rewards_of(link, rows))
    commit.rewards = [record for record in records if record[: chain.REWARD_KEY_SIZE] in keys]
    return commit.digest()
