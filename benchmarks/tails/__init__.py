"""The tail study: what the booster of MS+ saves in expected regret, and what it costs in rare, very large ones.

`python -m benchmarks.tails --device cuda --trials 1000000 --output docs/tails.json` runs it and writes its numbers; with `--page` it
writes docs/tails.md and its pictures from them. Policies other than MS+ are there for comparison, and have fewer trials.
"""
