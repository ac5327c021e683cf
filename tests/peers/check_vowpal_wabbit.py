"""Read and train on exported contextual logs with Vowpal Wabbit, and let it write a log of its own.

It runs in the peers' environment: `.peers/bin/python check_vowpal_wabbit.py FOLDER`.

The folder has a dsjson file for each of our logs. The script prints, as JSON, the features that Vowpal Wabbit
read and the probabilities that it learned, and writes logs of its own policies to the folder. It does not
import maillard.
"""

from __future__ import annotations

import json
import random
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

NAMESPACES = ("Context", "Arm", "Features")
POLICIES = {
    "epsilon-greedy": "--epsilon 0.2",
    "squarecb": "--squarecb --gamma_scale 50",
}
INTERACTIONS = "-q CA -q CF"  # of the first letters of the namespaces
ITEMS = {"tea": 2, "latte": 4, "mocha": 5, "water": 0}  # prices


def workspace(options: str) -> Any:
    return import_module("vowpalwabbit").Workspace(f"--dsjson --cb_explore_adf --quiet {options}")


def read_features(path: Path) -> list[list[dict[str, list[tuple[int, float]]]]]:
    """Return the features of each example of each line, by namespace: their hashes and values."""
    vw, read = workspace(""), []
    for line in path.read_text(encoding="utf8").split("\n"):
        if line:
            examples = vw.parse(line)
            read.append([_features(example) for example in examples])
            vw.finish_example(examples)
    vw.finish()
    return read


def _features(example: Any) -> dict[str, list[tuple[int, float]]]:
    found = {}
    for name in NAMESPACES:
        space = name[0]
        count = example.num_features_in(space)
        found[name] = [(example.feature(space, i), example.feature_weight(space, i)) for i in range(count)]
    return found


def train(path: Path, *, contexts: bool) -> Any:
    """Return a model that was trained on a file, with or without its contexts."""
    vw = workspace(f"{INTERACTIONS} --epsilon 0.1 --passes 1")
    for line in path.read_text(encoding="utf8").split("\n"):
        if line:
            data = json.loads(line)
            if not contexts:
                data["c"].pop("Context", None)
            learn(vw, data)
    return vw


def learn(vw: Any, data: dict[str, Any]) -> None:
    examples = vw.parse(json.dumps(data))
    vw.learn(examples)
    vw.finish_example(examples)


def predict(vw: Any, content: dict[str, Any]) -> list[float]:
    """Return the probability of each arm."""
    count = len(content["_multi"])
    data = {"Version": "1", "a": list(range(1, count + 1)), "c": content, "p": [1 / count] * count}
    examples = vw.parse(json.dumps(data))
    found = [float(p) for p in vw.predict(examples)]
    vw.finish_example(examples)
    return found


def learned(path: Path, *, contexts: bool = True) -> dict[str, dict[str, float]]:
    """Return the probability of each arm on a phone and on a desktop, after training on the file."""
    vw = train(path, contexts=contexts)
    multi = json.loads(path.read_text(encoding="utf8").split("\n")[0])["c"]["_multi"]
    arms = [each["Arm"]["name"] for each in multi]
    found = {}
    for device in ("phone", "desktop"):
        p = predict(vw, {"Context": {"device": device}, "_multi": multi})
        found[device] = dict(zip(arms, p, strict=True))
    vw.finish()
    return found


def write_log(path: Path, options: str, rounds: int = 1500) -> list[dict[str, Any]]:
    """Write the log of a policy of Vowpal Wabbit that learns; return what was known and decided."""
    rng, vw, made = random.Random(path.name), workspace(f"-q ui -q uc {options} --random_seed 3"), []
    with path.open("w", encoding="utf8") as file:
        for step in range(rounds):
            device, age = rng.choice(["phone", "desktop"]), rng.randrange(18, 80)
            items = rng.sample(sorted(ITEMS), rng.choice([3, 4]))
            multi = [
                {
                    "_tag": item,
                    "item": {"name": item},
                    "cost": [{"price": ITEMS[item]}, {"known": {"hot": item != "water"}}],
                }
                for item in items
            ]
            content = {"user": {"device": device, "age": age, "_id": step}, "new": age < 30, "_multi": multi}
            p = predict(vw, content)
            chosen = rng.choices(range(len(items)), p)[0]
            wanted = "mocha" if device == "phone" else "tea"
            cost = -float(rng.random() < (0.8 if items[chosen] == wanted else 0.2))
            order = [chosen, *(place for place in range(len(items)) if place != chosen)]
            data = {
                "_label_cost": cost,
                "_label_probability": p[chosen],
                "_label_Action": chosen + 1,
                "_labelIndex": chosen,
                "Timestamp": f"2026-02-04T16:{step // 60:02}:{step % 60:02}.2460000Z",
                "Version": "1",
                "EventId": f"event-{step}",
                "a": [place + 1 for place in order],
                "c": content,
                "p": [p[place] for place in order],
                "VWState": {"m": "N/A"},
            }
            file.write(json.dumps(data, separators=(",", ":")) + "\n")
            learn(vw, data)
            made.append(
                {
                    "device": device,
                    "age": age,
                    "new": age < 30,
                    "items": items,
                    "p": p,
                    "chosen": chosen,
                    "reward": -cost,
                }
            )
    vw.finish()
    return made


def main(folder: Path) -> None:
    """Print what Vowpal Wabbit read, learned and wrote."""
    files = sorted(folder.glob("*.dsjson"))
    content = {
        "features": {path.stem: read_features(path) for path in files},
        "learned": learned(folder / "disjoint.dsjson"),
        "without contexts": learned(folder / "disjoint.dsjson", contexts=False),
        "logs": {name: write_log(folder / f"{name}.json", options) for name, options in POLICIES.items()},
    }
    print(json.dumps(content))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
