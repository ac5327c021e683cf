"""The section on off-policy evaluation."""

from __future__ import annotations

from maillard.reproduction import two_arm_logs
from maillard.reproduction.claim_statistics import mean
from maillard.reproduction.claims.off_policy_claims import propensity_table
from maillard.reproduction.experiment_results import ExperimentResults
from maillard.reproduction.report_content import ReportSection
from maillard.reproduction.sections.panels import lines, values_and_errors


def off_policy(results: ExperimentResults) -> ReportSection:
    """Inverse propensity scoring, with exact probabilities and with estimated ones."""
    seed, (worse, better) = results.settings.seed, two_arm_logs.true_means()
    error = lines(
        "off-policy-error",
        "Error of a single estimate",
        two_arm_logs.ERROR_ROUNDS,
        two_arm_logs.single_errors(seed),
        xlabel="rounds of the log",
        label="standard deviation",
        yscale="log",
    )
    found, title = two_arm_logs.sampled_propensities(seed), "Estimated probabilities of Thompson sampling"
    exact, *estimated = [mean(each.estimates) * (1 / float(worse)) for each in found]
    counted = lines(
        "off-policy-counted",
        title,
        two_arm_logs.SAMPLES,
        {
            "exact probabilities": values_and_errors([exact] * len(estimated)),
            "estimated probabilities": values_and_errors(estimated),
        },
        xlabel="draws, one of them served",
        label="mean estimate over the truth",
        ticks=two_arm_logs.SAMPLES,
    )
    table = propensity_table(found, two_arm_logs.zero_fractions(seed), title)
    text = (
        f"Two Bernoulli arms, {better:g} and {worse:g}. Inverse propensity scoring estimates the mean "
        "reward of always choosing one of them: reward / p if it was chosen, otherwise 0, averaged over "
        f"all rounds. On {two_arm_logs.COUNT:,} logs of MS with {two_arm_logs.ROUNDS} rounds each, the "
        "estimates are right on average. A single estimate is another matter. MS chooses the worse arm in "
        "round t with a probability of about 1 / t, so the weights grow as fast as the number of rounds, "
        "and the error for the worse arm does not shrink with the length of the log. It does shrink with a "
        "floor under the probabilities, and for the estimators aipw-two-point and aipw-sqrt, whose "
        "stabilised weights need such a floor for their guarantees.",
        "The probabilities of Thompson sampling are exact here, too. If instead the log contains the "
        "fraction of a few samples in which the arm was chosen, and the choice that was served is one of "
        "these samples, the estimates are too low: the fraction of a served arm is too large. If the "
        "served choice is not one of them, some arms that were served are logged with probability 0, and "
        "have no valid weight.",
    )
    return ReportSection("off-policy", "Off-policy evaluation", text, (error, counted), (table,), beyond=True)
