"""A lazy engine chooses and learns in two steps each: what nearly every round needs, and what few do.

`glance(f, w, arms, t, rng)` returns the arm if it can tell at once, else -1, and then `consider`, with the same arguments, finds it.
`note(f, w, arms, arm, reward, t)` counts a reward and says whether `adapt(f, w, arms, arm, t)` has more to do. On a GPU the threads
of a warp wait for each other before the second steps; here they are joined.
"""

from __future__ import annotations

from typing import Any

__all__ = ["joined"]


def joined(glance: Any, consider: Any, note: Any, adapt: Any) -> tuple[Any, Any]:
    """`choose` and `learn`, as the loop calls them."""

    def choose(f: Any, w: Any, arms: int, t: int, rng: Any) -> int:
        arm = glance(f, w, arms, t, rng)
        return arm if arm >= 0 else consider(f, w, arms, t, rng)

    def learn(f: Any, w: Any, arms: int, arm: int, reward: float, t: int) -> None:
        if note(f, w, arms, arm, reward, t):
            adapt(f, w, arms, arm, t)

    return choose, learn
