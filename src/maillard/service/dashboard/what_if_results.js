// Shows the result of an evaluation: the estimate with its interval and assumptions, or why the log cannot answer.

import { EXPLANATION, LABELS } from "./diagnostic_labels.js";
import { svgElement, element } from "./dom.js";
import { axis, place } from "./scales.js";
import { segmentNodes } from "./segment_results.js";
import { count, counted, decimalsFor, level, number, plain, sentence, escapeName } from "./text.js";

const SHOWN_ELSEWHERE = ["target", "experiment", "source", "confidence", "best"]; // shown elsewhere in the result
const ORDER = Object.keys(LABELS);
const YES_OR_NO = { true: "yes", false: "no" };
const PLAIN = ["number", "string", "boolean"];

/** The node for an evaluation with an estimate; `low` and `high` bound the rewards. */
export function estimateNode(result, { low, high }) {
  const { value, lower, upper, logged_mean: logged, assumes, caveat, estimator } = result;
  const bounded = lower !== null && upper !== null;
  const decimals = decimalsFor(bounded ? [(upper - lower) / 2] : []);
  const verb = result.kind === "comparison" ? "is" : "would have been";
  const statement = element("p", { class: "statement" }, `${capitalised(result.estimand)} ${verb} `);
  if (value !== null) statement.append(element("strong", {}, number(value, decimals)));
  const ends = `${number(lower, decimals)} and ${number(upper, decimals)}`;
  if (bounded) statement.append(`${value === null ? "" : ", "}with ${level(result.confidence)} confidence between ${ends}`);
  statement.append(".");
  if (bounded && result.kind === "comparison") statement.append(` ${verdictOf(lower, upper)}`);
  const node = element("div", { class: "result" }, statement);
  if (bounded) node.append(picture(value, lower, upper, logged));
  node.append(...segmentNodes(result));
  const made = logged === null ? "" : `The logged decisions had a mean reward of ${number(logged, decimals)}. `;
  const source = `From ${counted(result.rows, "decision")}${estimator ? `, with the estimator ${estimator}` : ""}.`;
  node.append(element("p", { class: "note" }, made + source + openText(result.pending)));
  const span = result.kind === "comparison" ? [low - high, high - low] : [low, high];
  if (bounded && low !== null && high !== null && lower <= span[0] && upper >= span[1]) {
    const why = "This is the whole range of rewards, so the log does not contain enough information yet.";
    node.append(element("p", { class: "box partly" }, element("strong", {}, "Not informative. "), why));
  }
  if (result.population) node.append(element("p", { class: "note" }, `This is about ${escapeName(result.population)}.`));
  for (const each of result.warnings) {
    node.append(element("p", { class: "box partly" }, element("strong", {}, "Warning: "), escapeName(each)));
  }
  if (assumes) node.append(element("div", { class: "note" }, ...labelled("Assumptions", assumes)));
  if (caveat) node.append(element("div", { class: "box partly" }, ...labelled("Caveat", caveat)));
  node.append(...detailNodes(result.details));
  return node;
}

/** The node for an evaluation that the log cannot answer. */
export function refusalNode(result) {
  const { estimand, refusal, rows, pending, logged_mean: logged, details } = result;
  const why = sentence(refusal ?? "no reason was given");
  const made = logged === null ? "" : ` The logged decisions had a mean reward of ${number(logged, 3)}.`;
  return element("div", { class: "result" },
    element("p", { class: "statement" }, `The log cannot be used to estimate ${estimand}.`),
    element("p", { class: "box partly" }, element("strong", {}, "Reason: "), why),
    element("p", { class: "note" },
      `This is not an error: an estimate from ${counted(rows, "decision")} would be misleading.${made}${rows ? openText(pending) : ""}`),
    ...segmentNodes(result),
    ...detailNodes(details));
}

/** Which of two targets is better, by the interval of the difference. */
function verdictOf(lower, upper) {
  if (lower > 0) return "So the first one is better.";
  return upper < 0 ? "So the second one is better." : "So it is undecided which one is better.";
}

function openText(pending) {
  if (!pending) return "";
  return ` ${counted(pending, "decision is", "decisions are")} not used, because their reward windows are open.`;
}

function picture(value, lower, upper, logged) {
  const scale = axis([value, lower, upper, logged].filter((each) => each !== null), 4);
  const at = (each) => `${100 * place(each, scale)}%`;
  const svg = svgElement("svg", { class: "forest estimated", "aria-hidden": "true" });
  scale.marks.forEach((each, index) => {
    const anchor = index === 0 ? "start" : index === scale.marks.length - 1 ? "end" : "middle";
    svg.append(svgElement("line", { class: "rule", x1: at(each), x2: at(each), y1: 0, y2: 30 }));
    svg.append(svgElement("text", { x: at(each), y: 44, "text-anchor": anchor }, number(each, scale.decimals)));
  });
  if (logged !== null) svg.append(svgElement("line", { class: "logged", x1: at(logged), x2: at(logged), y1: 0, y2: 30 }));
  svg.append(svgElement("line", { class: "interval", x1: at(lower), x2: at(upper), y1: 15, y2: 15 }));
  if (value !== null) svg.append(svgElement("circle", { class: "point", cx: at(value), cy: 15, r: 5 }));
  return svg;
}

/** A label and its text; a text of several parts becomes a list. */
function labelled(lead, text) {
  const parts = text.split("; ");
  if (parts.length === 1) return [element("strong", {}, `${lead}: `), text.replace(/\.?$/, ".")];
  return [element("strong", {}, `${lead}:`), element("ul", {}, ...parts.map((part) => element("li", {}, part)))];
}

/** The estimates of all estimators and the diagnostics. */
function detailNodes(details) {
  const { estimates = {}, diagnostics = {}, ...rest } = details ?? {};
  const isPlain = ([name, value]) => !SHOWN_ELSEWHERE.includes(name) && PLAIN.includes(typeof value) && value !== "";
  const place = ([name]) => (name in LABELS ? ORDER.indexOf(name) : ORDER.length);
  const shown = Object.entries({ ...rest, ...diagnostics }).filter(isPlain);
  const entries = shown.sort((one, other) => place(one) - place(other)).map(entryNode);
  const rows = Object.values(estimates).map(estimate);
  if (!rows.length && !entries.length) return [];
  const parts = [element("summary", {}, "Details")];
  if (rows.length) {
    const head = [element("th", { scope: "col" }, "Estimator")];
    for (const name of ["Value", "From", "To"]) head.push(element("th", { scope: "col", class: "right" }, name));
    const table = element("table", { class: "numbers" },
      element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
    const named = { class: "scroll", role: "region", tabindex: 0, "aria-label": "Every estimator" };
    parts.push(element("div", named, table));
  }
  if (entries.length) parts.push(element("dl", { class: "details" }, ...entries));
  if (diagnostics.mean_weight !== undefined) parts.push(element("p", { class: "note" }, EXPLANATION));
  return [element("details", {}, ...parts)];
}

function estimate({ name, value, lower, upper, refusal }) {
  const decimals = decimalsFor([(upper - lower) / 2]);
  const cell = (each) => element("td", { class: "right" }, each === null ? "–" : number(each, decimals));
  const numbers = refusal
    ? [element("td", { colspan: 3, class: "note" }, sentence(refusal))]
    : [value, lower, upper].map(cell);
  return element("tr", {}, element("th", { scope: "row" }, name), ...numbers);
}

function entryNode([name, value]) {
  const digits = (each) => (Number.isInteger(each) ? count(each) : plain(Number(each.toPrecision(5))));
  const text = typeof value === "number" ? digits(value) : escapeName(YES_OR_NO[value] ?? value);
  return element("div", {}, element("dt", {}, LABELS[name] ?? escapeName(name.replaceAll("_", " "))), element("dd", {}, text));
}

function capitalised(estimand) {
  const text = escapeName(estimand);
  return text[0].toUpperCase() + text.slice(1);
}
