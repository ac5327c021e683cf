"""Contexts as features of linear models."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from maillard.array_types import Bools, Floats, Ints
from maillard.decisions.context_rules import ContextRule, ContextTally, PolicyInput
from maillard.decisions.encoded_contexts import Encoded
from maillard.decisions.raw_contexts import RawContext, Values, check_values
from maillard.errors import InvalidValue, UnknownName
from maillard.feature_grid import STEPS, GridRows
from maillard.features import Features
from maillard.linear_tally import LinearTally
from maillard.policies import LinearPolicy, Policy, WithFloor

Model = Literal["disjoint", "shared"]


@dataclass(frozen=True, kw_only=True)
class LinearContexts(ContextRule):
    """Features, and linear models of the rewards: one per arm ("disjoint"), or one for all ("shared")."""

    features: Features
    model: Model = "disjoint"
    arms: Mapping[str, Values] = field(default_factory=dict)
    "The attributes of each arm, if the arms of a shared model are fixed."
    dynamic: bool = False
    earlier: tuple[Features, ...] = ()
    "Features that this epoch began with, before others were appended. Each has fewer columns than the next."

    def __post_init__(self) -> None:
        if self.model == "disjoint" and self.features.rest_crosses is not None:
            allowed = (
                "features without rest_crosses, or model='shared': the arms of a disjoint model have none"
            )
            raise InvalidValue("features", self.features, allowed)

    def describe(self) -> str:
        return f"the experiment has features and a {self.model} model"

    def check_policy(self, made: Policy) -> Policy:
        inner = made.policy if isinstance(made, WithFloor) else made
        if not isinstance(inner, LinearPolicy):
            allowed = "a linear policy such as lin-ms, because the experiment has features"
            raise InvalidValue("policy", str(made), f"{allowed}. For one tally per group, use segments=")
        return made

    def empty(self, arms: int) -> LinearTally:
        size = self.features.dimension
        return LinearTally.empty(size, None if self.model == "shared" else arms, max_features=size)

    def check_statistics(self, statistics: object, arms: int) -> None:
        models = None if self.model == "shared" else arms
        if not isinstance(statistics, LinearTally) or (statistics.features, statistics.arms) != (
            self.features.dimension,
            models,
        ):
            allowed = f"a LinearTally with features={self.features.dimension} and arms={models}"
            raise InvalidValue("statistics", statistics, allowed)

    def encode(self, raw: RawContext, arms: Sequence[str], statistics: ContextTally) -> Encoded:  # noqa: ARG002
        if self.model == "disjoint":
            if raw.values is None:
                names = ", ".join(map(repr, self.features.inputs))
                raise InvalidValue("context", None, f"a mapping with a value for each feature: {names}")
            return self._encode(raw.values, "context")
        given, context = raw.actions or self.arms, raw.values or {}
        return np.array([self._row(arm, given[arm], context) for arm in arms])

    def _row(self, arm: str, attributes: Values, context: Values) -> Ints:
        for name in attributes:
            if name in context:
                allowed = f"names that no arm has as a feature; {arm!r} has this one"
                raise InvalidValue("context", name, allowed)
        where = f"{'actions' if self.dynamic else 'arms'}: {arm}"
        return self._encode(context, where, attributes)

    def _encode(self, context: Values, where: str, attributes: Values | None = None) -> Ints:
        """Encode a context. An error names the argument, or `context` if the value comes from there."""
        try:
            return self.features.encode_units(context, arm=attributes)
        except InvalidValue as error:
            place = "context" if error.field in context else where
            raise error.with_location(place) from None
        except UnknownName as error:
            place = "context" if error.name in context else where
            raise UnknownName(place.partition(":")[0], error.name, error.known) from None

    def policy_input(self, encoded: Encoded, eligible: int, mask: Bools | None) -> PolicyInput:
        size = self.features.dimension
        shape = (size,) if self.model == "disjoint" else (eligible, size)
        if isinstance(encoded, tuple) or encoded.shape != shape:
            found = encoded if isinstance(encoded, tuple) else encoded.shape
            raise InvalidValue("encoded", found, f"feature rows of shape {shape}")
        if mask is None or self.model == "disjoint":
            return PolicyInput(GridRows(encoded), mask)
        every = np.zeros((mask.size, size), np.int64)
        every[mask] = encoded
        return PolicyInput(GridRows(every), mask)

    def example(self, arms: int) -> Floats:
        row = np.zeros(self.features.dimension)
        row[0] = 1.0
        return row if self.model == "disjoint" else np.tile(row, (max(arms, 1), 1))

    def cold(self, statistics: ContextTally, x: Any) -> Bools:
        assert isinstance(statistics, LinearTally)
        return np.repeat(statistics.cold, len(x.units)) if self.model == "shared" else statistics.cold

    def update(
        self, statistics: ContextTally, arm: int | None, row: Encoded, value: float, previous: float | None
    ) -> None:
        assert isinstance(statistics, LinearTally)
        if isinstance(row, tuple):
            raise InvalidValue("row", row, "a feature row")
        units = row if row.size == self.features.dimension else self._moved(row)
        x, model = units / STEPS, None if self.model == "shared" else arm
        if previous is None:
            statistics.add(x, value, model)
        else:
            statistics.revise(x, previous, value, model)

    def _moved(self, row: Any) -> Any:
        """A row of earlier features, with 0 in the columns of those that were appended later."""
        for features in self.earlier:
            if features.dimension == row.size:
                moved = np.zeros(self.features.dimension, np.int64)
                moved[self.features.positions(features)] = row
                return moved
        raise InvalidValue("row", row.size, f"a feature row with {self.features.dimension} numbers")

    def with_arm(self, statistics: ContextTally) -> ContextTally:
        assert isinstance(statistics, LinearTally)
        if self.model == "shared":
            return statistics
        return LinearTally.joined([statistics, self.empty(1)])

    def add_arm(self, arm: str, attributes: Values | None, arms: Sequence[str]) -> LinearContexts:
        if self.model == "disjoint":
            super().add_arm(arm, attributes, arms)
            return self
        if self.dynamic:
            raise InvalidValue(
                "arm", arm, "no arm, because this experiment gets its arms with every decision"
            )
        if arm in self.arms and attributes in (None, self.arms[arm]):
            return self
        if arm in self.arms:
            raise InvalidValue("features", attributes, f"those that arm {arm!r} has: {dict(self.arms[arm])}")
        checked = self.check_attributes(arm, attributes)
        return replace(self, arms={**self.arms, arm: checked})

    def check_attributes(self, arm: str, attributes: object) -> Values:
        """The attributes of an arm of a shared model."""
        if attributes is None:
            raise InvalidValue(
                f"features of arm {arm!r}", None, "a mapping, because all arms share one model"
            )
        checked = check_values(attributes, f"features of arm {arm!r}")
        for name in checked if self.features.rest is None else ():
            if name not in self.features.types:
                raise UnknownName(f"feature of arm {arm!r}", name, self.features.inputs)
        return checked

    def keeps_statistics(self, new: Features) -> bool:
        """Whether other features only append columns, so that what was learned stays valid."""
        try:
            new.positions(self.features)
        except InvalidValue:
            return False
        return new.dimension > self.features.dimension

    def with_features(self, new: Features) -> LinearContexts:
        """The rule with other features."""
        earlier = (*self.earlier, self.features) if self.keeps_statistics(new) else ()
        return replace(self, features=new, earlier=earlier)

    def to_data(self) -> dict[str, Any]:
        return {
            "features": json.loads(self.features.to_json()),
            "model": self.model,
            "arms": {arm: dict(values) for arm, values in self.arms.items()},
            "dynamic": self.dynamic,
            "earlier": [json.loads(each.to_json()) for each in self.earlier],
        }


def check_model(model: object) -> Model:
    """The name of a model, or InvalidValue."""
    if model in ("disjoint", "shared"):
        return model
    raise InvalidValue("model", model, "'disjoint' (one model per arm) or 'shared' (one for all arms)")
