"""Reductions of a batch of trials on the device: one block of threads per checkpoint or arm."""

from __future__ import annotations

from typing import Any

import numpy as np

from maillard.simulation.cuda import cuda_toolkit
from maillard.simulation.cuda.engines.trial_memory import N, record_at
from maillard.simulation.summary import bin_of

cuda = cuda_toolkit.cuda()
THREADS = 256


def reduce_curves(regret: Any, trials: int, mean: Any, square: Any, most: Any, histogram: Any) -> None:
    """Compute the mean, the squared deviations, the maximum and the histogram of every checkpoint."""
    place, thread, threads = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x
    shared = cuda.shared.array(THREADS, np.float64)
    largest, total = -np.inf, 0.0
    for trial in range(thread, trials, threads):
        value = regret[place, trial]
        total += value
        largest = max(largest, value)
        cuda.atomic.add(histogram, (place, bin_of(value)), 1)
    total = fold(shared, total, thread, threads, False)
    largest = fold(shared, largest, thread, threads, True)
    middle, squares = total / trials, 0.0
    for trial in range(thread, trials, threads):
        difference = regret[place, trial] - middle
        squares += difference * difference
    squares = fold(shared, squares, thread, threads, False)
    if thread == 0:
        mean[place], square[place], most[place] = middle, squares, largest


def fold(shared: Any, value: float, thread: int, threads: int, largest: bool) -> float:
    """Return the sum (or the maximum) of the threads' values, always in the same order."""
    cuda.syncthreads()
    shared[thread] = value
    cuda.syncthreads()
    half = threads // 2
    while half > 0:
        if thread < half:
            other = shared[thread + half]
            shared[thread] = max(shared[thread], other) if largest else shared[thread] + other
        cuda.syncthreads()
        half //= 2
    return shared[0]


def count_pulls(memory: Any, trials: int, pulls: Any) -> None:
    """Count the pulls of each arm in all trials."""
    arm, thread, threads = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x
    shared = cuda.shared.array(THREADS, np.float64)
    total = 0.0
    for trial in range(thread, trials, threads):
        total += memory[trial, record_at(arm) + N]
    total = fold(shared, total, thread, threads, False)
    if thread == 0:
        pulls[arm] = total


def list_pulls(memory: Any, trials: int, pulls: Any) -> None:
    """List the pulls of each arm, trial by trial."""
    trial = cuda.grid(1)
    if trial < trials:
        for arm in range(pulls.shape[1]):
            pulls[trial, arm] = int(memory[trial, record_at(arm) + N])
