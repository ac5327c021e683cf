"""The exceptions of this package: a message states the field, the value and what is allowed.

Code that reacts to an error looks at its type, its `code` or its attributes, never at its message.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable

from maillard.similar_names import similar_names

__all__ = [
    "Archived",
    "CannotAnswer",
    "Conflict",
    "InvalidLog",
    "InvalidValue",
    "MaillardError",
    "OpenWindows",
    "Paused",
    "PolicyHint",
    "Stale",
    "Unavailable",
    "UnknownName",
]


_SHORT = reprlib.Repr()
_SHORT.maxstring = 80
_MAX_LISTED = 60  # names that a message lists
_MAX_COMPARED, _MAX_LENGTH = 200, 64  # names to compare an unknown name with; length of a name to compare


class MaillardError(Exception):
    """The base class of every exception that this package raises on purpose.

    >>> import maillard
    >>> try:
    ...     maillard.policy("msx")
    ... except maillard.MaillardError as error:
    ...     print(error.code)
    unknown_name
    """

    code: str = "error"
    "A stable, machine-readable name of the kind of error; the HTTP API sends it as `error.code`."

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_SHORT.repr(str(self))})"


class InvalidValue(MaillardError, ValueError):
    """An argument has a value that is not allowed.

    >>> raise InvalidValue("sigma2", -1, "a finite number > 0")
    Traceback (most recent call last):
    maillard.errors.InvalidValue: sigma2: expected a finite number > 0, got -1
    """

    code = "invalid_value"

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(field, value, allowed)
        self.field, self.value, self.allowed = field, value, allowed

    def __str__(self) -> str:
        try:
            shown = reprlib.repr(self.value)
        except ValueError:  # Python refuses to write an integer of more than 4300 digits
            shown = f"an object of type {type(self.value).__name__} that cannot be shown"
        shown = " ".join(map(str.strip, shown.splitlines()))
        return f"{self.field}: expected {self.allowed}, got {shown}"

    def with_location(self, location: str) -> InvalidValue:
        """The same error, preceded by the place in a file where it was found."""
        return type(self)(f"{location}: {self.field}", self.value, self.allowed)


class InvalidLog(InvalidValue):
    """The log itself is damaged, or is not a decision log; the caller's arguments are not at fault.

    >>> from pathlib import Path
    >>> from maillard import read_log
    >>> written = Path("a.db").write_text("not a log")
    >>> read_log("a.db")
    Traceback (most recent call last):
    maillard.errors.InvalidLog: log: expected a log of decisions (this file is no SQLite database), got 'a.db'
    """

    code = "invalid_log"


class UnknownName(MaillardError, LookupError):
    """A name does not exist; the message suggests the nearest one that does.

    >>> raise UnknownName("policy", "ms++", ["ms", "ms+", "ucb1"])
    Traceback (most recent call last):
    maillard.errors.UnknownName: policy: unknown name 'ms++'. Did you mean 'ms+'? Known: ms, ms+, ucb1
    """

    code = "unknown_name"

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        super().__init__(kind, str(name), tuple(map(str, known)))
        self.kind, self.name, self.known = kind, str(name), tuple(self.args[2])

    def __str__(self) -> str:
        # Comparisons take time, and the caller may have sent any number of long names.
        short = [name for name in self.known[:_MAX_COMPARED] if len(name) <= _MAX_LENGTH]
        similar = similar_names(self.name, short) if len(self.name) <= _MAX_LENGTH else []
        hint = f" Did you mean {similar[0]!r}?" if similar else ""
        some = [name if name.isprintable() else repr(name) for name in self.known[:_MAX_LISTED]]
        more = f" and {len(self.known) - _MAX_LISTED} more" if len(self.known) > _MAX_LISTED else ""
        return f"{self.kind}: unknown name {self.name!r}.{hint} Known: {', '.join(some)}{more}"


class Conflict(MaillardError):
    """A different record already exists under the same key.

    >>> from maillard import Bandit, Reward
    >>> bandit = Bandit(["red", "blue"], reward=Reward(low=0, high=1))
    >>> decision = bandit.choose()
    >>> outcome = bandit.reward(decision, 1)
    >>> try:
    ...     bandit.reward(decision, 0)
    ... except Conflict as error:
    ...     print(error.code)
    conflict
    """

    code = "conflict"


class Stale(Conflict):
    """The experiment has changed since the caller last read it.

    >>> from maillard import Bandit, Reward
    >>> bandit = Bandit(["red", "blue"], reward=Reward(low=0, high=1))
    >>> known = bandit.state.administrative
    >>> bandit.add_arm("green")
    >>> bandit.change_policy("ms", expected=known)
    Traceback (most recent call last):
    maillard.errors.Stale: experiment 'default' has changed: its last change is event 2, not 1
    """

    code = "stale"


class Paused(MaillardError):
    """The experiment is paused: it accepts rewards but makes no decisions.

    >>> from maillard import Bandit, Reward
    >>> bandit = Bandit(["red", "blue"], reward=Reward(low=0, high=1))
    >>> bandit.pause()
    >>> bandit.choose()
    Traceback (most recent call last):
    maillard.errors.Paused: experiment 'default' is paused; resume it first (bandit.resume())
    """

    code = "paused"


class Archived(Paused):
    """The experiment is archived: it accepts rewards but makes no decisions and accepts no changes.

    >>> from maillard import Bandit, Reward
    >>> bandit = Bandit(["red", "blue"], reward=Reward(low=0, high=1))
    >>> bandit.archive()
    >>> bandit.choose()
    Traceback (most recent call last):
    maillard.errors.Archived: experiment 'default' is archived; resume it first (bandit.resume())
    """

    code = "archived"


class Unavailable(MaillardError):
    """The log cannot be reached or written right now. Nothing was acknowledged; it is safe to retry.

    >>> from maillard import Client
    >>> try:
    ...     Client("http://127.0.0.1:1", retries=0).experiments()  # no service is there
    ... except Unavailable as error:
    ...     print(error.code)
    unavailable
    """

    code = "unavailable"


class CannotAnswer(MaillardError):
    """The query is valid, but this log does not contain what is needed to answer it.

    >>> from maillard import Bandit, Reward, evaluate
    >>> evaluate(Bandit(["red", "blue"], reward=Reward(low=0, high=1)), "arm:red")
    Traceback (most recent call last):
    maillard.errors.CannotAnswer: memory has no decisions: an evaluation needs at least one decision
    """

    code = "cannot_answer"


class OpenWindows(CannotAnswer):
    """The log cannot answer yet: too few decisions have a closed reward window.

    >>> from maillard import Bandit, Reward, replay
    >>> bandit = Bandit(["red", "blue"], reward=Reward.clicks(window="1h"))
    >>> decisions = bandit.choose(size=100)
    >>> try:
    ...     replay(bandit, "ms")
    ... except OpenWindows as error:
    ...     print(error.code)
    open_windows
    """

    code = "open_windows"


class PolicyHint(UserWarning):
    """Another policy fits the rewards of a new experiment better. The experiment works all the same.

    >>> import warnings
    >>> from maillard import Bandit, Reward
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", PolicyHint)
    ...     bandit = Bandit(["red", "blue"], "ts", reward=Reward.clicks(window="1h"))
    >>> bandit.hints[0].split(". ")[0]
    'ts assumes a reward variance of 0.25'
    """
