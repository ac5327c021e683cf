"""Advice before an experiment: which policy, which floor, and what to expect from them."""

from __future__ import annotations

from maillard.evaluation.advising.advice_result import Advice, AdviceOption
from maillard.evaluation.advising.advise_experiment import advise

__all__ = ["Advice", "AdviceOption", "advise"]
