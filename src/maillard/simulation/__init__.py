"""Simulation of policies on problems: exact, compiled, reproducible."""

from __future__ import annotations

from maillard.simulation.compiling import SlowFormula
from maillard.simulation.result import Result
from maillard.simulation.runner import Interrupted, simulate
from maillard.simulation.simulated_logs import Log, simulate_log
from maillard.simulation.summary import Summary

__all__ = ["Interrupted", "Log", "Result", "SlowFormula", "Summary", "simulate", "simulate_log"]


def __dir__() -> list[str]:
    return sorted(__all__)
