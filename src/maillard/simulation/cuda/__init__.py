"""Simulation on a GPU: the same formulas and the same lazy engines, with one thread per trial."""
