"""The section on what a log says of other policies."""

from __future__ import annotations

import numpy as np

from maillard.reproduction import two_arm_logs
from maillard.reproduction.claim_statistics import mean
from maillard.reproduction.claims.off_policy_claims import counted_table
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.report_content import ReportSection
from maillard.reproduction.sections.panels import lines

__all__ = ["off_policy"]


def off_policy(results: ExperimentResults) -> ReportSection:
    """Inverse propensity scoring, with exact probabilities and with drawn ones."""
    seed, truth = results.settings.seed, float(two_arm_logs.means()[0])
    error = lines(
        "off-policy-error",
        "How far one estimate is off",
        list(two_arm_logs.LONG),
        two_arm_logs.errors(seed),
        xlabel="rounds of the log",
        label="standard deviation",
        yscale="log",
    )
    exact, *found = [mean(each.estimates) * (1 / truth) for each in two_arm_logs.counted(seed)]
    counts = list(two_arm_logs.DRAWS)
    series = {
        "exact probabilities": (np.full(len(counts), exact.value), np.full(len(counts), exact.error)),
        "drawn probabilities": (
            np.array([each.value for each in found]),
            np.array([each.error for each in found]),
        ),
    }
    counted = lines(
        "off-policy-counted",
        "Thompson's probabilities by drawing",
        counts,
        series,
        xlabel="draws, one of them served",
        label="mean estimate over the truth",
        ticks=counts,
    )
    table = counted_table(
        two_arm_logs.counted(seed), two_arm_logs.never_drawn(seed), "Thompson's probabilities by drawing"
    )
    better, worse = two_arm_logs.means()[::-1]
    text = (
        f"Two Bernoulli arms, {better:g} and {worse:g}, and the mean reward of always choosing one of them, by inverse propensity scoring: reward / p where it was chosen, averaged over "
        f"all rounds. On {two_arm_logs.COUNT:,} logs of MS with {two_arm_logs.ROUNDS} rounds each, the estimates are right on average. That says little of a single one: MS chooses the worse "
        "arm in round t with a probability of about 1 / t, so that weights grow as fast as rounds do, and however long the log, the estimate of the worse arm stays as far off. With a floor "
        "under the probabilities it does not; or weights that are stabilised, as in the estimators aipw-two-point and aipw-sqrt, which hold what they promise only with such a floor.",
        "Thompson's probabilities are exact here as well. Logging instead the share that an arm had in a few draws makes estimates too low if the draw that was served is one of them: the "
        "arm was served, so its share is too large. If it is not, arms that were served are logged as never drawn, and have no weight.",
    )
    return ReportSection(
        "off-policy", "Other policies from the log", text, (error, counted), (table,), beyond=True
    )
