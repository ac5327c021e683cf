"""The simulation's GPU twin: the same formulas and the same lazy engines, one thread a trial."""
