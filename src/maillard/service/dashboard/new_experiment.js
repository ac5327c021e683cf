// The form that creates an experiment.

import { find, setAttributes, setText, show } from "./dom.js";
import { sentence } from "./text.js";

// The input of each field in the path of an error.
const FIELDS = {
  experiment: "new-name", arms: "new-arms", policy: "new-policy", low: "new-low", high: "new-high",
  window: "new-window", default: "new-default", combine: "new-combine", learn: "new-learn",
  binary: "new-binary",
};

export class NewExperimentForm {
  #service;
  #created;
  #failed;
  #sending = false;

  /** Calls `created(experiment)` or `failed(error)`. */
  constructor(service, { created, failed }) {
    this.#service = service;
    this.#created = created;
    this.#failed = failed;
    find("form-new").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
  }

  /** Resets the form. */
  clear() {
    find("form-new").reset();
    this.#clearErrors();
  }

  async #send() {
    if (this.#sending) return;
    this.#clearErrors();
    const body = this.#read();
    if (!body) return;
    this.#sending = true;
    try {
      this.#created((await this.#service.request("POST", "v1/experiments", { body })).data);
    } catch (error) {
      if ([409, 422].includes(error.status)) this.#explain(error);
      else this.#failed(error);
    } finally {
      this.#sending = false;
    }
  }

  /** The request body, or null if an input is missing or invalid, which is shown. */
  #read() {
    const value = (name) => find(FIELDS[name]).value.trim();
    // Several lines: one arm per line, and commas belong to its name. One line: commas separate the arms.
    const lines = find("new-arms").value.split("\n").map((line) => line.trim()).filter(Boolean);
    const arms = lines.length === 1 ? lines[0].split(",").map((name) => name.trim()).filter(Boolean) : lines;
    const wrong = [];
    if (!value("experiment")) wrong.push(["experiment", "An experiment needs a name."]);
    if (!arms.length) wrong.push(["arms", "Enter at least one arm, one per line or separated by commas."]);
    const reward = { combine: value("combine"), binary: find(FIELDS.binary).checked };
    if (value("learn")) reward.learn = value("learn");
    const window = value("window");
    if (window) {
      reward.window = Number(window) * Number(find("new-window-unit").value); // in seconds
      if (!(reward.window > 0 && reward.window < Infinity)) {
        wrong.push(["window", `“${window}” is not a length of time; enter a number such as 90, and choose its unit.`]);
      }
    }
    for (const name of ["low", "high", "default"]) {
      const text = value(name);
      if (!text) continue;
      reward[name] = Number(text);
      if (!Number.isFinite(reward[name])) wrong.push([name, `“${text}” is not a number; enter one such as 0.5.`]);
    }
    for (const [name, text] of wrong) this.#wrong(name, text);
    if (wrong.length) {
      find(FIELDS[wrong[0][0]]).focus();
      return null;
    }
    const policy = value("policy") || null; // the service has a default
    return { experiment: value("experiment"), arms, policy, reward, sticky: find("new-sticky").checked };
  }

  #explain(error) {
    const parts = (error.path ?? "").split(/[.[\]$]+/);
    const name = error.code === "exists" ? "experiment" : parts.findLast((part) => part in FIELDS);
    if (name) {
      this.#wrong(name, sentence(error.message));
      find(FIELDS[name]).focus();
    } else {
      setText(find("new-error"), sentence(error.message));
      show(true, find("new-error"));
    }
  }

  #wrong(name, text) {
    const field = find(FIELDS[name]);
    setAttributes(field, { "aria-invalid": "true" });
    setText(find(`${field.id}-wrong`), text);
  }

  #clearErrors() {
    show(false, find("new-error"));
    for (const id of Object.values(FIELDS)) {
      setAttributes(find(id), { "aria-invalid": null });
      setText(find(`${id}-wrong`), "");
    }
  }
}
