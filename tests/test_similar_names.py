"""Suggestions in errors: similar names are suggested, other names are not.

The names are those of the package and of the examples in its documentation. Its names are short and close to
each other: 20 of the 45 policies are similar to another policy. So three characters allow one edit, and names
whose digits differ, such as those of arms, are never similar.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import fields

import pytest

import maillard
from maillard import UnknownName, evaluation, problems
from maillard.evaluation.settings import Settings
from maillard.policies import Policy
from maillard.policies.base.policy import ALIASES
from maillard.similar_names import similar_names

KNOWN = {
    "policy": sorted([*Policy.registry, *ALIASES]),
    "estimator": evaluation.names(),
    "option": [field.name for field in fields(Settings)],
    "problem": problems.names(),
    "feature": ["device", "age", "returning", "city", "hour", "is_member"],
    "letter": ["A", "C", "D"],
    "colour": ["red", "green", "blue"],
    "version": ["v1", "v2", "v10", "arm-1", "arm-2", "arm-10"],
}
SUGGESTED = [
    # one edit
    ("policy", "kl-mss", "kl-ms"),
    ("policy", "ms++", "ms+"),
    ("policy", "thomson", "thompson"),
    ("policy", "boltzman", "boltzmann"),
    ("policy", "linucb", "lin-ucb"),
    ("policy", "mos", "moss"),
    ("estimator", "snip", "snips"),
    ("estimator", "dros", "dr-os"),
    ("estimator", "dm2", "dm"),
    ("option", "experiments", "experiment"),
    ("option", "rewardrange", "reward_range"),
    ("problem", "poison", "poisson"),
    ("feature", "devise", "device"),
    ("feature", "agee", "age"),
    ("colour", "ed", "red"),
    # two or three
    ("estimator", "caped-ips", "clipped-ips"),
    ("problem", "gausian-equl", "gaussian-equal"),
    # neighbours exchanged
    ("policy", "sm", "ms"),
    ("policy", "imde", "imed"),
    ("problem", "exponentail", "exponential"),
    ("colour", "bleu", "blue"),
    ("version", "amr-1", "arm-1"),
    # case and separators
    ("policy", "KL_MS", "kl-ms"),
    ("policy", "LinUCB", "lin-ucb"),
    ("policy", "Epsilon Greedy", "epsilon-greedy"),
    ("estimator", "SNIPS", "snips"),
    ("letter", "a", "A"),
    ("version", "arm_1", "arm-1"),
    # abbreviations
    ("policy", "boltz", "boltzmann"),
    ("policy", "epsilon", "epsilon-greedy"),
    ("estimator", "switch", "switch-dr"),
    ("estimator", "aipw-two", "aipw-two-point"),
    ("option", "conf", "confidence"),
    # further words
    ("policy", "thompson-sampling", "thompson"),
    ("option", "confidence_level", "confidence"),
]
NOT_SUGGESTED = [
    # other names
    *(("policy", name) for name in ("xyz", "foo", "bar", "best", "random", "exp3", "neural", "optimal")),
    *(("estimator", name) for name in ("direct", "doubly-robust", "tmle", "magic", "bootstrap", "mean")),
    *(("option", name) for name in ("epsilon", "start", "before", "after", "bounds", "threads", "seed")),
    *(("problem", name) for name in ("normal", "beta", "lognormal")),
    *(("feature", name) for name in ("country", "gender", "price")),
    *(("colour", name) for name in ("yellow", "black", "light-blue")),
    # too short
    ("letter", "B"),
    ("letter", "AA"),
    ("policy", "ma"),
    ("colour", "b"),
    # other digits
    ("version", "v3"),
    ("version", "v11"),
    ("version", "arm-3"),
    # the beginning of several names
    ("policy", "lin"),
    ("estimator", "clipped"),
    ("option", "max"),
    ("version", "arm"),
]


@pytest.mark.parametrize(("kind", "name", "suggested"), SUGGESTED)
def test_similar_names_are_suggested(kind: str, name: str, suggested: str) -> None:
    assert f" Did you mean {suggested!r}?" in str(UnknownName(kind, name, KNOWN[kind]))


@pytest.mark.parametrize(("kind", "name"), NOT_SUGGESTED)
def test_other_names_are_not_suggested(kind: str, name: str) -> None:
    assert "Did you mean" not in str(UnknownName(kind, name, KNOWN[kind]))


def test_a_name_is_similar_to_itself_and_similarity_by_edits_is_mutual() -> None:
    for known in KNOWN.values():
        assert [similar_names(name, known)[0] for name in known] == known
    for one, other in itertools.combinations(["ms", "ms+", "kl-ms", "kl-ms+", "med", "imed", "ts", "sm"], 2):
        assert similar_names(one, [other]) == ([other] if similar_names(other, [one]) else []), (one, other)


def test_the_most_similar_name_is_first() -> None:
    assert similar_names("kl-ms", ["kl-mss", "kl-ms+", "KL-MS", "kl-ms"]) == [
        "KL-MS",
        "kl-ms",
        "kl-mss",
        "kl-ms+",
    ]


@pytest.mark.parametrize(
    ("call", "suggested"),
    [
        (lambda: maillard.policy("kl-mss"), "kl-ms"),
        (lambda: maillard.policy("ms+:boost=3", sigma2=1), "booster"),
        (lambda: problems.problem("gausian:1,0"), "gaussian"),
        (lambda: maillard.evaluate([], "uniform", intervall="normal"), "interval"),
    ],
)
def test_functions_suggest_names(call: Callable[[], object], suggested: str) -> None:
    with pytest.raises(UnknownName, match=f"Did you mean '{suggested}'"):
        call()


def test_policy_suggests_no_nonsense() -> None:
    with pytest.raises(UnknownName, match=r"policy: unknown name 'xyz'\. Known: "):
        maillard.policy("xyz")
