// Shows the estimates of the segments of an evaluation, on one axis.

import { element, svgElement } from "./dom.js";
import { axis, place } from "./scales.js";
import { count, decimalsFor, level, number, sentence, escapeName } from "./text.js";

/** The nodes for the segments of an evaluation; none without segments. */
export function segmentNodes({ by, segments, notes, confidence }) {
  if (!segments?.length) return [];
  const known = segments.filter((each) => each.lower !== null);
  const scale = known.length ? axis(known.flatMap((each) => [each.lower, each.upper]), 4) : null;
  const decimals = decimalsFor(known.map((each) => (each.upper - each.lower) / 2));
  const head = [
    element("th", { scope: "col" }, escapeName(by.join(", "))),
    element("th", { scope: "col", class: "right" }, "Decisions"),
    element("th", { scope: "col", class: "right" }, "Estimate"),
    element("th", { scope: "col" }, `Interval${scale ? `, from ${number(scale.low, scale.decimals)} to ${number(scale.high, scale.decimals)}` : ""}`),
  ];
  const rows = segments.map((each) => segmentRow(each, scale, decimals));
  const table = element("table", { class: "numbers by-segment" },
    element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
  const named = { class: "scroll", role: "region", tabindex: 0, "aria-label": "Estimates by segment" };
  const valid = `The intervals of the segments are valid together with ${level(confidence)} confidence, so you may pick any of them. `;
  const pooled = notes.map(escapeName).join(" ");
  return [
    element("h3", {}, `By ${escapeName(by.join(", "))}`),
    element("div", named, table),
    element("p", { class: "note" }, valid + pooled),
  ];
}

function segmentRow({ segment, decisions, value, lower, upper, refusal, caveat, warnings }, scale, decimals) {
  const name = element("th", { scope: "row" }, element("bdi", {}, escapeName(Object.values(segment).join(", "))));
  const size = element("td", { class: "right" }, count(decisions));
  if (refusal !== null) {
    const why = element("td", { colspan: 2, class: "note" }, `Not estimated: ${escapeName(sentence(refusal))}`);
    return element("tr", {}, name, size, why);
  }
  const remarks = [...warnings, ...(caveat ? [caveat] : [])].map((each) => escapeName(sentence(each))).join(" ");
  const interval = lower === null ? "none" : `${number(lower, decimals)} to ${number(upper, decimals)}`;
  const cell = element("td", {}, ...(lower === null ? [] : [picture(value, lower, upper, scale)]), element("span", { class: "range" }, interval));
  if (remarks) cell.append(element("span", { class: "note" }, remarks));
  return element("tr", {}, name, size, element("td", { class: "right" }, value === null ? "–" : number(value, decimals)), cell);
}

function picture(value, lower, upper, scale) {
  const at = (each) => `${100 * place(each, scale)}%`;
  const svg = svgElement("svg", { class: "forest estimated small-forest", "aria-hidden": "true" });
  for (const mark of scale.marks) svg.append(svgElement("line", { class: "rule", x1: at(mark), x2: at(mark), y1: 0, y2: 20 }));
  svg.append(svgElement("line", { class: "interval", x1: at(lower), x2: at(upper), y1: 10, y2: 10 }));
  if (value !== null) svg.append(svgElement("circle", { class: "point", cx: at(value), cy: 10, r: 4 }));
  return svg;
}
