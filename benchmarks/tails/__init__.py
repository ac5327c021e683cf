"""The tail study: the booster of MS+ lowers the expected regret and makes very large regrets more frequent.

`python -m benchmarks.tails --device cuda --trials 1000000 --output docs/data/tails.json` runs it and writes
the results. With `--page` it writes docs/explanation/tails.md and its pictures from them. Policies other than
MS+ serve as comparison and have fewer trials.
"""
