"""Independent blocks of work on threads, in the order of their numbers.

An interrupt ends it at the next block.
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
    """On how many threads work is done, and who is told of it."""

    threads: int
    advance: Callable[[float], None] = lambda _units: None
    say: Callable[[str], None] = lambda _text: None


def gather(work: Work, block: Callable[[int], Made], blocks: int, what: str, units: float) -> list[Made]:
    """`block(0)`, `block(1)`, ...: compiled code frees the interpreter, so threads run it side by side.

    `units` are a block's work.
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
