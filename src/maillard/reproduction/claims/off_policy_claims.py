"""Claims on off-policy evaluation, with exact probabilities and with estimated ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from maillard.reproduction import two_arm_logs
from maillard.reproduction.claim_statistics import Check, Verdict, judge, log_mean, mean
from maillard.reproduction.claims.findings import Finding, ratio_check, tests, times, within
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.report_content import DataTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_TENTH = 0.9  # estimates below 0.9 of the truth are too low; those within 0.9 and 1 / 0.9 are right


@tests("ips-on-ms")
def ips_on_ms(results: ExperimentResults, _where: str) -> Finding:
    """The mean of many estimates of each arm, and the error of a single one as its log grows."""
    seed = results.settings.seed
    logs = two_arm_logs.averaged_logs("ms", seed)
    return unbiased(
        {
            "better arm": two_arm_logs.ips_scores(logs, better=True).mean(axis=0),
            "worse arm": two_arm_logs.ips_scores(logs).mean(axis=0),
        },
        two_arm_logs.single_errors(seed),
    )


def unbiased(estimates: Mapping[str, Floats], errors: Mapping[str, tuple[Floats, Floats]]) -> Finding:
    """Whether estimates of the better and of the worse arm are right on average."""
    checks: list[Check] = []
    texts, rows = [], []
    for (arm, values), truth in zip(estimates.items(), two_arm_logs.true_means()[::-1], strict=True):
        found = mean(values)
        z = float((found.value - truth) / found.error)
        checks += within(
            f"{arm}: mean estimate over the truth", log_mean(values) - math.log(truth), 1 / _TENTH
        )
        texts.append(f"{arm} {found.value:.4f} for {truth:g} (z = {z:+.1f})")
        rows.append((arm, float(truth), found.value, found.error, z, float(values.std(ddof=1))))
    table = DataTable(
        ("arm", "truth", "mean estimate", "standard error", "z", "deviation of one"), tuple(rows)
    )
    first, last = two_arm_logs.ERROR_ROUNDS[-3], two_arm_logs.ERROR_ROUNDS[-1]
    shrinking = "; ".join(f"{who} {off[-3]:.3f} and {off[-1]:.3f}" for who, (off, _) in errors.items())
    statistic = (
        f"means of {values.size:,} estimates: {', '.join(texts)}. But one estimate is off by (deviation "
        f"after {first:,} and {last:,} rounds): {shrinking}"
    )
    return _judged(statistic, checks, table)


@tests("ips-on-thompson")
def ips_on_thompson(results: ExperimentResults, _where: str) -> Finding:
    """The mean of many estimates of the worse arm, by how its probability was obtained."""
    return biased(
        two_arm_logs.sampled_propensities(results.settings.seed),
        two_arm_logs.zero_fractions(results.settings.seed),
    )


def biased(
    found: Sequence[two_arm_logs.SampledPropensities], never: Mapping[int, tuple[float, float]]
) -> Finding:
    """Whether estimates are right on average with exact probabilities, and too low with estimated ones."""
    truth = math.log(two_arm_logs.true_means()[0])
    checks: list[Check] = []
    for each in found:
        ratio = log_mean(each.estimates) - truth
        if each.draws:
            what = f"{each.draws} draws: mean estimate over the truth"
            checks.append(ratio_check(what, ratio, _TENTH, below=True))
        else:
            checks += within("exact: mean estimate over the truth", ratio, 1 / _TENTH)
    shown = ", ".join(
        f"{f'{each.draws} draws' if each.draws else 'exact'} {times(math.log(each.estimates.mean()) - truth)}"
        for each in found
    )
    most = max(never)
    statistic = (
        f"mean estimate over the truth: {shown}. With {most} draws besides the one that was served, "
        f"{never[most][1]:.0%} of the logs have a row whose weight is infinite"
    )
    return _judged(statistic, checks, propensity_table(found, never))


def _judged(statistic: str, checks: Sequence[Check], evidence: DataTable) -> Finding:
    """A finding without a suggested number of trials, because no experiment of the run is involved."""
    return Finding(statistic, tuple(checks), Verdict(judge(checks).outcome), evidence)


def propensity_table(
    found: Sequence[two_arm_logs.SampledPropensities],
    never: Mapping[int, tuple[float, float]],
    title: str = "",
) -> DataTable:
    """The bias of estimates with estimated probabilities of Thompson sampling."""
    truth = float(two_arm_logs.true_means()[0])
    rows = []
    for each in found:
        estimate = mean(each.estimates) * (1 / truth)
        zero = never.get(each.draws, (0.0, 0.0))
        name = str(each.draws) if each.draws else "exact"
        rows.append((name, estimate.value, estimate.error, each.expected, *zero))
    columns = (
        "draws, one of them served",
        "mean estimate over the truth",
        "standard error",
        "mean of 1 - (1 - p)^draws",
        "rows logged as 0 if the served draw is not counted",
        "logs with such a row",
    )
    return DataTable(columns, tuple(rows), title)
