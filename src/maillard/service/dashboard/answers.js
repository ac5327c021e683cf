// What the log says to a "what if": a sentence with its interval and what it assumes, or a refusal with its reason.

import { drawn, element } from "./elements.js";
import { axis, place } from "./scales.js";
import { counted, decimalsFor, level, number, plain, sentence, shown } from "./words.js";

const SAID = ["target", "experiment", "source", "confidence", "best"]; // already, in the answer
const PLAIN = ["number", "string", "boolean"];

/** An Evaluation that is a number; `low` and `high` are what rewards are between. */
export function answered(answer, { low, high }) {
  const { value, lower, upper, logged_mean: logged, assumes, caveat, estimator } = answer;
  const bounded = lower !== null && upper !== null;
  const decimals = decimalsFor(bounded ? [(upper - lower) / 2] : []);
  const said = element("p", { class: "said" }, `${begun(answer.question)}, a decision would have earned `);
  if (value !== null) said.append(element("strong", {}, number(value, decimals)), " ");
  said.append("on average");
  const ends = `${number(lower, decimals)} and ${number(upper, decimals)}`;
  if (bounded) said.append(`${value === null ? "" : ","} with ${level(answer.confidence)} confidence between ${ends}`);
  said.append(".");
  const node = element("div", { class: "answer" }, said);
  if (bounded) node.append(picture(value, lower, upper, logged));
  const made = logged === null ? "" : `The decisions that were made earned ${number(logged, decimals)}. `;
  const source = `From ${counted(answer.rows, "row")}${estimator ? `, by ${estimator}` : ""}.`;
  node.append(element("p", { class: "note" }, made + source));
  if (bounded && low !== null && high !== null && lower <= low && upper >= high) {
    const why = "That is the whole range of rewards: the log says nothing of it yet.";
    node.append(element("p", { class: "box partly" }, element("strong", {}, "It could be anything. "), why));
  }
  if (assumes) node.append(element("div", { class: "note" }, ...listed("It assumes", assumes)));
  if (caveat) node.append(element("div", { class: "box partly" }, ...listed("But", caveat)));
  node.append(...more(answer.details));
  return node;
}

/** An Evaluation that is a refusal. */
export function refused({ question, refusal, rows, logged_mean: logged, details }) {
  const why = sentence(refusal ?? "no reason was given");
  const made = logged === null ? "" : ` The decisions that were made earned ${number(logged, 3)}.`;
  return element("div", { class: "answer" },
    element("p", { class: "said" }, `${begun(question)}: the log cannot say what would have been earned.`),
    element("p", { class: "box partly" }, element("strong", {}, "Why not? "), why),
    element("p", { class: "note" },
      `This is an answer, not a fault: a number that ${counted(rows, "row")} cannot support would mislead.${made}`),
    ...more(details));
}

function picture(value, lower, upper, logged) {
  const scale = axis([value, lower, upper, logged].filter((each) => each !== null), 4);
  const at = (each) => `${100 * place(each, scale)}%`;
  const svg = drawn("svg", { class: "forest answered", "aria-hidden": "true" });
  scale.marks.forEach((each, index) => {
    const anchor = index === 0 ? "start" : index === scale.marks.length - 1 ? "end" : "middle";
    svg.append(drawn("line", { class: "rule", x1: at(each), x2: at(each), y1: 0, y2: 30 }));
    svg.append(drawn("text", { x: at(each), y: 44, "text-anchor": anchor }, number(each, scale.decimals)));
  });
  if (logged !== null) svg.append(drawn("line", { class: "logged", x1: at(logged), x2: at(logged), y1: 0, y2: 30 }));
  svg.append(drawn("line", { class: "interval", x1: at(lower), x2: at(upper), y1: 15, y2: 15 }));
  if (value !== null) svg.append(drawn("circle", { class: "point", cx: at(value), cy: 15, r: 5 }));
  return svg;
}

/** A text of several parts, after the words that lead to them: one in the same line, more as a list. */
function listed(lead, text) {
  const parts = text.split("; ");
  if (parts.length === 1) return [element("strong", {}, `${lead} `), text.replace(/\.?$/, ".")];
  return [element("strong", {}, `${lead}:`), element("ul", {}, ...parts.map((part) => element("li", {}, part)))];
}

/** Every estimator's answer, and the numbers by which to judge them. */
function more(details) {
  const { estimates = {}, diagnostics = {}, ...rest } = details ?? {};
  const tells = ([name, value]) => !SAID.includes(name) && PLAIN.includes(typeof value) && value !== "";
  const facts = Object.entries({ ...rest, ...diagnostics }).filter(tells).map(fact);
  const rows = Object.values(estimates).map(estimate);
  if (!rows.length && !facts.length) return [];
  const parts = [element("summary", {}, "Details")];
  if (rows.length) {
    const head = [element("th", { scope: "col" }, "Estimator")];
    for (const name of ["Value", "From", "To"]) head.push(element("th", { scope: "col", class: "right" }, name));
    const table = element("table", { class: "numbers" },
      element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
    const named = { class: "scroll", role: "region", tabindex: 0, "aria-label": "Every estimator" };
    parts.push(element("div", named, table));
  }
  if (facts.length) parts.push(element("dl", { class: "details" }, ...facts));
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

function fact([name, value]) {
  const text = typeof value === "number" ? plain(Number(value.toPrecision(5))) : shown(String(value));
  return element("div", {}, element("dt", {}, shown(name.replaceAll("_", " "))), element("dd", {}, text));
}

function begun(question) {
  const text = shown(question);
  return text[0].toUpperCase() + text.slice(1);
}
