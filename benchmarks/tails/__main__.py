"""`python -m benchmarks.tails`: run what is not there yet, or write docs/tails.md."""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

from benchmarks import tails
from benchmarks.tails import plan
from benchmarks.tails.cells import Study, read
from benchmarks.tails.running import run
from maillard.simulation.plans import versions

DATA = Path(__file__).parent.parent.parent / "docs" / "tails.json"


def main() -> int:
    """Run what is not there yet; or write the page."""
    started = time.monotonic()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tails", description=tails.__doc__)
    parser.add_argument("--device", default="cpu", help="cpu or cuda (cpu)")
    parser.add_argument("--trials", type=int, default=1_000_000, help="of each cell of MS+ (1,000,000)")
    parser.add_argument(
        "--others", type=int, help="trials of each cell of another policy (a tenth of --trials)"
    )
    parser.add_argument(
        "--wide",
        type=int,
        help=f"trials of MS+ on problems of {plan.WIDE} arms, which cost ten times as much (--trials)",
    )
    parser.add_argument("--horizon", type=int, default=plan.HORIZON, help=f"({plan.HORIZON:,})")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--budget", type=float, default=math.inf, help="seconds after which no cell is begun (none)"
    )
    parser.add_argument("--output", type=Path, default=DATA, help="the file of numbers (docs/tails.json)")
    parser.add_argument(
        "--again", action="store_true", help="run also what the file has already, or has with other settings"
    )
    parser.add_argument(
        "--page", action="store_true", help="run nothing: write the page and its pictures beside the file"
    )
    given = parser.parse_args()
    if given.page:
        study = read(given.output)
        if left := [each for each in study.missing() if each[1] in plan.BOOSTED]:
            parser.error(
                f"{given.output} lacks {len(left)} cells of MS+, the first {left[0][1]} on {left[0][0]}"
            )
        from benchmarks.tails.page import write_page  # which draws: a run does without

        write_page(study, given.output.with_suffix(".md"))
        print(f"wrote {given.output.with_suffix('.md')} and its pictures")
        return 0
    others = max(2, given.trials // 10) if given.others is None else given.others
    wide = given.trials if given.wide is None else given.wide
    if min(given.trials, others, wide) < 2 or given.horizon < 1 or given.seed < 0 or not given.budget >= 0:
        parser.error("--trials, --others and --wide from 2, --horizon from 1, --seed and --budget from 0")
    if not given.output.absolute().parent.is_dir():
        parser.error(f"--output {given.output}: there is no such folder")
    settings = {
        "horizon": given.horizon,
        "trials": given.trials,
        "others": others,
        "wide": wide,
        "seed": given.seed,
        "versions": versions(),
    }
    study = Study(settings, {})
    if given.output.exists() and not given.again:
        study = read(given.output)
        if other := [
            f"{name} {study.settings.get(name)}"
            for name in settings
            if study.settings.get(name) != settings[name]
        ]:
            parser.error(
                f"{given.output} has other settings ({', '.join(other)}): --output names another file, --again starts over"
            )
    try:
        run(study, given.output, given.device, until=started + given.budget)
    except KeyboardInterrupt:
        print(f"stopped; what was done is in {given.output}, and the same command goes on from there")
        return 130
    if left := study.missing():
        print(f"the budget is spent: {len(left)} cells are missing, and the same command goes on from there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
