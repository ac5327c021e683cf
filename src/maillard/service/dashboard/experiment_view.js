// The view of one experiment, updated every two seconds.

import { experimentPath } from "./api.js";
import { Arms } from "./arms.js";
import { Audit } from "./audit.js";
import { AdminActions } from "./admin_actions.js";
import { Chart } from "./chart.js";
import { Contexts } from "./contexts.js";
import { CodeExamples, codeExamples, exampleContext } from "./code_examples.js";
import { element, find, setAttributes, setText, show } from "./dom.js";
import { poll } from "./poller.js";
import { Verdict } from "./verdict.js";
import { WhatIf } from "./what_if.js";
import { count, decimalsFor, fullDate, number, escapeName, policyText, times } from "./text.js";

const TILES = ["tile-decisions", "tile-rewards", "tile-mean", "tile-verdict"];
const TEXTS = [
  "title-experiment", "experiment-status", "experiment-policy", "experiment-changes", "experiment-since", "audit-verdict", "audit-meaning",
];

export class ExperimentView {
  #service;
  #changes;
  #whatIf;
  #audit = new Audit();
  #chart = new Chart();
  #code = new CodeExamples({ first: "code-first", reward: "code-first-reward" });
  #verdict = new Verdict();
  #arms;
  #contexts;
  #subject = null;
  #experiment = null;
  #shownFor = "";
  #again = () => {};

  constructor(service) {
    this.#service = service;
    this.#changes = new AdminActions(service);
    this.#whatIf = new WhatIf(service);
    this.#contexts = new Contexts(service, (keys) => this.#whatIf.offerKeys(keys));
    this.#arms = new Arms((arm) => this.#changes.retire(arm));
    find("verify").addEventListener("click", () => this.#verify());
    find("download").addEventListener("click", () => this.#download());
  }

  /**
   * Shows an experiment and follows it, until `signal` aborts: {key, signal, admin, open, showMessage, failed, reached, missed}.
   */
  open(subject) {
    this.#subject = subject;
    const { key, signal, failed } = subject;
    this.clear();
    setText(find("title-experiment"), escapeName(key));
    this.#whatIf.clear({ key, signal, failed });
    this.#contexts.clear({ key, signal });
    const changed = (experiment, message) => this.#changed(experiment, message);
    this.#changes.clear({ key, signal, failed, changed, experiment: () => this.#experiment });
    this.#again = poll((ends) => this.#step(ends), subject);
  }

  /** Removes all data of the experiment from the page. */
  clear() {
    this.#experiment = null;
    this.#shownFor = "";
    for (const id of TILES) setText(find(id), "–");
    for (const id of ["tile-light", "audit-light"]) setAttributes(find(id), { "data-light": "unknown" });
    for (const id of TEXTS) setText(find(id), "");
    show(false, find("first-decision"), ...document.querySelectorAll("#view-experiment .needs-admin"));
    for (const part of [this.#verdict, this.#arms, this.#chart, this.#contexts, this.#audit, this.#whatIf, this.#changes]) {
      part.clear(null);
    }
  }

  async #step(ends) {
    const { key } = this.#subject;
    const [state, activity] = await Promise.all(
      ["/state", "/activity"].map((rest) => this.#service.get(experimentPath(key, rest), ends)));
    // The configuration is requested only when the state shows that it has changed.
    const arms = state.arms.map((each) => [each.arm, each.active]);
    const configuration = JSON.stringify([state.status, state.policy_version, state.epoch, arms]);
    if (configuration !== this.#shownFor) this.#experiment = await this.#service.get(experimentPath(key), ends);
    if (ends.aborted) return;
    this.#shownFor = configuration;
    this.#show(state, activity);
  }

  #show(state, activity) {
    const { admin } = this.#subject;
    const experiment = this.#experiment;
    const changeable = admin && state.status !== "archived";
    show(changeable, ...document.querySelectorAll("#view-experiment .needs-admin"));
    show(changeable && state.arms.length > 0, find("add-arm")); // without arms, every decision has its own
    setText(find("pause"), state.status === "paused" ? "Resume" : "Pause");
    setText(find("experiment-status"), state.status);
    setAttributes(find("experiment-status"), { "data-status": state.status });
    setText(find("experiment-policy"), policyText(state.policy));
    const changes = state.policy_version > 1 ? `, changed ${times(state.policy_version - 1)}` : "";
    const resets = state.epoch > 1 ? `, reset ${times(state.epoch - 1)}` : "";
    setText(find("experiment-changes"), changes);
    setText(find("experiment-since"), `created ${fullDate(new Date(experiment.created_at))}${resets}`);

    const hints = experiment.hints ?? [];
    show(hints.length > 0, find("experiment-hints"));
    setText(find("experiment-hints"), hints.join(" "));

    const final = state.arms.reduce((sum, arm) => sum + arm.final, 0);
    const total = state.arms.reduce((sum, arm) => sum + arm.final * (arm.mean ?? 0), 0);
    // A reset clears the means but not the counts.
    const [countSuffix, meanSuffix] = state.epoch > 1 ? [" since the start", " since the reset"] : ["", ""];
    setText(find("name-decisions"), `Decisions${countSuffix}`);
    setText(find("name-rewards"), `Rewards${countSuffix}`);
    setText(find("name-mean"), `Mean reward${meanSuffix}`);
    setText(find("tile-decisions"), count(activity.decisions));
    setText(find("tile-rewards"), count(activity.rewards));
    const mean = final ? total / final : NaN;
    setText(find("tile-mean"), number(mean, decimalsFor([Math.max(Math.abs(mean), 1e-9) / 10])));
    this.#code.update(codeExamples(this.#subject.key, !this.#subject.open, exampleContext(experiment)));
    show(activity.decisions === 0 && activity.complete && state.status === "running", find("first-decision"));

    this.#verdict.update(state);
    this.#arms.update({ state, activity, reward: experiment.reward, admin: changeable });
    this.#chart.update(activity.series, state.arms.map((each) => each.arm));
    this.#audit.update(activity);
    this.#whatIf.update(state.arms.map((each) => each.arm), experiment.reward);
    this.#contexts.update(experiment);
  }

  #changed(experiment, message) {
    if (experiment) this.#experiment = experiment;
    this.#subject.showMessage(message);
    this.#again();
  }

  async #verify() {
    const { key, signal, failed } = this.#subject;
    await this.#withProgress("verify", "Verifying…", async () => {
      const { data } = await this.#service.request("POST", experimentPath(key, ":verify"), { signal, timeout: null });
      if (!signal.aborted) this.#audit.verified(data);
    }, (error) => (error.status === 401 ? failed(error) : this.#audit.failed(error.message)));
  }

  async #download() {
    const { key, signal, failed } = this.#subject;
    await this.#withProgress("download", "Preparing…", async () => {
      const file = await this.#service.download(experimentPath(key, "/export"), signal);
      if (signal.aborted) return;
      const address = URL.createObjectURL(file);
      const name = key.replace(/[^\p{L}\p{N}._-]+/gu, "-").slice(0, 100);
      element("a", { href: address, download: `${name}.parquet` }).click();
      // By then the browser has opened the file.
      setTimeout(() => URL.revokeObjectURL(address), 60_000);
    }, failed);
  }

  /** Runs a slow action. Its button shows the progress, keeps the focus and cannot be pressed twice. */
  async #withProgress(id, message, action, failed) {
    const button = find(id);
    if (button.getAttribute("aria-disabled")) return;
    const { signal } = this.#subject;
    const before = button.textContent;
    setAttributes(button, { "aria-disabled": "true" });
    setText(button, message);
    try {
      await action();
    } catch (error) {
      if (!signal.aborted) failed(error);
    } finally {
      setAttributes(button, { "aria-disabled": null });
      setText(button, before);
    }
  }
}
