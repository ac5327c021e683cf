"""The decisions in a line of a dsjson file: one, or one for each slot (conditional contextual bandits).

A line with slots has the features of each slot in "_slots", and what was decided for it in "_outcomes": `_a`
has the actions that could be chosen, from 0 and the chosen one first, and `_p` their probabilities. An action
that was chosen for a slot cannot be chosen for a later one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from maillard.decisions.files.dsjson_features import read_names
from maillard.errors import InvalidValue


class Choice(NamedTuple):
    """One decision."""

    data: Mapping[str, Any]
    "The object in the line, as if it had this decision only."
    arms: list[str]
    "The names of the arms that could be chosen."
    more: dict[str, Any]
    "Further fields of the decision."


def choices_of(data: Mapping[str, Any]) -> list[Choice]:
    """Return the decisions in a line: none if it only has a reward, or a decision that was never shown."""
    if "RewardValue" in data and "c" not in data:
        return []
    if data.get("_skipLearn") is True or data.get("_deferred") is True:
        return []
    if data.get("pdrop"):
        allowed = "0: decisions were dropped at random. If all lines have the same pdrop, remove it from them"
        raise InvalidValue("pdrop", data["pdrop"], allowed)
    content = data["c"]
    names, slots = read_names(content["_multi"]), content.get("_slots")
    if slots is None and "_outcomes" not in data:
        return [Choice(data, names, {})]
    outcomes = data.get("_outcomes")
    if not isinstance(slots, list) or not isinstance(outcomes, list) or len(slots) != len(outcomes):
        raise InvalidValue("_outcomes", outcomes, "an outcome for each of the _slots")
    if any("_slot_id" in action for action in content["_multi"]):
        raise InvalidValue("_slot_id", names, "no slates: all slots of a slate share one reward")
    return [_slot(data, names, place, outcome) for place, outcome in enumerate(outcomes)]


def _slot(data: Mapping[str, Any], names: list[str], place: int, outcome: Mapping[str, Any]) -> Choice:
    content, actions = data["c"], outcome["_a"]
    if not actions or any(type(each) is not int or not 0 <= each < len(names) for each in actions):
        raise InvalidValue("_a", actions, f"indices of actions, from 0 to {len(names) - 1}")
    eligible = sorted(set(actions))
    shared = {key: value for key, value in content.items() if key not in ("_multi", "_slots")}
    event = data.get("EventId")
    return Choice(
        {
            "_label_cost": outcome.get("_label_cost"),
            "EventId": outcome.get("_id") or (None if event is None else f"{event}/{place}"),
            **({"Timestamp": data["Timestamp"]} if "Timestamp" in data else {}),
            "a": [eligible.index(each) + 1 for each in actions],
            "c": {
                **shared,
                "slot": [shared.get("slot", {}), content["_slots"][place]],
                "_multi": [content["_multi"][each] for each in eligible],
            },
            "p": outcome["_p"],
        },
        [names[each] for each in eligible],
        {"position": place, "unit": event},
    )
