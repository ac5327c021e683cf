// The table of arms: traffic, mean reward with its interval on one axis, and the current probability.

import { stylesOf } from "./arm_styles.js";
import { Rows, svgElement, element, find, setAttributes, setText, show } from "./dom.js";
import { axis, place } from "./scales.js";
import { count, counted, decimalsFor, level, moment, number, percent, sentence, escapeName } from "./text.js";

export const MAX_ROWS = 25;

export class Arms {
  #rows = new Rows(find("arms"), (arm) => this.#makeRow(arm));
  #retire;
  #all = false;
  #last = null;
  #axis = null;
  #decimals = 3;

  /** Calls `retire(arm)` when the user clicks on Retire. */
  constructor(retire) {
    this.#retire = retire;
    find("arms-all").addEventListener("click", () => {
      this.#all = true;
      this.update(this.#last);
      find("title-experiment").focus();
    });
  }

  clear() {
    this.#all = false;
    this.#last = null;
    this.#rows.clear();
  }

  /** Shows {state, activity, reward, admin}. */
  update(seen) {
    this.#last = seen;
    const { state, activity, reward, admin } = seen;
    const traffic = new Map(activity.arms.map((each) => [each.arm, each]));
    const windows = reward.window !== null;
    const retirable = admin && state.arms.filter((each) => each.active).length > 1;
    const styles = stylesOf(state.arms.map((each) => each.arm));
    const items = state.arms.map((each, index) => (
      { ...each, ...styles[index], traffic: traffic.get(each.arm), retirable, windows }));
    const chosen = this.#chosen(items);
    this.#setAxis(chosen, reward);
    this.#rows.update(chosen, (item) => item.arm);

    show(chosen.length < items.length, find("arms-more"));
    setText(find("arms-more-text"), `Showing the ${MAX_ROWS} arms with the highest probability of ${count(items.length)}.`);
    show(items.length > 0, find("arms").closest("table"));
    show(windows, find("arms-open"));
    setText(find("arms-final"), windows ? "Final rewards" : "Rewards");
    const parts = windows ? [`${counted(state.pending, "decision is", "decisions are")} pending (the reward may still arrive)`] : [];
    if (state.next_close) parts.push(`the next window closes at ${moment(new Date(state.next_close), true)}`);
    if (state.units) parts.push(`the decisions are of ${counted(state.units, "unit", "different units")}, such as users`);
    const text = parts.length ? sentence(parts.join("; ")) : "";
    setText(find("arms-pending"), [text, state.note ?? ""].filter(Boolean).join(" "));
    const { confidence, kind, refusal } = state.interval;
    show(Boolean(refusal), find("arms-refusal"));
    setText(find("arms-refusal"), refusal ? sentence(refusal) : "");
    setText(find("arms-mean"), refusal ? "Mean reward" : `Mean reward, ${level(confidence)} interval`);
    show(!refusal, find("arms-kind"));
    setText(find("arms-kind"), refusal ? "" : sentence(kind));
  }

  #chosen(items) {
    // In the order of their declaration, active arms first; of very many arms, those with the highest probability.
    const ordered = [...items.filter((item) => item.active), ...items.filter((item) => !item.active)];
    if (this.#all || ordered.length <= MAX_ROWS) return ordered;
    const likeliest = [...items].sort((one, other) => other.probability - one.probability).slice(0, MAX_ROWS);
    const kept = new Set(likeliest);
    return ordered.filter((item) => kept.has(item));
  }

  #setAxis(items, reward) {
    const ends = items.flatMap((item) => [item.mean, item.lower, item.upper]).filter((value) => value !== null);
    const bounds = [reward.low ?? -Infinity, reward.high ?? Infinity];
    this.#axis = ends.length ? axis(ends, 4, bounds) : null;
    this.#decimals = decimalsFor(items.map((item) => (item.upper - item.lower) / 2));
    const labels = (this.#axis?.marks ?? []).map((value) => {
      const at = place(value, this.#axis);
      const anchor = at === 0 ? "start" : at === 1 ? "end" : "middle";
      return svgElement("text", { x: `${100 * at}%`, y: 12, "text-anchor": anchor }, number(value, this.#axis.decimals));
    });
    find("arms-axis").replaceChildren(...labels);
  }

  #makeRow(arm) {
    const name = element("span", { class: "clamp", title: escapeName(arm) }, element("bdi", {}, escapeName(arm)));
    const retired = element("span", { class: "badge", hidden: "" }, "retired");
    const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
    const bar = element("span", { class: "fill" });
    const [traffic, mean, range] = ["number", "number", "range"].map((kind) => element("span", { class: kind }));
    const grid = svgElement("g", { class: "grid" });
    const line = svgElement("line", { class: "interval", y1: 14, y2: 14 });
    const dot = svgElement("circle", { class: "point", cy: 14, r: 4.5 });
    const picture = svgElement("svg", { class: "forest", "aria-hidden": "true" }, grid, line, dot);
    const numbers = ["Probability now", "Decisions", "Rewards", "Pending"].map((label) =>
      element("td", { role: "cell", class: "right number", "data-label": label }));
    const label = `Retire ${escapeName(arm)}`;
    const button = element("button", { type: "button", class: "quiet small", "aria-label": label }, "Retire…");
    button.addEventListener("click", () => this.#retire(arm));
    const node = element("tr", { role: "row" },
      element("th", { role: "rowheader", scope: "row" }, element("span", { class: "arm-name" }, swatch, name, retired)),
      element("td", { role: "cell", class: "traffic" },
        element("span", { class: "bar", "aria-hidden": "true" }, bar), traffic),
      element("td", { role: "cell", class: "mean" }, picture, element("span", { class: "figures" }, mean, range)),
      ...numbers,
      element("td", { role: "cell", class: "right change" }, button));

    const update = (item) => {
      setAttributes(swatch, { class: `swatch ${item.colour}` });
      setAttributes(node, { class: item.active ? null : "retired" });
      show(!item.active, retired);
      show(item.active && item.retirable, button);
      const part = item.traffic?.fraction ?? 0;
      bar.style.setProperty("inline-size", `${100 * part}%`);
      setText(traffic, percent(part));
      const nothing = item.pending ? "no final reward yet" : "no reward yet";
      setText(mean, item.mean === null ? nothing : number(item.mean, this.#decimals));
      setAttributes(mean, { class: item.mean === null ? "nothing" : "number" });
      const known = item.lower !== null && item.mean !== null;
      setText(range, known ? `${number(item.lower, this.#decimals)} to ${number(item.upper, this.#decimals)}` : "");
      this.#draw(item, { grid, line, dot });
      setText(numbers[0], item.active && item.probability !== null ? percent(item.probability, item.log_probability) : "–");
      setText(numbers[1], count(item.traffic?.decisions ?? 0));
      setText(numbers[2], count(item.final));
      setText(numbers[3], count(item.pending));
      show(item.windows, numbers[3]);
    };
    return { node, update };
  }

  #draw(item, { grid, line, dot }) {
    const at = (value) => `${100 * place(value, this.#axis)}%`;
    const marks = this.#axis?.marks ?? [];
    while (grid.childElementCount > marks.length) grid.lastElementChild.remove();
    marks.forEach((value, index) => {
      const rule = grid.children[index] ?? grid.appendChild(svgElement("line", { y1: 0, y2: "100%" }));
      setAttributes(rule, { x1: at(value), x2: at(value) });
    });
    const known = item.lower !== null && item.upper !== null && this.#axis !== null;
    setAttributes(line, { visibility: known ? null : "hidden", ...(known && { x1: at(item.lower), x2: at(item.upper) }) });
    const seen = item.mean !== null && this.#axis !== null;
    setAttributes(dot, { visibility: seen ? null : "hidden", ...(seen && { cx: at(item.mean) }) });
  }
}
