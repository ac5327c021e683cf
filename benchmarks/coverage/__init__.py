"""The coverage study: how often intervals contain the true value, on logs of adaptive policies.

`make coverage` simulates many logs, evaluates each of them with the estimators of `maillard.evaluate`, counts
the intervals that contain the true value, and writes docs/explanation/coverage.md.
"""
