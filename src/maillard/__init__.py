"""Exploration you can audit: bandit policies whose every choice comes with its exact probability."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maillard import policies
from maillard.errors import InvalidValue, MaillardError, UnknownName
from maillard.exploration import explore
from maillard.policies import *  # noqa: F403  # every policy's class; found, not listed
from maillard.policies import policy
from maillard.tally import Tally

if TYPE_CHECKING:
    from maillard.policies.exports import *  # noqa: F403  # the same, for type checkers

__all__ = [  # noqa: PLE0604  # the policies' classes are found, not listed
    "InvalidValue",
    "MaillardError",
    "Tally",
    "UnknownName",
    "explore",
    "policies",
    "policy",
    *policies.__all__,
]
__version__ = "0.1.0"
