"""Whether intervals cover what they say they cover, on logs of policies that learned: `make coverage`.

Many logs are simulated, each is evaluated by the estimators that users call, and the share of intervals that
hold the true value is counted. The page docs/coverage.md is what comes out.
"""
