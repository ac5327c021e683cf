// What the diagnostics of an evaluation are called on the page. The weight of a decision is explained below them.

export const LABELS = {
  why_best: "Why this estimator",
  comparisons: "Intervals that are valid together",
  rows: "Decisions used",
  positive: "Decisions used whose arm the target can choose",
  alike: "All their rewards are equal",
  rare: "Their rewards with the rarer value",
  effective_sample_size: "Effective sample size",
  effective_pulls: "Effective sample size of aipw-sqrt",
  mean_weight: "Mean weight (about 1 in a correct log)",
  mean_weight_z: "Its deviation from 1, in standard deviations",
  mean_weight_error: "Its standard error",
  max_weight: "Largest weight",
  skewness: "Skewness",
  audit: "Choices and logged probabilities",
  unsupported: "Fraction of decisions in which the target was impossible",
  missing: "Fraction of decisions without a reward",
  filled: "Fraction of rewards replaced by the ends of their range",
  floor: "Lowest probability of the target's arms, by design",
  adaptive: "The probabilities changed over time",
  binary: "All rewards are 0 or 1",
  design_effect: "Factor of the variance because units return",
};

export const EXPLANATION =
  "The weight of a decision is the probability that the target chooses its arm, divided by the logged probability. " +
  "The effective sample size is how many decisions of the target itself would say as much.";
