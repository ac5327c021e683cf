"""`python -m benchmarks.tails`: run the missing cells, or write docs/explanation/tails.md."""

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

DOCS = Path(__file__).parent.parent.parent / "docs"
DATA, PAGE = DOCS / "data" / "tails.json", DOCS / "explanation" / "tails.md"


def main() -> int:
    """Run the missing cells, or write the page."""
    started = time.monotonic()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tails", description=tails.__doc__)
    parser.add_argument("--device", default="cpu", help="cpu or cuda (cpu)")
    parser.add_argument(
        "--trials", type=int, default=1_000_000, help="trials of each cell of MS+ (1,000,000)"
    )
    parser.add_argument(
        "--others", type=int, help="trials of each cell of the other policies (a tenth of --trials)"
    )
    parser.add_argument(
        "--wide",
        type=int,
        help=f"trials of MS+ on problems with {plan.WIDE} arms, which take ten times as long (--trials)",
    )
    parser.add_argument(
        "--horizon", type=int, default=plan.HORIZON, help=f"rounds per trial ({plan.HORIZON:,})"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--budget", type=float, default=math.inf, help="seconds after which no cell is started (unlimited)"
    )
    parser.add_argument(
        "--output", type=Path, default=DATA, help="the JSON file of results (docs/data/tails.json)"
    )
    parser.add_argument(
        "--again", action="store_true", help="start over, even if the file has cells or other settings"
    )
    parser.add_argument("--page", action="store_true", help="run nothing; write the page and its pictures")
    args = parser.parse_args()
    if args.page:
        study = read(args.output)
        if missing := [pair for pair in study.missing() if pair[1] in plan.BOOSTED]:
            parser.error(
                f"{args.output} lacks {len(missing)} cells of MS+, "
                f"the first {missing[0][1]} on {missing[0][0]}"
            )
        from benchmarks.tails.page import write_page  # imports matplotlib, which a run does not need

        page = PAGE if args.output == DATA else args.output.with_suffix(".md")
        write_page(study, page)
        print(f"wrote {page} and its pictures")
        return 0
    others = max(2, args.trials // 10) if args.others is None else args.others
    wide = args.trials if args.wide is None else args.wide
    if min(args.trials, others, wide) < 2 or args.horizon < 1 or args.seed < 0 or not args.budget >= 0:
        parser.error(
            "--trials, --others and --wide must be at least 2, --horizon at least 1, "
            "--seed and --budget at least 0"
        )
    if not args.output.absolute().parent.is_dir():
        parser.error(f"--output {args.output}: the folder does not exist")
    settings = {
        "horizon": args.horizon,
        "trials": args.trials,
        "others": others,
        "wide": wide,
        "seed": args.seed,
        "versions": versions(),
    }
    study = Study(settings, {})
    if args.output.exists() and not args.again:
        study = read(args.output)
        if other := [
            f"{name} {study.settings.get(name)}"
            for name in settings
            if study.settings.get(name) != settings[name]
        ]:
            parser.error(
                f"{args.output} has other settings ({', '.join(other)}): "
                "name another file with --output, or start over with --again"
            )
    try:
        run(study, args.output, args.device, until=started + args.budget)
    except KeyboardInterrupt:
        print(f"stopped; {args.output} has the finished cells, and the same command continues from there")
        return 130
    if missing := study.missing():
        print(
            f"the budget is used up: {len(missing)} cells are missing, "
            "and the same command continues from there"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
