// The chart of reward over time: means per interval, recent or cumulative, for all arms and for each arm.

import { stylesOf } from "./arm_styles.js";
import { Rows, svgElement, element, find, setAttributes, setText, show } from "./dom.js";
import { axis, moments, place } from "./scales.js";
import { count, decimalsFor, duration, moment, number, shortDate, escapeName, timeOfDay } from "./text.js";

const MAX_LINES = 10;
const ALL = ""; // not a valid name of an arm
const EDGE = { top: 10, right: 14, bottom: 26 };
const WINDOW = 10; // intervals that count as recent, at least
const MIN_RECENT_REWARDS = 50; // rewards, so that the line of a rarely chosen arm is readable
const MIN_FIRST_REWARDS = 10; // rewards at the first point of a line, if it has as many
const TICK_SPACING = 72; // pixels between marks on the time axis

export class Chart {
  #svg = find("chart");
  #grid = svgElement("g", { class: "grid" });
  #cursor = svgElement("line", { class: "cursor", visibility: "hidden" });
  #when = svgElement("text", { y: EDGE.top + 10 });
  #paths = svgElement("g", { class: "lines" });
  #dots = svgElement("g", { class: "dots" });
  #lines = new Rows(this.#paths, () => makeLine());
  #legend = new Rows(find("legend"), (arm) => this.#makeEntry(arm));
  #numbers = new Rows(find("chart-rows"), () => makeNumbers());
  #hidden = new Set();
  #mode = "window";
  #series = null;
  #shape = null;
  #bright = null;
  #pointed = null;

  constructor() {
    this.#svg.append(this.#grid, this.#cursor, this.#paths, this.#dots, this.#when);
    find("chart-mode").addEventListener("change", (event) => {
      this.#mode = event.target.value;
      this.#draw();
    });
    new ResizeObserver(() => this.#draw()).observe(this.#svg);
    this.#svg.addEventListener("pointermove", (event) => this.#point(event));
    this.#svg.addEventListener("pointerleave", () => this.#point(null));
    find("chart-numbers").addEventListener("toggle", () => this.#draw());
  }

  clear() {
    this.#series = null;
    this.#hidden.clear();
    this.#bright = this.#pointed = null;
    this.#lines.clear();
    this.#legend.clear();
    this.#numbers.clear();
    show(true, find("chart-nothing"));
    show(false, find("chart-content"), find("chart-mode"));
  }

  /** Shows the series of an Activity; `arms` are the arms of the experiment, in order. */
  update(series, arms) {
    const points = series.points.filter((point) => point.rewards > 0);
    show(!points.length, find("chart-nothing"));
    show(points.length, find("chart-content"), find("chart-mode"));
    const rewards = (arm) => points.reduce((sum, point) => sum + (point.arms[arm]?.rewards ?? 0), 0);
    const styles = stylesOf(arms);
    const styledArms = arms
      .map((arm, index) => ({ arm, ...styles[index], rewards: rewards(arm) }))
      .filter((each) => each.rewards);
    const most = styledArms.toSorted((one, other) => other.rewards - one.rewards).slice(0, MAX_LINES);
    const shownArms = styledArms.filter((each) => most.includes(each));
    setText(find("chart-bucket"), `Each ${duration(series.bucket)}`);
    this.#series = {
      times: points.map((point) => Date.parse(point.at) / 1000),
      bucket: series.bucket,
      note: [
        shownArms.length < styledArms.length ? ` Only the ${MAX_LINES} arms with the most rewards are shown.` : "",
        series.until ? ` Decisions since ${moment(new Date(series.until), true)} are left out: their windows are open.` : "",
      ].join(""),
      lines: [
        { arm: ALL, colour: "colour-all", dashes: null, cells: points },
        ...shownArms.map((each) => ({ ...each, cells: points.map((point) => point.arms[each.arm]) })),
      ],
    };
    this.#draw();
  }

  /** The values of a line: the means per interval, recent or cumulative. */
  #values(cells, times, bucket) {
    if (this.#mode === "bucket") return cells.map((cell) => (cell?.rewards ? cell.mean : null));
    const sizes = cells.map((cell) => cell?.rewards ?? 0);
    const reach = this.#mode === "window" ? (WINDOW - 0.5) * bucket : Infinity;
    const fewest = Math.min(MIN_FIRST_REWARDS, sizes.reduce((sum, size) => sum + size, 0));
    let [first, rewards, sum] = [0, 0, 0];
    return cells.map((cell, index) => {
      if (sizes[index]) [rewards, sum] = [rewards + sizes[index], sum + sizes[index] * cell.mean];
      for (; times[index] - times[first] > reach && rewards - sizes[first] >= MIN_RECENT_REWARDS; first += 1) {
        if (sizes[first]) [rewards, sum] = [rewards - sizes[first], sum - sizes[first] * cells[first].mean];
      }
      return rewards >= fewest && rewards > 0 ? sum / rewards : null;
    });
  }

  #draw() {
    const width = this.#svg.clientWidth;
    if (!this.#series?.times.length || !width) return;
    const height = width < 520 ? 210 : 280;
    const { times, bucket, note } = this.#series;
    const means = {
      bucket: `in an interval of ${duration(bucket)}`,
      window: `of the last ${duration(WINDOW * bucket)}, extended until it includes ${MIN_RECENT_REWARDS} rewards`,
      running: "up to that time",
    };
    setText(find("chart-note"), `Each point is the mean of the rewards ${means[this.#mode]}.${note}`);
    const lines = this.#series.lines.map((line) => ({ ...line, values: this.#values(line.cells, times, bucket) }));
    const seen = lines.filter((line) => !this.#hidden.has(line.arm));
    const values = (seen.length ? seen : lines).flatMap((line) => line.values.filter((value) => value !== null));
    const y = axis(values, height < 250 ? 4 : 5);
    const left = 12 + 7 * Math.max(...y.marks.map((value) => number(value, y.decimals).length));
    const x = { low: times[0], high: Math.max(times.at(-1), times[0] + bucket) };
    const across = (time) => left + place(time, x) * (width - left - EDGE.right);
    const down = (value) => EDGE.top + (1 - place(value, y)) * (height - EDGE.top - EDGE.bottom);
    setAttributes(this.#svg, { height, viewBox: `0 0 ${width} ${height}` });
    this.#shape = { lines, x, y, across, down, width, height, left };
    this.#drawGrid();
    const paths = seen.map((line) => ({ ...line, times, across, down, dim: this.#dims(line.arm) }));
    this.#lines.update(paths.toReversed(), (line) => line.arm); // the mean of all arms on top
    this.#read();
    const last = lines[0].values.at(-1);
    const [from, to] = [times[0], times.at(-1)].map((time) => moment(new Date(1000 * time)));
    setText(find("chart-summary"), `Mean reward from ${from} to ${to}; the last value is ${number(last, 3)}.`);
    if (find("chart-numbers").open) {
      const rows = this.#series.lines[0].cells.map((cell, index) => ({ ...cell, mean: lines[0].values[index] }));
      this.#numbers.update(rows.toReversed(), (cell) => cell.at);
    }
  }

  #drawGrid() {
    const { x, y, across, down, width, height, left } = this.#shape;
    const parts = y.marks.flatMap((value) => [
      svgElement("line", { x1: left, x2: width - EDGE.right, y1: down(value), y2: down(value) }),
      svgElement("text", { x: left - 8, y: down(value) + 4, "text-anchor": "end" }, number(value, y.decimals)),
    ]);
    const { marks, step } = moments(x.low, x.high, Math.max(Math.floor((width - left) / TICK_SPACING), 2));
    for (const at of marks) {
      const date = new Date(1000 * at);
      const days = step >= 86_400 || (step >= 3600 && date.getHours() === 0);
      const text = days ? shortDate(date) : timeOfDay(date, step < 60);
      const near = Math.min(Math.max(across(at), left + 14), width - 28);
      const [x1, y1] = [across(at), height - EDGE.bottom];
      parts.push(svgElement("line", { class: "tick", x1, x2: x1, y1, y2: y1 + 4 }));
      parts.push(svgElement("text", { x: near, y: height - 6, "text-anchor": "middle" }, text));
    }
    this.#grid.replaceChildren(...parts);
  }

  #dims(arm) {
    return this.#bright !== null && this.#bright !== arm;
  }

  #point(event) {
    if (!this.#shape || !this.#series) return;
    const { times } = this.#series;
    const x = event && event.clientX - this.#svg.getBoundingClientRect().left;
    const distance = (time) => Math.abs(this.#shape.across(time) - x);
    const nearer = (best, time, index) => (distance(time) < distance(times[best]) ? index : best);
    this.#pointed = event && times.reduce(nearer, 0);
    this.#read();
  }

  /** Shows the values at the pointer in the legend, or the last value of each line. */
  #read() {
    const { lines, across, down, height } = this.#shape;
    const { times, bucket } = this.#series;
    const at = this.#pointed !== null && this.#pointed < times.length ? this.#pointed : null;
    const spread = lines.flatMap((line) => line.values.filter((value) => value !== null));
    const decimals = decimalsFor([(Math.max(...spread) - Math.min(...spread)) / 20]);
    const entries = lines.map((line) => {
      const value = at === null ? line.values.findLast((each) => each !== null) : line.values[at];
      const cell = at === null ? null : line.cells[at];
      const weight = cell?.rewards && this.#mode === "bucket" ? ` of ${count(cell.rewards)}` : "";
      return { ...line, off: this.#hidden.has(line.arm), text: value == null ? "–" : number(value, decimals) + weight };
    });
    this.#legend.update(entries, (entry) => entry.arm);
    const dots = at === null ? [] : lines.filter((line) => line.values[at] !== null && !this.#hidden.has(line.arm));
    this.#dots.replaceChildren(...dots.map((line) =>
      svgElement("circle", { class: line.colour, cx: across(times[at]), cy: down(line.values[at]), r: 4 })));
    const where = at === null ? 0 : across(times[at]);
    const hidden = at === null ? "hidden" : null;
    setAttributes(this.#cursor, { visibility: hidden, x1: where, x2: where, y1: EDGE.top, y2: height - EDGE.bottom });
    const left = where > this.#shape.width / 2;
    setAttributes(this.#when, { visibility: hidden, x: where, dx: left ? -8 : 8, "text-anchor": left ? "end" : "start" });
    setText(this.#when, at === null ? "" : moment(new Date(1000 * times[at]), bucket < 60));
  }

  #makeEntry(arm) {
    const stroke = svgElement("line", { x1: 1, x2: 23, y1: 5, y2: 5 });
    const title = arm === ALL ? "All arms" : escapeName(arm);
    const name = element("bdi", { class: "label" }, title);
    const value = element("span", { class: "number" });
    const key = svgElement("svg", { class: "key", width: 24, height: 10, "aria-hidden": "true" }, stroke);
    const button = element("button", { type: "button", "aria-pressed": "true", title }, key, name, value);
    const light = (whether) => {
      this.#bright = whether ? arm : null;
      this.#draw();
    };
    button.addEventListener("click", () => {
      if (!this.#hidden.delete(arm)) this.#hidden.add(arm);
      this.#draw();
    });
    button.addEventListener("pointerenter", () => light(true));
    button.addEventListener("pointerleave", () => light(false));
    button.addEventListener("focus", () => light(button.matches(":focus-visible")));
    button.addEventListener("blur", () => light(false));
    const update = (entry) => {
      setAttributes(stroke, { class: entry.colour, "stroke-dasharray": entry.dashes });
      setAttributes(button, { "aria-pressed": !entry.off });
      setText(value, entry.text);
    };
    return { node: element("li", {}, button), update };
  }
}

function makeLine() {
  const node = svgElement("path", {});
  const update = ({ colour, dashes, values, times, across, down, dim }) => {
    const known = times.map((time, index) => [time, values[index]]).filter(([, value]) => value !== null);
    const steps = known.map(([time, value]) => `${across(time).toFixed(1)} ${down(value).toFixed(1)}`);
    // A line of length zero with round ends is a dot.
    const d = steps.length === 1 ? `M${steps[0]}h0` : steps.length ? `M${steps.join("L")}` : "";
    setAttributes(node, { d, class: dim ? `${colour} dim` : colour, "stroke-dasharray": dashes });
  };
  return { node, update };
}

function makeNumbers() {
  const cells = [element("th", { scope: "row" }), element("td", { class: "right" }), element("td", { class: "right" })];
  const update = (cell) => {
    setText(cells[0], moment(new Date(cell.at), true));
    setText(cells[1], count(cell.rewards));
    setText(cells[2], number(cell.mean, 4));
  };
  return { node: element("tr", {}, ...cells), update };
}
