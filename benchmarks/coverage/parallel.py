"""Independent blocks of work on threads, with results in the order of the blocks.

An interrupt takes effect at the next block.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["Work", "gather"]

Made = TypeVar("Made")


@dataclass(frozen=True)
class Work:
    """The number of threads, and the callbacks for progress."""

    threads: int
    advance: Callable[[float], None] = lambda _units: None
    say: Callable[[str], None] = lambda _text: None


def gather(work: Work, block: Callable[[int], Made], blocks: int, what: str, units: float) -> list[Made]:
    """The results of `block(0)`, `block(1)`, ..., run on threads; compiled code releases the GIL.

    `units` is the amount of work of a block, for the progress bar.
    """
    work.say(what)
    pool = ThreadPoolExecutor(work.threads)
    futures = [pool.submit(block, number) for number in range(blocks)]
    left = set(futures)
    try:
        while left:
            done, left = wait(left, return_when=FIRST_COMPLETED)
            for each in done:
                each.result()
            work.advance(units * len(done))
    finally:
        pool.shutdown(cancel_futures=True)
    return [each.result() for each in futures]
