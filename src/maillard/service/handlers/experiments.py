"""Experiments: beginning, changing and listing them."""

from __future__ import annotations

from maillard.decisions.records import from_microseconds
from maillard.decisions.state import State
from maillard.service import messages
from maillard.service.answers import Answer, Refusal
from maillard.service.experiments import Experiment
from maillard.service.handlers.calls import Call, status_of

__all__ = [
    "add_arm",
    "archive",
    "change_experiment",
    "create_experiment",
    "list_experiments",
    "pause",
    "read_experiment",
    "reset",
    "resume",
    "retire_arm",
]


async def create_experiment(call: Call) -> Answer:
    """Begin an experiment."""
    new: messages.NewExperiment = call.body
    if call.key is not None and not call.key.reaches(new.key):
        raise Refusal(403, "forbidden", "This key is not for that experiment.")
    experiment = await call.service.experiments.create(
        new.key, arms=new.arms, policy=new.policy, reward=new.reward.rule(), sticky=new.sticky
    )
    return _described(experiment, 201, ((b"location", f"/v1/experiments/{new.key}".encode()),))


async def list_experiments(call: Call) -> Answer:
    """All experiments that the caller may see."""
    archived = _flag(call, "archived")
    found, broken = await call.service.experiments.every(
        lambda name: call.key is None or call.key.reaches(name)
    )
    for name, error in broken.items():  # one that cannot be opened is no reason to hide the others
        call.service.journal.write("warning", "experiment left out", experiment=name, error=str(error))
    shown = [each for each in found if archived or not each.bandit.state.archived]
    return Answer(
        200, messages.Experiments(experiments=[_experiment(each, each.bandit.state) for each in shown])
    )


async def read_experiment(call: Call) -> Answer:
    """One experiment."""
    experiment = await call.experiment()
    await call.service.experiments.run(experiment.bandit.session.refresh)
    return _described(experiment)


async def change_experiment(call: Call) -> Answer:
    """Give an experiment a new policy."""
    if b"if-match" not in call.headers:
        message = "Say which version you have seen: If-Match with the ETag of the experiment, or * for any."
        raise Refusal(428, "precondition_required", message, "If-Match")
    return await _change(call, "change_policy", call.body.policy)


async def pause(call: Call) -> Answer:
    """Make no choices until it is resumed; rewards are still taken."""
    return await _change(call, "pause")


async def resume(call: Call) -> Answer:
    """Choose again, after a pause or out of the archive."""
    return await _change(call, "resume")


async def reset(call: Call) -> Answer:
    """Forget what was learned: a new epoch begins. The log keeps everything."""
    return await _change(call, "reset")


async def archive(call: Call) -> Answer:
    """Put an experiment away: no choices, no changes, and not in the list; rewards are still taken."""
    return await _change(call, "archive")


async def add_arm(call: Call) -> Answer:
    """A new arm, or one that was retired, which comes back with what it has learned."""
    experiment = await call.experiment()
    if len(experiment.bandit.state.arms) >= messages.MOST_ITEMS:
        raise Refusal(422, "invalid_value", f"An experiment has at most {messages.MOST_ITEMS} arms.", "$.arm")
    return await _change(call, "add_arm", call.body.arm, status=201)


async def retire_arm(call: Call) -> Answer:
    """Choose an arm no more; what was learned of it stays."""
    return await _change(call, "retire_arm", call.parameters["arm"])


async def _change(call: Call, verb: str, *arguments: str, status: int = 200) -> Answer:
    experiment = await call.experiment()
    if call.expected == -1:
        raise Refusal(412, "stale", "If-Match names no version of this experiment.", "If-Match")

    def change() -> None:
        getattr(experiment.bandit, verb)(*arguments, expected=call.expected)

    await call.service.experiments.change(change)
    return _described(experiment, status)


def _described(
    experiment: Experiment, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> Answer:
    state = experiment.bandit.state
    return Answer(
        status, _experiment(experiment, state), ((b"etag", b'"%d"' % state.administrative), *headers)
    )


def _experiment(experiment: Experiment, state: State) -> messages.Experiment:
    return messages.Experiment(
        key=experiment.bandit.experiment,
        status=status_of(state),
        arms=state.active_arms,
        retired=[arm for arm, active in zip(state.arms, state.active, strict=True) if not active],
        policy=str(state.policy),
        policy_version=state.policy_version,
        epoch=state.epoch,
        sticky=state.sticky,
        reward=messages.RewardRule.of(state.reward),
        created_at=from_microseconds(experiment.created_at),
    )


def _flag(call: Call, name: str) -> bool:
    given = call.query.get(name, "false")
    if given not in ("true", "false"):
        raise Refusal(422, "invalid_value", f"Expected true or false, got {given!r:.100}", f"?{name}")
    return given == "true"
