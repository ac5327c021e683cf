// Example curl commands.

import { experimentPath } from "./api.js";

/** Commands that create an experiment, request a decision and report a reward; with a key if required. */
export function commands(experiment, withKey) {
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
    decide: curl("POST", experimentPath(experiment, "/decisions"), '{"unit": "user-17"}'),
    reward: curl("PUT", "v1/decisions/DECISION_ID/reward", '{"value": 1}'),
  };
}

function inQuotes(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
