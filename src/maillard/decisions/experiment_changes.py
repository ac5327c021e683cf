"""Changes of an experiment: arms, policy, features, epochs. Each is an administrative event of its log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maillard.decisions import configuration, events, warm_starts
from maillard.decisions.identifiers import check_name
from maillard.decisions.linear_contexts import LinearContexts
from maillard.decisions.raw_contexts import check_values
from maillard.decisions.session import Session
from maillard.decisions.state import State
from maillard.errors import InvalidValue, UnknownName
from maillard.features import Features
from maillard.policies import Policy


class ExperimentChanges:
    """The methods of a bandit that change its experiment.

    With `expected`, the number of the last administrative event that the caller has seen
    (`state.administrative`), a change raises Stale if there is a newer one.
    """

    session: Session
    "The connection to the log. A server submits many calls to it at once."

    @property
    def state(self) -> State:
        """The latest state that this process knows."""
        return self.session.state

    def add_arm(
        self, arm: str, *, features: Mapping[str, Any] | None = None, expected: int | None = None
    ) -> None:
        """Add an arm. A retired arm becomes active again and keeps its tally.

        If all arms share one model, `features` has the attributes of the arm. With `expected`, the number of
        the last change that the caller knows (`state.administrative`), this raises Stale if there was a later
        one.

        >>> from maillard import Bandit, Reward
        >>> bandit = Bandit(["red", "blue"], reward=Reward(low=0, high=1))
        >>> bandit.add_arm("green")
        >>> bandit.arms
        ['red', 'blue', 'green']
        """
        arm = check_name("arm", arm)
        attributes = None if features is None else check_values(features, "features")

        def make(state: State) -> events.AddArm:
            if arm in state.active_arms:
                raise InvalidValue("arm", arm, "a name that no active arm has")
            if attributes is not None and state.context is None:
                raise InvalidValue("features", attributes, "None, because the experiment has no features")
            return events.AddArm(arm=arm, attributes=attributes)

        self.session.change(make, expected)

    def retire_arm(self, arm: str, *, expected: int | None = None) -> None:
        """Stop choosing an arm. It keeps its tally, and rewards of its decisions are still applied.

        `expected` is that of `add_arm`.

        >>> from maillard import Bandit, Reward
        >>> bandit = Bandit(["red", "blue", "green"], reward=Reward(low=0, high=1))
        >>> bandit.retire_arm("red")
        >>> bandit.arms
        ['blue', 'green']
        """
        arm = check_name("arm", arm)

        def make(state: State) -> events.RetireArm:
            if arm not in state.active_arms:
                raise UnknownName("arm", arm, state.active_arms)
            if len(state.active_arms) == 1:
                raise InvalidValue("arm", arm, "an arm other than the only active one")
            return events.RetireArm(arm=arm)

        self.session.change(make, expected)

    def change_policy(self, policy: str | Policy, *, expected: int | None = None) -> None:
        """Use another policy from now on, as a new policy version. The tally stays.

        `expected` is that of `add_arm`.

        >>> from maillard import Bandit, Reward
        >>> bandit = Bandit(["red", "blue"], reward=Reward(low=0, high=1))
        >>> bandit.change_policy("ms+:floor=0.05")
        >>> str(bandit.policy), bandit.summary()["policy_version"]
        ('ms+:floor=0.05,sigma2=0.25', 2)
        """

        def make(state: State) -> events.ChangePolicy:
            spec, formula = configuration.describe_policy(policy, state.reward, state.context, new=True)
            return events.ChangePolicy(policy=spec, formula=formula)

        self.session.change(make, expected)

    def change_features(self, features: Features, *, expected: int | None = None) -> None:
        """Use other features from now on, as a new feature version.

        If columns are only appended, what was learned stays. Otherwise, a new epoch begins, without rewards.
        `expected` is that of `add_arm`.

        >>> from maillard import Bandit, Reward
        >>> known = {"device": ["phone", "desktop"]}
        >>> bandit = Bandit(["red", "blue"], features=Features(known), reward=Reward(low=0, high=1))
        >>> bandit.change_features(Features({**known, "age": (18, 90)}))
        >>> bandit.choose(context={"device": "phone", "age": 30}).feature_version
        2
        """
        if not isinstance(features, Features):
            raise InvalidValue("features", features, "Features({...})")

        def make(state: State) -> events.ChangeFeatures:
            rule = state.context
            if not isinstance(rule, LinearContexts):
                allowed = "no features: this experiment began without. Start another one"
                raise InvalidValue("features", features, allowed)
            if features == rule.features:
                raise InvalidValue("features", features, "features that differ from the current ones")
            changed = rule.with_features(features)
            for arm, attributes in rule.arms.items():
                changed.check_attributes(arm, attributes)
            return events.ChangeFeatures(features=features, new_epoch=not rule.keeps_statistics(features))

        self.session.change(make, expected)

    def pause(self, *, expected: int | None = None) -> None:
        """Make no decisions until `resume`. Rewards are still accepted.

        `expected` is that of `add_arm`.

        >>> from maillard import Bandit, Reward
        >>> bandit = Bandit(["red", "blue"], reward=Reward(low=0, high=1))
        >>> bandit.pause()
        >>> bandit.choose()
        Traceback (most recent call last):
        maillard.errors.Paused: experiment 'default' is paused; resume it first (bandit.resume())
        """
        self.session.change(lambda _: events.Pause(), expected)

    def resume(self, *, expected: int | None = None) -> None:
        """Make decisions again after `pause` or `archive`.

        `expected` is that of `add_arm`.

        >>> from maillard import Bandit, Reward
        >>> bandit = Bandit(["red", "blue"], reward=Reward(low=0, high=1))
        >>> bandit.pause()
        >>> bandit.resume()
        >>> bandit.summary()["paused"]
        False
        """
        self.session.change(lambda _: events.Resume(), expected)

    def archive(self, *, expected: int | None = None) -> None:
        """Make no decisions and accept no changes until `resume`. Rewards are still accepted.

        `expected` is that of `add_arm`.

        >>> from maillard import Bandit, Reward
        >>> bandit = Bandit(["red", "blue"], reward=Reward(low=0, high=1))
        >>> bandit.archive()
        >>> bandit.add_arm("green")
        Traceback (most recent call last):
        maillard.errors.Archived: the experiment is archived; resume it first (bandit.resume())
        """
        self.session.change(lambda _: events.Archive(), expected)

    def reset(self, *, expected: int | None = None) -> None:
        """Begin a new epoch with an empty tally. The log keeps all rows.

        `expected` is that of `add_arm`.

        >>> from maillard import Bandit, Reward
        >>> bandit = Bandit(["red", "blue"], reward=Reward(low=0, high=1))
        >>> outcome = bandit.reward(bandit.choose(), 1.0)
        >>> bandit.reset()
        >>> bandit.tally.round, bandit.choose().epoch
        (1, 2)
        """
        self.session.change(lambda _: events.Reset(), expected)

    def snapshot(self) -> dict[str, Any]:
        """The arms, policy and tally as plain data, for `restore` in this log or another one.

        >>> from maillard import Bandit, Reward
        >>> rule = Reward(low=0, high=1)
        >>> snapshot = Bandit(["red", "blue"], reward=rule).snapshot()
        >>> other = Bandit(["green", "yellow"], reward=rule)
        >>> other.restore(snapshot)
        >>> other.arms
        ['red', 'blue']
        """
        return self.session.refresh().snapshot()

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Begin a new epoch with the arms, policy and tally of a snapshot."""
        checked = configuration.check_snapshot(snapshot, self.state)
        self.session.change(lambda _: checked)

    def warm_start(self, source: warm_starts.Source, *, experiment: str | None = None) -> None:
        """Add rewards from elsewhere to the tally.

        `source` is a `Tally` in the order of the arms, a mapping `{arm: (pulls, sum)}`, or an earlier log
        (a path or URL, and its `experiment`). Arms of a log are matched by name, and only its last epoch
        counts. If the experiment uses contexts, `source` is a `LinearTally`, a `SegmentTally`, or a log
        whose decisions have contexts: they are encoded with the features of this experiment.

        >>> from maillard import Bandit, Reward
        >>> bandit = Bandit(["red", "blue"], reward=Reward(low=0, high=1))
        >>> bandit.warm_start({"red": (1000, 120.0), "blue": (1000, 90.0)})
        >>> bandit.tally.means.tolist()
        [0.12, 0.09]
        """
        made = warm_starts.read_source(source, experiment, self.session.refresh())
        self.session.change(lambda _: made)
