"""Claims on off-policy evaluation, with exact probabilities and with estimated ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from maillard.array_types import Floats
from maillard.reproduction import two_arm_logs
from maillard.reproduction.claim_statistics import Check, Verdict, judge, log_mean, mean, times
from maillard.reproduction.claims.findings import Finding, tests
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.report_content import DataTable

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
        ratio = log_mean(values) - math.log(truth)
        checks += Check.within(f"{arm}: mean estimate over the truth", ratio, 1 / _TENTH)
        texts.append(f"{arm} {found.value:.4f} for {truth:g} (z = {z:+.1f})")
        rows.append((arm, float(truth), found.value, found.error, z, float(values.std(ddof=1))))
    columns = ("arm", "truth", "mean estimate", "standard error", "z", "deviation of one")
    first, last = two_arm_logs.ERROR_ROUNDS[-3], two_arm_logs.ERROR_ROUNDS[-1]
    shrinking = "; ".join(f"{who} {off[-3]:.3f} and {off[-1]:.3f}" for who, (off, _) in errors.items())
    statistic = (
        f"means of {values.size:,} estimates: {', '.join(texts)}. But one estimate is off by (deviation "
        f"after {first:,} and {last:,} rounds): {shrinking}"
    )
    return _judged(statistic, checks, DataTable(columns, tuple(rows)))


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
    texts = []
    for each in found:
        name, ratio = f"{each.draws} draws" if each.draws else "exact", log_mean(each.estimates) - truth
        what = f"{name}: mean estimate over the truth"
        if each.draws:
            checks.append(Check.ratio(what, ratio, _TENTH, below=True))
        else:
            checks += Check.within(what, ratio, 1 / _TENTH)
        texts.append(f"{name} {times(ratio.value)}")
    most = max(never)
    statistic = (
        f"mean estimate over the truth: {', '.join(texts)}. With {most} draws besides the one that was "
        f"served, {never[most][1]:.0%} of the logs have a row whose weight is infinite"
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
    rows = []
    for each in found:
        estimate = mean(each.estimates) * (1 / float(two_arm_logs.true_means()[0]))
        rows_as_zero, logs_with_zero = never.get(each.draws, (0.0, 0.0))
        row = {
            "draws, one of them served": str(each.draws or "exact"),
            "mean estimate over the truth": estimate.value,
            "standard error": estimate.error,
            "mean of 1 - (1 - p)^draws": each.expected,
            "rows logged as 0 if the served draw is not counted": rows_as_zero,
            "logs with such a row": logs_with_zero,
        }
        rows.append(row)
    return DataTable.of(rows, title)
