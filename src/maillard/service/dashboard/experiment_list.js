// The list of experiments.

import { commands } from "./curl_commands.js";
import { Rows, element, find, setAttributes, setText, show } from "./dom.js";
import { poll } from "./poller.js";
import { counted, fullDate, escapeName } from "./text.js";

const POLL_INTERVAL_MS = 5000; // milliseconds

export class Listing {
  #service;
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
    const lines = commands("home", !open);
    setText(find("curl-create"), lines.create);
    setText(find("curl-first"), lines.decide);
    setText(find("curl-outcome"), lines.reward);
    show(admin, find("new-link"), find("empty-new"), find("empty-or"));
    const step = async (ends) => {
      const archived = find("list-archived").checked;
      const { experiments } = await this.#service.get(`v1/experiments${archived ? "?archived=true" : ""}`, ends);
      if (ends.aborted) return;
      this.#rows.update(experiments, (experiment) => experiment.experiment);
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
  const node = element("li", {}, element("h2", {}, link), element("p", { class: "metadata" }, status, policy, details));
  const update = (experiment) => {
    setText(status, experiment.status);
    setAttributes(status, { "data-status": experiment.status });
    setText(policy, escapeName(experiment.policy));
    setText(details, `${counted(experiment.arms.length, "arm")}, since ${fullDate(new Date(experiment.created_at))}`);
  };
  return { node, update };
}
