"""What each operation does: data in, an answer out. Who may call, and what is well formed, was decided before."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

import maillard
from maillard.decisions.choosing import Repeated
from maillard.decisions.configuration import check_request
from maillard.decisions.identifiers import check_id
from maillard.decisions.ledger import Outcome
from maillard.decisions.records import NOW, Decision, Observation, from_microseconds, text, to_microseconds
from maillard.decisions.rules import Reward
from maillard.decisions.state import State
from maillard.errors import Conflict, InvalidValue, MaillardError
from maillard.evaluation.means import mean_intervals
from maillard.policies import named, names
from maillard.service import messages
from maillard.service.answers import Answer, Refusal, failure
from maillard.service.experiments import Experiment, Missing

if TYPE_CHECKING:
    from maillard.service.keys import Key
    from maillard.service.running import Service

__all__ = ["Call"]

_CONFIDENCE = 0.95
_INTERVAL = "confidence sequence: valid at all times, however often it is looked at"
_NO_RANGE = (
    "There is no interval without the range of a reward: give the experiment reward.low and reward.high."
)


class Call(NamedTuple):
    """A request that was let in."""

    service: Service
    parameters: dict[str, str]
    "Of the path."
    query: dict[str, str]
    body: Any
    headers: dict[bytes, bytes]
    key: Key | None
    "Of the caller; None where nobody needs one."

    async def experiment(self) -> Experiment:
        """The one that the path names."""
        return await self.service.experiments.get(self.parameters["key"])

    @property
    def expected(self) -> int | None:
        """The number that If-Match names; None where it names none."""
        given = self.headers.get(b"if-match", b"*").strip()
        if given == b"*":
            return None
        inner = given.removeprefix(b"W/").strip(b'"')
        return int(inner) if inner.isdigit() and len(inner) < 19 else -1


# Experiments.


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
    everyone = await call.service.experiments.run(call.service.store.experiments)
    mine = [name for name in everyone if call.key is None or call.key.reaches(name)]
    opened = await asyncio.gather(*(call.service.experiments.get(name) for name in mine))
    await asyncio.gather(*(call.service.experiments.run(each.bandit.session.refresh) for each in opened))
    shown = [each for each in opened if _flag(call, "archived") or not each.bandit.state.archived]
    return Answer(200, messages.Experiments(experiments=[_experiment(each) for each in shown]))


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

    await call.service.experiments.run(change)
    return _described(experiment, status)


def _described(
    experiment: Experiment, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> Answer:
    etag = b'"%d"' % experiment.bandit.state.administrative
    return Answer(status, _experiment(experiment), ((b"etag", etag), *headers))


def _experiment(experiment: Experiment) -> messages.Experiment:
    state = experiment.bandit.state
    return messages.Experiment(
        key=experiment.bandit.experiment,
        status=_status(state),
        arms=state.active_arms,
        retired=[arm for arm, active in zip(state.arms, state.active, strict=True) if not active],
        policy=str(state.policy),
        policy_version=state.policy_version,
        epoch=state.epoch,
        sticky=state.sticky,
        reward=messages.RewardRule.of(state.reward),
        created_at=from_microseconds(experiment.created_at),
    )


def _status(state: State) -> messages.Status:
    if state.archived:
        return "archived"
    return "paused" if state.paused else "running"


def _flag(call: Call, name: str) -> bool:
    given = call.query.get(name, "false")
    if given not in ("true", "false"):
        raise Refusal(422, "invalid_value", f"Expected true or false, got {given!r:.100}", f"?{name}")
    return given == "true"


# Decisions.


async def decide(call: Call) -> Answer:
    """Draw an arm and log it; the answer comes when it is durable."""
    asked: messages.DecisionToMake = call.body
    key = call.headers.get(b"idempotency-key")
    experiment = await call.experiment()
    try:
        request = check_request(asked.unit, asked.eligible, None if key is None else key.decode("latin-1"))
        rows = await experiment.decide(request)
    except Conflict as error:
        raise Refusal(422, "key_reused", str(error), "Idempotency-Key") from None
    except InvalidValue as error:
        if error.field == "idempotency_key":
            raise Refusal(422, "invalid_value", str(error), "Idempotency-Key") from None
        raise
    (row,) = rows
    return Answer(
        200 if isinstance(rows, Repeated) else 201,
        _decision(call.service, experiment, row),
        decision_id=row.id,
    )


async def decide_batch(call: Call) -> Answer:
    """Several decisions, each with a status of its own."""
    experiment = await call.experiment()

    async def one(place: int, asked: messages.KeyedDecision) -> messages.MadeDecision:
        where = f"$.decisions[{place}]"
        try:
            request = check_request(asked.unit, asked.eligible, asked.idempotency_key)
            rows = await experiment.decide(request)
        except Conflict as error:
            again = Refusal(422, "key_reused", str(error), f"{where}.idempotency_key")
            return messages.MadeDecision(status=422, error=_failed(again))
        except MaillardError as error:
            return messages.MadeDecision(status=failure(error).status, error=_failed(failure(error), where))
        status = 200 if isinstance(rows, Repeated) else 201
        return messages.MadeDecision(status=status, decision=_decision(call.service, experiment, rows[0]))

    made = await asyncio.gather(*(one(*item) for item in enumerate(call.body.decisions)))
    return Answer(200, messages.DecisionsMade(results=made))


async def read_decision(call: Call) -> Answer:
    """A decision of the log."""
    identifier = check_id(call.parameters["id"])
    key = await _owner(call, identifier)
    if key is None:
        raise Missing(f"there is no decision {identifier}")
    experiment = await call.service.experiments.get(key)
    row = await call.service.experiments.run(experiment.bandit.decision, identifier)
    return Answer(200, _decision(call.service, experiment, row, made=False), decision_id=row.id)


async def _owner(call: Call, identifier: str) -> str | None:
    """The experiment of a decision. A key that is limited to others learns nothing, not even whether there is one."""
    key = await call.service.experiments.of(identifier)
    limited = call.key is not None and call.key.experiments is not None
    if limited and (key is None or not call.key.reaches(key)):  # type: ignore[union-attr]  # it is not None
        raise Refusal(403, "forbidden", "This key is not for the experiment of that decision.")
    return key


def _decision(
    service: Service, experiment: Experiment, row: Decision, *, made: bool = True
) -> messages.Decision:
    if made:
        service.experiments.remember(row.id, row.experiment)
        service.metrics.decided(row.experiment, row.arm)
    closes = experiment.bandit.state.reward.closes(row.time)
    probabilities, logs = experiment.written(row)
    return messages.Decision(
        decision_id=row.id,
        experiment=row.experiment,
        arm=row.arm,
        probability=math.exp(row.log_probability),
        log_probability=row.log_probability,
        probabilities=probabilities,
        log_probabilities=logs,
        policy_version=row.policy_version,
        formula_version=row.formula_version,
        state_version=row.state,
        epoch=row.epoch,
        unit=row.unit,
        cold=row.cold,
        decided_at=from_microseconds(row.time),
        expires_at=None if closes is None else from_microseconds(closes),
    )


# Rewards.


async def reward(call: Call) -> Answer:
    """Log a reward of a decision and learn from it."""
    identifier = check_id(call.parameters["id"])
    answer = await _reward(call, identifier, call.body)
    return Answer(_code(answer.outcome), answer, decision_id=identifier)


async def reward_batch(call: Call) -> Answer:
    """Several rewards, each with a status of its own."""

    async def one(place: int, given: messages.RewardToGive) -> messages.RewardTaken:
        try:
            answer = await _reward(call, check_id(given.decision_id), given)
        except MaillardError as error:
            refusal = failure(error)
            return messages.RewardTaken(status=refusal.status, error=_failed(refusal, f"$.rewards[{place}]"))
        return messages.RewardTaken(status=_code(answer.outcome), reward=answer)

    taken = await asyncio.gather(*(one(*item) for item in enumerate(call.body.rewards)))
    return Answer(200, messages.RewardsTaken(results=taken))


async def _reward(call: Call, identifier: str, given: messages.Reward) -> messages.RewardAnswer:
    key = await _owner(call, identifier)
    experiment = None if key is None else await call.service.experiments.get(key)
    rule = Reward() if experiment is None else experiment.bandit.state.reward
    row = Observation(
        decision=identifier,
        event=identifier if given.event is None else text("event", given.event),
        value=rule.check(given.value),
        at=NOW if given.occurred_at is None else to_microseconds("at", given.occurred_at),
        arrived=NOW,
    )
    outcome: Outcome | MaillardError
    if experiment is None:
        outcome = await _park(call, row)
    else:
        (outcome,) = await experiment.observe([row])
    if isinstance(outcome, MaillardError):
        call.service.metrics.rewarded("conflict" if isinstance(outcome, Conflict) else "refused")
        raise outcome
    call.service.metrics.rewarded(outcome)
    return messages.RewardAnswer(
        decision_id=identifier,
        event=row.event,
        outcome=outcome,  # type: ignore[arg-type]  # the others are errors
        applied=outcome in ("learned", "revised", "waiting"),
        late=outcome == "late",
    )


async def _park(call: Call, row: Observation) -> Outcome | MaillardError:
    try:
        return await call.service.experiments.park(row)
    except InvalidValue as error:
        return Missing(str(error))


def _code(outcome: str) -> int:
    if outcome == "parked":
        return 202
    return 200 if outcome in ("duplicate", "late") else 201


def _failed(refusal: Refusal, where: str | None = None) -> messages.Failure:
    """What was wrong with an item, with the path to it."""
    path = refusal.path if where is None else where + (refusal.path or "$")[1:]
    return messages.Failure(code=refusal.code, message=refusal.message, path=path)


# Looking.


async def read_state(call: Call) -> Answer:
    """What an experiment has learned, and what it would choose."""
    experiment = await call.experiment()
    state: State = await call.service.experiments.run(experiment.bandit.session.refresh)
    law = state.law()
    logs = dict(zip(law.arms, law.log_probabilities, strict=True))
    pulls, sums = state.tally.pulls.tolist(), state.tally.sums.tolist()
    known = state.reward.range
    bounds: Sequence[tuple[float | None, float | None]] = (
        [(None, None)] * len(pulls) if known is None else mean_intervals(pulls, sums, *known, _CONFIDENCE)
    )
    arms = [
        messages.StateArm(
            arm=arm,
            active=state.active[place],
            pulls=pulls[place],
            sum=sums[place],
            mean=sums[place] / pulls[place] if pulls[place] else None,
            lower=bounds[place][0],
            upper=bounds[place][1],
            probability=math.exp(logs.get(arm, -math.inf)),
            log_probability=logs.get(arm, -math.inf),  # written as null where it is infinite
        )
        for place, arm in enumerate(state.arms)
    ]
    interval = messages.StateInterval(
        confidence=_CONFIDENCE, kind=_INTERVAL, refusal=_NO_RANGE if known is None else None
    )
    return Answer(
        200,
        messages.State(
            key=experiment.bandit.experiment,
            status=_status(state),
            policy=str(state.policy),
            policy_version=state.policy_version,
            epoch=state.epoch,
            state_version=state.number,
            arms=arms,
            interval=interval,
        ),
    )


async def read_activity(call: Call) -> Answer:
    """What happened so far: traffic, rewards over time, and the audit of the draws."""
    experiment = await call.experiment()
    await call.service.follow()
    arms = list(experiment.bandit.state.arms)
    return Answer(200, call.service.monitor.activity(experiment.bandit.experiment, arms))


async def evaluate(call: Call) -> Answer:
    """What would have been, had a target made the choices."""
    from maillard.service import questions

    asked: messages.Question = call.body
    experiment = await call.experiment()
    key, estimators = experiment.bandit.experiment, asked.estimators
    return Answer(
        200, await call.service.pool.run(questions.what_if, key, asked.target, estimators, asked.confidence)
    )


async def verify(call: Call) -> Answer:
    """Compute every logged probability again, and audit the draws."""
    from maillard.service import questions

    experiment = await call.experiment()
    return Answer(200, await call.service.pool.run(questions.check, experiment.bandit.experiment))


async def export(call: Call) -> Answer:
    """The whole log of an experiment as Parquet."""
    from maillard.service import questions

    experiment = await call.experiment()
    key = experiment.bandit.experiment
    path = call.service.folder / f"{secrets.token_hex(8)}.parquet"
    try:
        await call.service.pool.run(questions.export, key, str(path))
        opened = await call.service.experiments.run(lambda: path.open("rb"))
    finally:
        path.unlink(missing_ok=True)  # what is open can be read on
    name = "".join(
        letter if (letter.isalnum() and letter.isascii()) or letter in "._-" else "_" for letter in key
    )
    headers = ((b"content-disposition", f'attachment; filename="{name}.parquet"'.encode()),)
    pieces = call.service.pieces(opened)
    return Answer(200, b"", headers, b"application/vnd.apache.parquet", pieces=pieces)


async def list_policies(call: Call) -> Answer:  # noqa: ARG001  # one signature for all
    """The policies that an experiment can have."""
    return Answer(200, _POLICIES)


def _policies() -> messages.Policies:
    classes = [named(name) for name in names()]
    return messages.Policies(
        policies=[
            messages.PolicyInfo(
                name=cls.name,
                summary=" ".join((cls.__doc__ or "").split("\n\n")[0].split()),
                parameters=[name for name, _, _ in cls.parameters()],
            )
            for cls in classes
            if not getattr(cls, "remembers", False)
        ]
    )


_POLICIES = msgspec.Raw(msgspec.json.encode(_policies()))


async def read_permissions(call: Call) -> Answer:
    """What the caller may do."""
    from maillard.service.keys import SCOPES

    key = call.key
    scopes: list[str] = list(SCOPES) if key is None or "admin" in key.scopes else list(key.scopes)
    limited = None if key is None or key.experiments is None else list(key.experiments)
    body = messages.Permissions(
        scopes=scopes, experiments=limited, open=key is None, version=maillard.__version__
    )
    return Answer(200, body)


# The service itself.


async def health(call: Call) -> Answer:  # noqa: ARG001  # one signature for all
    """Whether the process lives."""
    return Answer(200, messages.Health(status="ok"))


async def readiness(call: Call) -> Answer:
    """Whether the log can be written: a probe is."""
    await call.service.probe()
    return Answer(200, messages.Health(status="ready"))


async def read_metrics(call: Call) -> Answer:
    """Counters and durations, as Prometheus reads them."""
    await call.service.follow()
    text_, media_type = await call.service.experiments.run(call.service.metrics.write, call.service.monitor)
    return Answer(200, text_, media_type=media_type)


async def read_description(call: Call) -> Answer:
    """The API, as OpenAPI describes it."""
    return Answer(200, call.service.description)
