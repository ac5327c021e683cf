// Example curl commands.

import { experimentPath } from "./api.js";

/**
 * Commands that create an experiment, request a decision and report a reward; with a key if required. `example` is what a
 * decision needs besides a unit, see `exampleContext`.
 */
export function commands(experiment, withKey, example = {}) {
  const curl = (method, path, body) =>
    [
      `curl -X ${method} ${inQuotes(new URL(path, document.baseURI).href)}`,
      ...(withKey ? ['  -H "Authorization: Bearer $MAILLARD_KEY"'] : []),
      "  -H 'Content-Type: application/json'",
      `  -d ${inQuotes(body)}`,
    ].join(" \\\n");
  const created = { experiment, arms: ["red", "blue"], reward: { low: 0, high: 1, window: "1h", default: 0 } };
  return {
    create: curl("POST", "v1/experiments", JSON.stringify(created)),
    decide: curl("POST", experimentPath(experiment, "/decisions"), JSON.stringify({ unit: "user-17", ...example })),
    reward: curl("PUT", "v1/decisions/DECISION_ID/reward", '{"value": 1}'),
  };
}

/** An example of the context, and of the arms if every decision has its own, that an experiment needs. */
export function exampleContext({ features, segments, attributes, model, arms, retired }) {
  if (segments) return { context: Object.fromEntries(segments.map((key) => [key, "value"])) };
  if (!features) return {};
  const ofArms = new Set(Object.values(attributes ?? {}).flatMap(Object.keys));
  const needed = features.features.filter(({ name }) => !ofArms.has(name));
  const values = Object.fromEntries(needed.map((feature) => [feature.name, exampleValue(feature)]));
  const dynamic = model === "shared" && arms.length + retired.length === 0;
  return dynamic ? { actions: { "article-17": values, "article-18": values } } : { context: values };
}

function exampleValue({ type, low, levels }) {
  return { number: low, flag: true, category: levels?.[0] }[type] ?? "value";
}

function inQuotes(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
