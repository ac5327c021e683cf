"""Verification from a checkpoint: only the commits after those that an earlier verification has checked.

The checkpoint is a JSON file with the last verified commit, its hash, a state, and the sums of the audit.
Decisions that get rewards later are checked again with all their rewards. Rows of earlier commits are not
read again: only a verification without a checkpoint finds changes of them.

A decision may have been made in an older state than the last one of the checkpoint. So the state in the file
is some events older. If a decision needs an even older one, the whole log is verified.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maillard.decisions.audit import Audit
from maillard.decisions.chain_verification import ChainChecker, check_anchor
from maillard.decisions.files.output_files import atomic_file
from maillard.decisions.link_verification import LinkVerifier, StateBefore, StateHistory
from maillard.decisions.log import MALFORMED, DecisionLog
from maillard.decisions.state import State
from maillard.decisions.verification import Verification
from maillard.errors import InvalidValue, MaillardError

_FORMAT = 1
_STATE_AGE = 10_000  # events that the saved state may be behind
_COUNTS = "decisions", "recomputed", "largest_error"  # fields of a Verification that continue
_CHAIN_COUNTS = "decisions", "erased"  # fields of a ChainReport that continue


@dataclass(frozen=True, kw_only=True)
class _Checkpoint:
    """The result of an earlier verification."""

    experiment: str
    commit: int
    hash: str
    last_event: int
    "The last event of the commit."
    pruned: int
    "The last commit that had been pruned; 0 if there was none."
    state: State | None
    "A state from which later ones are rebuilt; None is the start of the experiment, or of a pruned log."
    counts: dict[str, Any]
    not_recomputed: dict[str, int]
    chain: dict[str, int]
    rewards: int
    "The number of reward events in the chain."
    audit: Audit


def verify_from(path: Path, log: DecisionLog, found: Verification, anchor: str | None) -> Audit:
    """Verify the commits after the checkpoint in a file, and save a new one if there is no problem."""
    _check_log(path, log)
    saved = _read(path, log)
    if saved is not None and _can_continue(saved, log, found, anchor):
        if found.problem_count:
            return saved.audit
        try:
            return _verify(path, log, found, anchor, saved)
        except StateBefore:
            pass  # a decision in a very old state: verify the whole log
    return _verify(path, log, found, anchor, None)


def _check_log(path: Path, log: DecisionLog) -> None:
    if log.read_chain is None or not log.selection.selects_all:
        raise InvalidValue("checkpoint", str(path), f"None: {log.source} is not a whole log in a database")
    with log.read_chain() as transaction:
        first = transaction.links(0, 1)
    if not first or (log.pruned is None and first[0].first_event != 1):
        allowed = f"None: {log.source} has decisions that are older than its hash chain"
        raise InvalidValue("checkpoint", str(path), allowed)


def _can_continue(saved: _Checkpoint, log: DecisionLog, found: Verification, anchor: str | None) -> bool:
    """Whether the log can be verified from the checkpoint. A log that does not extend it has a problem."""
    assert log.read_chain is not None  # checked before
    if saved.pruned != (0 if log.pruned is None else log.pruned.commit):
        return False
    with log.read_chain() as transaction:
        links = transaction.links(saved.commit - 1, 1)
        earlier = anchor is not None and _has_earlier(transaction, anchor, saved.commit)
    if not links or links[0].number != saved.commit or links[0].hash.hex() != saved.hash:
        reason = "its end was cut off, its history was rewritten, or the checkpoint is of another log"
        found.add_problem(None, f"commit {saved.commit} does not have the hash of the checkpoint: {reason}")
        return True
    return not earlier


def _has_earlier(transaction: Any, anchor: str, commit: int) -> bool:
    """Whether a commit before this one has the hash of the anchor."""
    after = 0
    while links := transaction.links(after, 1_000):
        for link in links:
            if link.number >= commit:
                return False
            if link.hash.hex() == anchor:
                return True
        after = links[-1].number
    return False


def _verify(
    path: Path, log: DecisionLog, found: Verification, anchor: str | None, saved: _Checkpoint | None
) -> Audit:
    assert log.read_chain is not None  # checked before
    result = Verification(
        experiment=found.experiment, source=found.source, seeded=found.seeded,
        simulated_clock=found.simulated_clock,
    )  # fmt: skip
    checker = ChainChecker(result.add_problem, anchor, log.pruned)
    audit, base = Audit(), log.base_state()
    if saved is not None:
        audit, base = saved.audit, saved.state if saved.state is not None else base
        _resume(saved, result, checker)
    elif log.pruned is not None:
        with log.read_chain() as transaction:
            checker.check_kept_events(transaction, log.pruned)
    states = StateHistory(log.read_chain, base, log.source)
    verifier = LinkVerifier(log, result, audit, checker=checker, states=states, recheck=saved is not None)
    position = -1
    while position != checker.report.commits:  # a problem ends the run before the last link
        position = checker.report.commits
        with log.read_chain() as transaction:
            last = transaction.last_link()
            if last is None or last.number == position:
                checker.compare_counts(transaction)
                break
        verifier.run(last.number)
    checker.check_anchor()
    result.chain = checker.report
    vars(found).update(vars(result))
    if not result.problem_count and not audit.impossible and audit.verdict != "broken":
        _write(path, log, verifier, result)
    return audit


def _resume(saved: _Checkpoint, result: Verification, checker: ChainChecker) -> None:
    """Continue the counts of an earlier verification."""
    for name in _COUNTS:
        setattr(result, name, saved.counts[name])
    result.not_recomputed, result.verified_before = Counter(saved.not_recomputed), saved.counts["decisions"]
    for name in _CHAIN_COUNTS:
        setattr(checker.report, name, saved.chain[name])
    checker.rewards = saved.rewards
    checker.start_after(saved.commit, saved.hash, saved.last_event)


def _write(path: Path, log: DecisionLog, verifier: LinkVerifier, result: Verification) -> None:
    """Save the result of a verification without problems."""
    checker, audit, states = verifier.chain, verifier.audit, verifier.states
    last_event = checker.next_event - 1
    state = states.before(_STATE_AGE, last_event)
    content = {
        "format": _FORMAT,
        "experiment": log.experiment,
        "commit": checker.report.commits,
        "hash": checker.report.head,
        "last_event": last_event,
        "pruned": 0 if log.pruned is None else log.pruned.commit,
        "state": None if state is None else json.loads(state.write()),
        "counts": {name: getattr(result, name) for name in _COUNTS},
        "not_recomputed": dict(result.not_recomputed),
        "chain": {name: getattr(checker.report, name) for name in _CHAIN_COUNTS},
        "rewards": checker.rewards,
        "audit": audit.to_dict(),
    }
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(content, ensure_ascii=False), encoding="utf8")


def _read(path: Path, log: DecisionLog) -> _Checkpoint | None:
    """The checkpoint in a file; None if there is no file yet."""
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InvalidValue("checkpoint", str(path), f"a checkpoint, or a new file ({error})") from None
    try:
        if data["format"] != _FORMAT:
            allowed = f"a checkpoint of format {_FORMAT}; delete the file to verify the whole log"
            raise InvalidValue("checkpoint: format", data["format"], allowed)  # noqa: TRY301  # the same place
        state = data["state"]
        made = _Checkpoint(
            state=None if state is None else State.read(json.dumps(state)),
            audit=Audit.from_dict(data["audit"]),
            **{name: data[name] for name in _PLAIN},
        )
        check_anchor(made.hash)
        if {type(number) for number in (made.commit, made.last_event, made.pruned, made.rewards)} != {int}:
            raise InvalidValue("commit", made.commit, "a whole number")  # noqa: TRY301  # the same place
        if any(name not in made.counts for name in _COUNTS) or any(
            n not in made.chain for n in _CHAIN_COUNTS
        ):
            raise InvalidValue("counts", made.counts, "all counts")  # noqa: TRY301  # the same place
    except InvalidValue as error:
        raise error.with_location(str(path)) from None
    except (*MALFORMED, MaillardError) as error:
        raise InvalidValue("checkpoint", str(path), f"a checkpoint, or a new file ({error!r})") from None
    if made.experiment != log.experiment:
        allowed = f"a checkpoint of experiment {log.experiment!r}, not {made.experiment!r}"
        raise InvalidValue("checkpoint", str(path), allowed)
    return made


_PLAIN = [each.name for each in dataclasses.fields(_Checkpoint) if each.name not in ("state", "audit")]
