"""Numbers behind the formulas: divergences, score laws, and the probability of being the largest."""
