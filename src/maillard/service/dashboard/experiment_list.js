// The list of experiments.

import { CodeExamples, codeExamples } from "./code_examples.js";
import { Rows, element, find, setAttributes, setText, show, svgElement } from "./dom.js";
import { poll } from "./poller.js";
import { count, counted, fullDate, escapeName, policyText } from "./text.js";

const POLL_INTERVAL_MS = 5000; // milliseconds

export class Listing {
  #service;
  #code = new CodeExamples({ create: "code-create", decide: "code-decide", reward: "code-reward" });
  #rows = new Rows(find("list"), makeCard);
  #again = () => {};

  constructor(service) {
    this.#service = service;
    find("list-archived").addEventListener("change", () => this.#again());
  }

  clear() {
    this.#rows.clear();
  }

  /** Shows the list and updates it until `signal` aborts. */
  open({ signal, admin, open, reached, missed }) {
    this.#code.update(codeExamples("home", !open));
    show(admin, find("new-link"), find("empty-new"), find("empty-or"));
    const step = async (ends) => {
      const archived = find("list-archived").checked;
      const { experiments, complete } = await this.#service.get(`v1/experiments${archived ? "?archived=true" : ""}`, ends);
      if (ends.aborted) return;
      this.#rows.update(experiments.map((each) => ({ ...each, complete })), (each) => each.experiment);
      show(!experiments.length && !archived, find("list-empty"));
    };
    this.#again = poll(step, { signal, reached, missed, every: POLL_INTERVAL_MS });
  }
}

function makeCard(key) {
  const href = `#/experiments/${encodeURIComponent(key)}`;
  const link = element("a", { class: "name", href }, element("bdi", {}, escapeName(key)));
  const status = element("span", { class: "badge" });
  const policy = element("code", { class: "policy" });
  const details = element("span", {});
  const leader = element("bdi", {});
  const leads = element("p", { class: "leader" }, element("strong", {}, leader), " leads");
  const bars = svgElement("svg", { class: "hours", viewBox: "0 0 96 24", preserveAspectRatio: "none", "aria-hidden": "true" });
  const [total, recent] = [element("span", { class: "number" }), element("span", { class: "number note" })];
  const node = element("li", {},
    element("div", {}, element("h2", {}, link), leads, element("p", { class: "metadata" }, status, policy, details)),
    element("div", { class: "traffic-summary" }, bars, element("p", {}, total, recent)));
  const update = (experiment) => {
    const { decisions, traffic = [], complete } = experiment;
    setText(status, experiment.status);
    setAttributes(status, { "data-status": experiment.status });
    setText(policy, policyText(experiment.policy));
    const arms = experiment.arms.length ? counted(experiment.arms.length, "arm") : "arms differ at every decision";
    setText(details, `${arms}, created ${fullDate(new Date(experiment.created_at))}`);
    setText(leader, escapeName(experiment.leader ?? ""));
    show(experiment.leader !== null, leads); // null also if it cannot be told from the rewards so far
    // After a restart, the service has not counted the whole log yet.
    const least = complete ? "" : "at least ";
    setText(total, decisions || !complete ? least + counted(decisions, "decision") : "no decisions yet");
    const today = traffic.reduce((sum, hour) => sum + hour, 0);
    setText(recent, decisions ? `${count(today)} in the last ${traffic.length} hours` : "");
    drawHours(bars, traffic);
  };
  return { node, update };
}

/** A bar for each hour, the present one last. */
function drawHours(svg, traffic) {
  const most = Math.max(...traffic);
  setAttributes(svg, { class: most > 0 ? "hours" : "hours none" });
  const width = 96 / traffic.length;
  svg.replaceChildren(...traffic.map((hour, index) => {
    const height = hour ? Math.max((23 * hour) / most, 1.5) : 0.5;
    return svgElement("rect", { x: width * index + 0.5, y: 24 - height, width: width - 1, height });
  }));
}
