"""The interface of every policy, and the registry of policy names."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, dataclass_transform, overload

import numpy as np
from numpy.typing import ArrayLike

from maillard import specs
from maillard.array_types import Bools, Floats, Indices
from maillard.errors import InvalidValue, UnknownName
from maillard.linear_tally import LinearTally
from maillard.policies.base.choice_arguments import check_eligible, check_round
from maillard.policies.base.formula_versions import VersionedFormula
from maillard.policies.base.guarantees import Guarantees
from maillard.policies.base.parameters import Parameter, choice, describe_all, flag, real, whole
from maillard.policies.base.policy_display import PolicyDisplay
from maillard.segment_tally import SegmentTally
from maillard.short_reprs import dataclass_repr, fields_repr
from maillard.tally import Tally

AnyTally = Tally | LinearTally | SegmentTally
# "inherited": that of the policy which the policy contains.
ProbabilityKind = Literal["closed form", "quadrature", "deterministic", "inherited"]
_FORMULAS = {"leader", "rival", "estimate", "index", "divergence", "upper"}
# Other methods that define the distribution. A class that overrides one of them must declare its
# `engine_shape`.
_DISTRIBUTION_METHODS = {
    "choose", "probabilities", "log_probabilities", "distribution", "indices",
    "_solve", "_solve_arms", "_check_use", "_weights", "_ties", "_win",
    "models", "_solve_scores", "_normalise", "_costs", "_log_probabilities",
}  # fmt: skip
# Bound on the relative rounding error of a closed form: a few operations; a divergence loses a factor 40.
_ROUNDING = 64 * np.finfo(np.float64).eps


@dataclasses.dataclass(frozen=True, eq=False)
class Distribution:
    """The log probability of every arm, and a bound on the error of each.

    >>> from maillard import Tally, policy
    >>> found = policy("ts", sigma2=0.25).distribution(Tally(pulls=[10, 10], sums=[6, 4]))
    >>> found.log_probabilities.round(3), bool(found.error.max() < 1e-6)
    (array([-0.205, -1.684]), True)
    """

    log_probabilities: Floats
    error: Floats
    __repr__ = dataclass_repr


@dataclass_transform(
    kw_only_default=True,
    frozen_default=True,
    field_specifiers=(real, whole, flag, choice, dataclasses.field),
)
class Policy(VersionedFormula, PolicyDisplay):
    """Base class of all policies: its fields are parameters and its methods are pure formulas.

    Every subclass automatically becomes a frozen dataclass with keyword-only fields. A subclass with a `name`
    is registered under this name and can be used wherever a policy name is accepted.

    >>> from maillard import Tally, policy
    >>> made, tally = policy("ms+:booster=8", sigma2=0.25), Tally(pulls=[10, 10], sums=[6, 4])
    >>> made.probabilities(tally).round(3), made.log_probabilities(tally).round(3)
    (array([0.947, 0.053]), array([-0.055, -2.932]))
    >>> made.choose(tally, np.random.default_rng(1), size=4)
    array([0, 1, 0, 1])
    >>> bool(made.distribution(tally).error.max() < 1e-12)
    True
    >>> [name for name, *_ in made.parameters()], made.spec().options
    (['sigma2', 'booster', 'c', 'd'], {'sigma2': 0.25, 'booster': 8.0})
    >>> policy("arm:blue").bind(["red", "blue"]).constant_probabilities(2)
    array([0., 1.])
    """

    name: ClassVar[str]
    formula: ClassVar[str] = ""
    latex: ClassVar[str] = ""  # the same formula, for notebooks
    reference: ClassVar[str] = ""
    guarantees: ClassVar[Guarantees] = Guarantees(source="not stated")
    probability_kind: ClassVar[ProbabilityKind]
    support: ClassVar[tuple[float, float]] = (-np.inf, np.inf)
    requires_binary_rewards: ClassVar[bool] = False  # rewards must be 0 or 1
    requires_positive_rewards: ClassVar[bool] = False  # rewards must be above 0
    has_prior: ClassVar[bool] = False  # the distribution is defined before the first reward: no forced pulls
    uses_context: ClassVar[bool] = False  # the distribution depends on features or a segment, passed as `x`
    engine_shape: ClassVar[str | None] = None  # the simulation engine for the formulas; None: use `choose`
    derived: ClassVar[tuple[str, ...]] = ()  # properties that formulas use in addition to the parameters
    monotone: ClassVar[bool] = False  # see the base classes: simulation may use bounds instead of formulas
    concentrates: ClassVar[bool] = False  # see `Sampled`: a bound on a weight may hold for several pulls
    registry: ClassVar[dict[str, type[Policy]]] = {}

    def __init_subclass__(cls, *, kw_only: bool = True, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if not _FORMULAS.isdisjoint(cls.__dict__):  # what was declared of inherited formulas ends here
            cls.monotone = cls.__dict__.get("monotone", False)
            cls.concentrates = cls.__dict__.get("concentrates", False)
        declared = next(i for i, base in enumerate(cls.__mro__) if "engine_shape" in base.__dict__)
        if any(not _DISTRIBUTION_METHODS.isdisjoint(base.__dict__) for base in cls.__mro__[:declared]):
            cls.engine_shape = None  # the distribution is no longer that of the formulas
        # Policy defines __repr__, __eq__ and __hash__: one per class would double the import time.
        dataclasses.dataclass(frozen=True, kw_only=kw_only, repr=False, eq=False)(cls)
        if cls.__doc__ and cls.parameters():  # python -OO removes docstrings
            cls.__doc__ = f"{inspect.cleandoc(cls.__doc__)}\n\n{describe_all(cls.parameters())}\n"
        if cls.guarantees.closed_form_probability is None:
            closed = {"closed form": True, "quadrature": False}.get(getattr(cls, "probability_kind", ""))
            cls.guarantees = dataclasses.replace(cls.guarantees, closed_form_probability=closed)
        name = cls.__dict__.get("name")
        if not isinstance(name, str):  # an abstract class, or a wrapper that takes the name of its policy
            if getattr(cls, "name", None) not in Policy.registry:
                cls.name = cls.__name__  # for error messages
            return
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]  # it was made a dataclass above
            if not field.metadata and cls.spec is Policy.spec:
                allowed = "a parameter declared by real(...), whole(...), flag(...) or choice(...)"
                raise InvalidValue(f"{cls.__name__}.{field.name}", field.default, allowed)
        if specs.read(name) != specs.Spec(name, (), {}):
            allowed = "a letter, then lower-case letters, digits, + or -"
            raise InvalidValue(f"{cls.__name__}.name", name, allowed)
        taken = Policy.registry.get(name)
        if taken and (taken.__module__, taken.__qualname__) != (cls.__module__, cls.__qualname__):
            raise InvalidValue(f"{cls.__name__}.name", name, f"an unused name; {taken} has this one")
        Policy.registry[name] = cls

    def __post_init__(self) -> None:
        for name, parameter, _ in self.parameters():
            value = parameter.check(f"{self.name}: {name}", getattr(self, name))
            object.__setattr__(self, name, value)

    @classmethod
    def parameters(cls) -> list[tuple[str, Parameter, Any]]:
        """Return name, declaration and default of every parameter."""
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]  # every subclass is a dataclass
        return [(f.name, f.metadata["parameter"], f.default) for f in fields if f.metadata]

    def spec(self) -> specs.Spec:
        """Return the spec: the name and the parameters that differ from their defaults."""
        values = ((name, getattr(self, name), default) for name, _, default in self.parameters())
        return specs.Spec(self.name, (), {name: value for name, value, default in values if value != default})

    def _values(self) -> dict[str, Any]:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]  # every subclass is a dataclass
        return {field.name: getattr(self, field.name) for field in fields}

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), *self._values().values()))

    def __repr__(self) -> str:
        return fields_repr(type(self).__name__, self._values().items())

    def __str__(self) -> str:
        return specs.write(self.spec())

    def bind(self, arms: Sequence[str]) -> Policy:
        """Return the policy with names of arms replaced by their positions. Most policies contain none."""
        return self

    def constant_probabilities(self, arms: int) -> Floats | None:
        """Return the part of each probability that does not depend on the tally; None without one."""
        return None

    @property
    def needs_horizon(self) -> bool:
        """Whether the horizon must be known before the first choice."""
        return False

    def distribution(
        self, tally: AnyTally, x: Any = None, *, round: int | None = None, eligible: ArrayLike | None = None
    ) -> Distribution:
        """Return the log probability of every arm, with a bound on the error of each."""
        log, error = self._solve_tally(tally, x, round, eligible, bounds=True)
        error = rounding_error(log) if error is None else error
        # An infinite error means that the value is not known, also that of an arm with probability 0.
        return Distribution(log, np.where(np.isneginf(log) & (error < np.inf), 0.0, error))

    def log_probabilities(
        self, tally: AnyTally, x: Any = None, *, round: int | None = None, eligible: ArrayLike | None = None
    ) -> Floats:
        """Return the log probability of every arm; -inf only for an arm that cannot be chosen.

        Policies that use a context need `x`: a feature row, one row per arm, or a segment.
        """
        return self._solve_tally(tally, x, round, eligible)[0]

    def probabilities(
        self, tally: AnyTally, x: Any = None, *, round: int | None = None, eligible: ArrayLike | None = None
    ) -> Floats:
        """Return the probability of every arm."""
        return np.exp(self._solve_tally(tally, x, round, eligible)[0])

    @overload
    def choose(
        self,
        tally: AnyTally,
        rng: np.random.Generator,
        x: Any = None,
        *,
        round: int | None = None,
        eligible: ArrayLike | None = None,
        size: None = None,
    ) -> int: ...

    @overload
    def choose(
        self,
        tally: AnyTally,
        rng: np.random.Generator,
        x: Any = None,
        *,
        round: int | None = None,
        eligible: ArrayLike | None = None,
        size: int,
    ) -> Indices: ...

    def choose(
        self,
        tally: AnyTally,
        rng: np.random.Generator,
        x: Any = None,
        *,
        round: int | None = None,
        eligible: ArrayLike | None = None,
        size: int | None = None,
    ) -> int | Indices:
        """Sample an arm, or `size` arms, from exactly `probabilities`."""
        if not isinstance(rng, np.random.Generator):
            raise InvalidValue("rng", rng, "a numpy.random.Generator, such as numpy.random.default_rng()")
        if size is not None and (not isinstance(size, int | np.integer) or size < 0):
            raise InvalidValue("size", size, "a whole number >= 0")
        # A subclass may override `probabilities` without the argument that it does not use.
        context = {} if x is None else {"x": x}
        p = self.probabilities(tally, **context, round=round, eligible=eligible)
        arms = sample_arms(p, rng, 1 if size is None else size)
        return int(arms[0]) if size is None else arms

    def _solve_tally(
        self, tally: Any, x: Any, round: int | None, eligible: ArrayLike | None, *, bounds: bool = False
    ) -> tuple[Floats, Floats | None]:
        tally, x, arms = self._prepare(tally, x)
        t = tally.round if round is None else check_round(round, tally)
        self._check_use(tally)
        if eligible is None:
            return self._solve_arms(tally, x, None, t, bounds)
        mask = check_eligible(eligible, arms)
        some, some_error = self._solve_arms(tally, x, mask, t, bounds)
        log = np.full(arms, -np.inf)
        log[mask] = some
        if some_error is None:
            return log, None
        error = np.zeros(arms)
        error[mask] = some_error
        return log, error

    def _prepare(self, tally: Any, x: Any) -> tuple[Any, Any, int]:
        """Return the checked state and context as `_solve_arms` needs them, and the number of arms."""
        if not isinstance(tally, Tally):
            raise InvalidValue("tally", tally, "a Tally")
        if x is not None:
            allowed = f"None, because {self.name} uses no context (lin-ms and segmented are policies that do)"
            raise InvalidValue("x", x, allowed)
        return tally, None, len(tally)

    def _solve_arms(
        self, tally: Any, x: Any, mask: Bools | None, t: int, bounds: bool
    ) -> tuple[Floats, Floats | None]:
        """Return log probabilities of the eligible arms and their errors, None if only rounding matters.

        `mask` is None if all arms are eligible. Errors that take time are computed only if `bounds` is true.
        """
        if mask is None:
            return self._solve(tally.pulls.astype(np.float64), tally.sums, t)
        return self._solve(tally.pulls[mask].astype(np.float64), tally.sums[mask], t)

    def _solve(self, n: Floats, s: Floats, t: int) -> tuple[Floats, Floats | None]:
        """Return log probabilities and their errors, from pulls n, sums s and round t.

        The errors are None if only floating-point rounding matters.
        """
        raise NotImplementedError

    def _solve_many(self, n: Floats, s: Floats, t: Floats, eligible: Bools | None) -> Floats | None:
        """Return the log probabilities for many tallies: one row per arm, one column per tally.

        A column is NaN if `_solve` would raise an error. The result is None if a formula cannot do this.
        """
        raise NotImplementedError

    @property
    def solves_many(self) -> bool:
        """Whether the policy has a `_solve_many` that no subclass made obsolete by another `_solve`."""
        for base in type(self).__mro__:
            if "_solve_many" in base.__dict__:
                return base is not Policy
            if not _DISTRIBUTION_METHODS.isdisjoint(base.__dict__):
                break
        return False

    def _check_use(self, tally: Any) -> None:
        """Raise InvalidValue if the formula is not defined for this tally."""
        if self.needs_horizon and getattr(self, "horizon", None) is None:
            raise InvalidValue(f"{self.name}: horizon", None, "the number of rounds, as in horizon=20000")
        n, s = tally.pulls, tally.sums
        for rule, bad in self._broken_rules(n, s):
            if bad.any():
                arm = int(np.argmax(bad))
                where, allowed = f"{self.name}: sums[{arm}]", rule
                if rule == "support":
                    low, high = self.support
                    allowed = f"rewards from {low:g} to {high:g}, so" if high < np.inf else "rewards >= 0, so"
                    allowed += f" {low * n[arm]:g} <= sum" + (
                        f" <= {high * n[arm]:g}" if high < np.inf else ""
                    )
                    where = f"{where} over {n[arm]} pulls"
                raise InvalidValue(where, float(s[arm]), allowed)

    def _broken_rules(self, n: Any, s: Any) -> Iterator[tuple[str, Bools]]:
        """Yield each rule for rewards, with where pulls n and sums s break it. Elementwise."""
        if self.requires_binary_rewards:
            yield "rewards 0 and 1, so whole sums", s != np.floor(s)
        if self.requires_positive_rewards:
            yield "rewards > 0", (n > 0) & (s <= 0)
        low, high = self.support
        if low > -np.inf or high < np.inf:
            # Sums are rounded once, so a sum of values in [low, high] cannot leave [low n, high n].
            least, most = low * n if low else 0.0, high * n if high < np.inf else high
            yield "support", (n > 0) & ((s < least) | (s > most))


def sample_arms(probabilities: Floats, rng: np.random.Generator, size: int) -> Indices:
    """Sample `size` independent indices with the given probabilities."""
    ends = probabilities.cumsum()
    arms = ends.searchsorted(rng.random(size) * ends[-1], side="right")
    # The product may be rounded up to the total, which would select an arm after the last possible one.
    last = ends.searchsorted(ends[-1], side="left")
    within: Indices = np.minimum(arms, last)
    return within


def rounding_error(log: Floats) -> Floats:
    """Return a bound on the rounding error of log probabilities in closed form; 0 for probability 0."""
    return np.where(np.isneginf(log), 0.0, _ROUNDING * np.maximum(1.0, np.abs(log)))


def log_normalise(weights: Floats) -> Floats:
    """Return the logarithms of probabilities that are proportional to exp(weights)."""
    shifted = weights - np.maximum.reduce(weights)  # faster than weights.max() for few arms
    log: Floats = shifted - np.log(np.add.reduce(np.exp(shifted)))
    return log


def include_cold_arms(warm: Bools, log: Floats, error: Floats | None) -> tuple[Floats, Floats | None]:
    """Give each cold arm (without rewards) probability 1/K and scale those of the warm arms to the rest."""
    k, cold = warm.size, warm.size - np.count_nonzero(warm)
    full = np.full(k, -np.log(k))
    if cold < k:
        full[warm] = log + np.log1p(-cold / k)
    if error is None:
        return full, None
    full_error = np.full(k, _ROUNDING)
    full_error[warm] = error
    return full, full_error


# Common names of policies, and those that mean another policy for rewards from 0 to 1.
ALIASES = {"softmax": "boltzmann", "thompson": "ts", "ucb": "ucb1"}
_UNIT_RANGE_ALIASES = {"thompson": "ts-bernoulli"}


def resolve_alias(name: str, reward_range: object = None) -> str:
    """Return the name of the policy that an alias means, given the range of rewards; or the name itself.

    >>> resolve_alias("thompson"), resolve_alias("thompson", (0, 1)), resolve_alias("ms+")
    ('ts', 'ts-bernoulli', 'ms+')
    """
    if name in Policy.registry:
        return name
    unit_range = isinstance(reward_range, tuple | list) and tuple(reward_range) == (0, 1)
    return (unit_range and _UNIT_RANGE_ALIASES.get(name)) or ALIASES.get(name, name)


def policy_class(name: str) -> type[Policy]:
    """Return the policy class with this `name`, or alias.

    >>> policy_class("ms+").__name__, policy_class("softmax").__name__
    ('MaillardSamplingPlus', 'Boltzmann')
    """
    try:
        return Policy.registry[resolve_alias(name)]
    except KeyError:
        raise UnknownName("policy", name, sorted([*Policy.registry, *ALIASES])) from None
