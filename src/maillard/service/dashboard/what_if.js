// The "What if?" form: evaluates an arm or a policy on the log.

import { estimateNode, refusalNode } from "./what_if_results.js";
import { experimentPath } from "./api.js";
import { element, find, setAttributes, setText } from "./dom.js";
import { sentence, escapeName } from "./text.js";

const MAX_RESULTS = 6;
const MAX_OPTIONS = 1000;
const MIX = "dist:red=0.7,blue=0.3"; // an example

export class WhatIf {
  #service;
  #subject = null;
  #names = "";
  #reward = {};
  #running = false;

  constructor(service) {
    this.#service = service;
    find("form-evaluate").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#evaluate();
    });
    // Choosing an arm or typing a policy also selects its radio button.
    find("target-arm").addEventListener("change", () => (find("target-type-arm").checked = true));
    find("target-other").addEventListener("input", () => (find("target-type-other").checked = true));
  }

  /** Resets the form for an experiment; `failed(error)` handles errors that are not about the input. */
  clear(subject) {
    this.#subject = subject;
    this.#names = "";
    find("results").replaceChildren();
    find("target-arm").replaceChildren();
    find("target-against").replaceChildren();
    setText(find("target-example"), MIX);
    find("target-other").value = "";
    find("target-type-arm").checked = true;
    this.#wrong("");
  }

  /** Lists these arms; `reward` is the reward rule of the experiment. */
  update(arms, reward) {
    this.#reward = reward;
    const names = JSON.stringify(arms);
    if (names === this.#names) return;
    this.#names = names;
    const select = find("target-arm");
    const chosen = select.value;
    select.replaceChildren(...arms.slice(0, MAX_OPTIONS).map((arm) => element("option", { value: arm }, escapeName(arm))));
    if (arms.includes(chosen)) select.value = chosen;
    const against = find("target-against");
    const compared = against.value;
    against.replaceChildren(
      element("option", { value: "" }, "nothing: estimate one mean"),
      ...arms.slice(0, MAX_OPTIONS).map((arm) => element("option", { value: arm }, escapeName(arm))));
    if (arms.includes(compared)) against.value = compared;
    const mix = arms.length > 1 ? `dist:${inQuotes(arms[0])}=0.7,${inQuotes(arms[1])}=0.3` : MIX;
    setText(find("target-example"), escapeName(mix).length > 60 ? MIX : escapeName(mix));
  }

  async #evaluate() {
    if (this.#running) return;
    const typed = find("target-other").value.trim();
    const other = find("target-type-other").checked;
    if (other && !typed) {
      this.#wrong("Enter a policy, uniform, or fixed probabilities.");
      find("target-other").focus();
      return;
    }
    this.#wrong("");
    const target = other ? typed : `arm:${find("target-arm").value}`;
    const { key, signal, failed } = this.#subject;
    this.#busy(true);
    try {
      const compared = find("target-against").value;
      const body = compared ? { target, against: `arm:${compared}` } : { target };
      const request = { body, signal, timeout: null };
      const { data } = await this.#service.request("POST", experimentPath(key, "/evaluations"), request);
      if (!signal.aborted) this.#show(data);
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 422) this.#wrong(sentence(error.message));
      else failed(error);
    } finally {
      this.#busy(false);
    }
  }

  #busy(running) {
    this.#running = running;
    setAttributes(find("evaluate"), { "aria-disabled": running ? "true" : null });
    setText(find("evaluate"), running ? "Estimating…" : "Estimate");
  }

  #wrong(text) {
    setText(find("evaluate-error"), text);
    setAttributes(find("target-other"), { "aria-invalid": text ? "true" : null });
  }

  #show(result) {
    const all = find("results");
    all.prepend(result.has_estimate ? estimateNode(result, this.#reward) : refusalNode(result));
    while (all.childElementCount > MAX_RESULTS) all.lastElementChild.remove();
  }
}

function inQuotes(arm) {
  return /^[A-Za-z_][A-Za-z0-9_-]*$/.test(arm) ? arm : `'${arm.replaceAll("'", "''")}'`;
}
