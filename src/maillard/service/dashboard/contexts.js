// Traffic and mean rewards by segment, and the observed features, for experiments with contexts.

import { experimentPath } from "./api.js";
import { element, find, setText, show } from "./dom.js";
import { poll } from "./poller.js";
import { count, counted, number, percent, plain, escapeName, quoted } from "./text.js";

const POLL_INTERVAL_MS = 5000; // milliseconds
const MAX_ARMS = 8; // columns of the table by arm
const MAX_COUNTED = 50; // different values that the service counts
const WARNED = 0.05; // fraction of values outside of the declaration
const DECIMALS = 3;

export class Contexts {
  #service;
  #keysFound;
  #subject = null;
  #by = null;
  #polled = false;
  #again = () => {};

  /** Calls `keysFound(keys)` with the keys of contexts that have appeared. */
  constructor(service, keysFound) {
    this.#service = service;
    this.#keysFound = keysFound;
    find("segments-by").addEventListener("change", () => {
      this.#by = find("segments-by").value;
      this.#empty(); // these are the numbers of another key
      this.#again();
    });
  }

  /** Prepares the panel for an experiment: {key, signal}. */
  clear(subject) {
    this.#subject = subject;
    this.#by = null;
    this.#polled = false;
    this.#again = () => {};
    find("segments-by").replaceChildren();
    this.#empty();
    show(false, find("segments"));
  }

  /** Shows the panel if the experiment uses contexts, and begins to poll. */
  update(experiment) {
    const contextual = Boolean(experiment.features || experiment.segments);
    show(contextual, find("segments"));
    if (!contextual || this.#polled) return;
    this.#polled = true;
    const missed = (error) => error.status !== 401; // the poll of the experiment reports it
    this.#again = poll((ends) => this.#step(ends), {
      signal: this.#subject.signal, every: POLL_INTERVAL_MS, reached: () => {}, missed });
  }

  async #step(ends) {
    const by = this.#by === null ? "" : `?by=${encodeURIComponent(this.#by)}`;
    try {
      const found = await this.#service.get(experimentPath(this.#subject.key, `/contexts${by}`), ends);
      if (!ends.aborted) this.#show(found);
    } catch (error) {
      if (error.status !== 422) throw error;
      this.#by = null; // the key is gone: its unit was erased
    }
  }

  #empty() {
    for (const id of ["segments-rows", "segments-arm-head", "segments-arm-rows", "features-rows"]) find(id).replaceChildren();
    for (const id of ["segments-progress", "segments-summary", "segments-notes", "features-note"]) setText(find(id), "");
    show(false, find("segments-table"), find("segments-arms"), find("features-observed"));
  }

  #show(found) {
    this.#keysFound(found.keys);
    const select = find("segments-by");
    if (JSON.stringify([...select.options].map((each) => each.value)) !== JSON.stringify(found.keys)) {
      select.replaceChildren(...found.keys.map((key) => element("option", { value: key }, escapeName(key))));
    }
    if (found.by !== null) select.value = found.by;
    const progress = "The log is still being read, so these numbers are not complete yet.";
    setText(find("segments-progress"), found.complete ? "" : progress);
    const without = found.without_context
      ? `${counted(found.without_context, "decision has", "decisions have")} no context, or an erased one.` : "";
    const nothing = found.segments.length || found.by === null ? "" : "No decision has a context yet. ";
    setText(find("segments-summary"), nothing + without);
    const rows = found.segments.map((each) => ({ ...each, name: each.value === null ? "(missing)" : escapeName(each.value) }));
    if (found.other) rows.push({ ...found.other, name: "(other)" });
    show(rows.length > 0, find("segments-table"));
    find("segments-rows").replaceChildren(...rows.map(segmentRow));
    this.#showArms(rows);
    setText(find("segments-notes"), rows.length ? found.notes.join(" ") : "");
    this.#showFeatures(found.features);
  }

  #showArms(rows) {
    const traffic = new Map();
    for (const { arms } of rows) for (const { arm, decisions } of arms) traffic.set(arm, (traffic.get(arm) ?? 0) + decisions);
    const arms = [...traffic].sort((one, other) => other[1] - one[1]).map(([arm]) => arm).slice(0, MAX_ARMS);
    show(rows.length > 0 && arms.length > 0, find("segments-arms"));
    const heads = arms.map((arm) => element("th", { scope: "col", class: "right" }, arm === null ? "(other)" : escapeName(arm)));
    find("segments-arm-head").replaceChildren(element("th", { scope: "col" }, "Segment"), ...heads);
    find("segments-arm-rows").replaceChildren(...rows.map((row) => {
      const cells = arms.map((arm) => armCell(row.arms.find((each) => each.arm === arm)));
      return element("tr", {}, element("th", { scope: "row" }, element("bdi", {}, row.name)), ...cells);
    }));
  }

  #showFeatures(features) {
    show(features.length > 0, find("features-observed"));
    find("features-rows").replaceChildren(...features.map(featureRow));
    const outside = features.filter((each) => outsideOf(each) >= WARNED && each.type === "number");
    const unlisted = features.filter((each) => outsideOf(each) >= WARNED && each.type === "category");
    const texts = [];
    if (outside.length) texts.push(`Many values of ${list(outside)} are outside of the declared range: the policy treats them like the end of the range.`);
    if (unlisted.length) texts.push(`Many values of ${list(unlisted)} are not among the declared levels: the policy treats them alike.`);
    setText(find("features-note"), texts.join(" "));
    show(texts.length > 0, find("features-note"));
  }
}

function list(features) {
  return features.map(({ name }) => quoted(name)).join(", ");
}

function segmentRow({ name, fraction, decisions, rewards, mean }) {
  const fill = element("span", { class: "fill" });
  fill.style.setProperty("inline-size", `${100 * fraction}%`);
  const bar = element("span", { class: "bar", "aria-hidden": "true" }, fill);
  return element("tr", {},
    element("th", { scope: "row" }, element("bdi", {}, name)),
    element("td", { class: "traffic" }, bar, element("span", { class: "number" }, percent(fraction))),
    ...[count(decisions), count(rewards), mean === null ? "–" : number(mean, DECIMALS)].map((text) =>
      element("td", { class: "right" }, text)));
}

function armCell(cell) {
  if (!cell) return element("td", { class: "right" }, "–");
  const mean = cell.mean === null ? "–" : number(cell.mean, DECIMALS);
  return element("td", { class: "right" }, mean, element("span", { class: "of" }, ` ${counted(cell.decisions, "decision")}`));
}

/** The fraction of a feature's values that its declaration does not distinguish. */
function outsideOf({ decisions, clipped = 0, other = 0 }) {
  return decisions ? (clipped + other) / decisions : 0;
}

function featureRow(feature) {
  const { name, missing } = feature;
  const defaults = missing ? `${counted(missing, "decision")} without a value (default used)` : "";
  const texts = [...describe(feature).map((text) => text || "–"), defaults || "–"];
  const labels = ["Declared", "Observed", "Outside of the declaration", "Missing"];
  return element("tr", {}, element("th", { scope: "row" }, element("bdi", {}, escapeName(name))),
    ...texts.map((text, index) => element("td", { "data-label": labels[index] }, text)));
}

/** What was declared, what was observed, and how much of it is outside of the declaration. */
function describe(feature) {
  const { type, decisions, low, high, observed_low: least, observed_high: most, clipped, levels, other, values } = feature;
  const part = (n) => `${count(n)} of ${count(decisions)} (${percent(decisions ? n / decisions : 0)})`;
  const different = values > MAX_COUNTED ? `more than ${MAX_COUNTED} different values` : counted(values ?? 0, "different value");
  const known = (text) => (decisions ? text : "nothing yet");
  if (type === "number") {
    return [`${plain(low)} to ${plain(high)}`, known(`${plain(least ?? NaN)} to ${plain(most ?? NaN)}`), `${part(clipped)} clipped to the range`];
  }
  if (type === "category") {
    return [counted(levels, "level"), known(values === undefined ? counted(decisions, "value") : different), `${part(other)} other`];
  }
  if (type === "hashed") {
    const { buckets, buckets_used: used, largest_bucket: largest } = feature;
    const fullest = `fullest bucket: ${percent(decisions ? largest / decisions : 0)} of the decisions`;
    return [counted(buckets, "bucket"), known(`${values === undefined ? "values" : different} in ${counted(used, "bucket")}`), fullest];
  }
  return ["true or false", known(`true in ${part(feature.true)}`), ""];
}
