"""Numerical methods for policies: divergences, score distributions, the probability to be the largest."""
