// The integrity of the log: the verdict, the numbers behind it, and the full verification.

import { MAX_ROWS } from "./arms.js";
import { Rows, svgElement, element, find, setAttributes, setText, show } from "./dom.js";
import { count, counted, deviations, error, number, sentence, escapeName } from "./text.js";

const MAX_PROBLEMS = 10;
const AXIS_REACH = 1.3; // how far beyond the limit the axis of deviations extends

const VERDICT_TEXTS = {
  consistent: {
    light: "good",
    tile: "consistent",
    title: "Consistent: the choices agree with the logged probabilities.",
    meaning:
      "Each arm was chosen about as often as its logged probabilities predict. A correct log that is watched all the time " +
      "ever fails this check with a probability of at most 1 in 10,000.",
  },
  broken: {
    light: "bad",
    tile: "broken",
    title: "Broken: the choices do not agree with the logged probabilities.",
    meaning:
      "The arms that were shown do not match the logged probabilities. Possible causes: a retry that chose again, an arm " +
      "that was replaced after the decision, an edited log. Do not use estimates from this log until you know the cause.",
  },
  "not enough data": {
    light: "unknown",
    tile: "not enough data",
    title: "Not enough data: too few decisions to check.",
    meaning:
      "The check needs about a hundred decisions in which the choice was random.",
  },
  "cannot be audited": {
    light: "unknown",
    tile: "cannot be audited",
    title: "Cannot be audited: the log has only the probabilities of the chosen arms.",
    meaning:
      "The check compares the choices with the probabilities of all arms, and no decision in this log has them.",
  },
  reading: {
    light: "busy",
    tile: "still reading",
    title: "Still reading the log.",
    meaning:
      "The service is reading decisions from before its start. The numbers below include only the decisions read so far.",
  },
};

export class Audit {
  #rows = new Rows(find("audit-rows"), makeRow);

  clear() {
    this.#rows.clear();
    find("verified").replaceChildren();
  }

  /** Shows an Activity's audit. */
  update({ audit, complete, decisions }) {
    // A broken log stays broken, even if more is still to be read.
    const texts = VERDICT_TEXTS[complete || audit.verdict === "broken" ? audit.verdict : "reading"];
    for (const id of ["tile-light", "audit-light"]) setAttributes(find(id), { "data-light": texts.light });
    setText(find("tile-verdict"), texts.tile);
    setText(find("audit-verdict"), texts.title);
    setText(find("audit-meaning"), texts.meaning);

    // Of very many arms, those that deviate most.
    const size = (arm) => Math.abs(arm.z ?? 0);
    const few = audit.arms.length <= MAX_ROWS;
    const arms = few ? audit.arms : audit.arms.toSorted((one, other) => size(other) - size(one)).slice(0, MAX_ROWS);
    this.#rows.update(arms.map((arm) => ({ ...arm, limit: audit.limit })), (arm) => arm.arm);
    show(decisions > 0 && arms.length, find("audit-scroll"), find("audit-deviation"), find("audit-weights"));
    setText(find("audit-limit"), `normal: between ±${number(audit.limit, 1)}`);
    const rest = audit.arms.length - arms.length;
    show(rest > 0, find("audit-more"));
    setText(find("audit-more"), `${counted(rest, "more arm")}, all of them closer to their expected counts.`);
    const { mean, expected, z } = audit.weights;
    const weights = `the mean of 1 / p, where p is the probability of the chosen arm (0 if p < 0.01), is ${number(mean, 3)}`;
    const wanted = `${number(expected, 3)} is expected${z === null ? "" : ` (deviation ${deviations(z)})`}`;
    setText(find("audit-weights"), mean === null || expected === null ? "" : `A second check: ${weights}; ${wanted}.`);
    const notes = [
      audit.impossible && `${counted(audit.impossible, "decision")} chose an arm with a logged probability of 0.`,
      audit.left_out &&
        `${counted(audit.left_out, "decision")} left out, because they repeat an earlier decision or have incomplete probabilities.`,
    ];
    setText(find("audit-notes"), notes.filter(Boolean).join(" "));
  }

  /** Shows a Verification. */
  verified(found) {
    const whole = found.recomputed === found.decisions;
    const good = found.verdict !== "broken" && !found.problem_count;
    const all = `Verified: all ${counted(found.decisions, "probability was", "probabilities were")} recomputed`;
    const some = `${count(found.recomputed)} of ${counted(found.decisions, "probability", "probabilities")} recomputed`;
    const statement = found.decisions
      ? `${whole && good ? all : some} from the log alone. The largest error is ${error(found.largest_error)}.`
      : "There is no decision to verify yet.";
    const verdict = VERDICT_TEXTS[found.verdict]?.title ?? sentence(found.verdict);
    const problems = found.problems.slice(0, MAX_PROBLEMS).map((each) =>
      element("li", {}, element("code", {}, escapeName(each.decision ?? "")), " ", sentence(each.what)));
    const left = found.problem_count - problems.length;
    if (left > 0) problems.push(element("li", {}, `and ${count(left)} more`));
    const lead = good ? [statement] : [`${counted(found.problem_count, "problem")} found. `, statement];
    find("verified").replaceChildren(element("div", { class: `box ${good ? "good" : "refused"}` },
      element("p", {}, element("strong", {}, lead[0]), ...lead.slice(1)),
      element("p", {}, verdict),
      ...(problems.length ? [element("ul", {}, ...problems)] : [])));
  }

  /** Shows why the verification failed. */
  failed(why) {
    find("verified").replaceChildren(element("p", { class: "box partly" }, `Not verified: ${sentence(why)}`));
  }
}

function makeRow(arm) {
  const cells = ["right number", "right number", "right number"].map((kind) => element("td", { class: kind }));
  const zone = svgElement("rect", { class: "zone", y: 2, height: 16, rx: 2 });
  const zero = svgElement("line", { class: "zero", x1: "50%", x2: "50%", y1: 0, y2: 20 });
  const dot = svgElement("circle", { class: "point", cy: 10, r: 4 });
  const picture = svgElement("svg", { class: "deviation", "aria-hidden": "true" }, zone, zero, dot);
  const name = element("span", { class: "clamp", title: escapeName(arm) }, element("bdi", {}, escapeName(arm)));
  const node = element("tr", {}, element("th", { scope: "row" }, name), ...cells, element("td", {}, picture));
  const update = ({ chosen, expected, z, limit }) => {
    setText(cells[0], count(chosen));
    setText(cells[1], number(expected, expected < 1000 ? 1 : 0));
    setText(cells[2], deviations(z));
    const at = (value) => 50 + 48 * Math.min(Math.max(value / (AXIS_REACH * limit), -1), 1);
    setAttributes(zone, { x: `${at(-limit)}%`, width: `${at(limit) - at(-limit)}%` });
    setAttributes(dot, z === null ? { visibility: "hidden" } : { visibility: null, cx: `${at(z)}%` });
    setAttributes(picture, { class: z !== null && Math.abs(z) > limit ? "deviation beyond" : "deviation" });
  };
  return { node, update };
}
