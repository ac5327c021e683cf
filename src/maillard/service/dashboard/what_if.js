// The "What if?" form: evaluates an arm or a policy on the log.

import { estimateNode, refusalNode } from "./what_if_results.js";
import { experimentPath } from "./api.js";
import { element, find, setAttributes, setText, show } from "./dom.js";
import { RuleBuilder } from "./rule_builder.js";
import { sentence, escapeName } from "./text.js";

const MAX_OPTIONS = 1000;
// Targets of an experiment whose decisions have their own arms.
const OVER_ACTIONS = { "rank:1": "rank:1: what was listed first", uniform: "uniform: all equally often", logged: "logged: what was earned" };
const MIX = "dist:red=0.7,blue=0.3"; // an example

export class WhatIf {
  #service;
  #subject = null;
  #names = "";
  #reward = {};
  #running = false;
  #arms = [];
  #keys = [];
  #rule;

  constructor(service) {
    this.#service = service;
    this.#rule = new RuleBuilder((text) => {
      find("target-rule").value = text;
      find("target-type-rule").checked = true;
    });
    find("form-evaluate").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#evaluate();
    });
    // Choosing an arm or typing a policy also selects its radio button.
    find("target-arm").addEventListener("change", () => (find("target-type-arm").checked = true));
    find("target-other").addEventListener("input", () => (find("target-type-other").checked = true));
    find("target-rule").addEventListener("input", () => (find("target-type-rule").checked = true));
  }

  /** Resets the form for an experiment; `failed(error)` handles errors that are not about the input. */
  clear(subject) {
    this.#subject = subject;
    this.#names = "";
    this.#keys = [];
    this.#rule.clear();
    find("target-rule").value = "";
    find("target-by").replaceChildren();
    show(false, ...document.querySelectorAll("#form-evaluate .for-contexts"));
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
    this.#arms = arms;
    this.#rule.update(this.#keys, arms);
    const names = JSON.stringify(arms);
    if (names === this.#names) return;
    this.#names = names;
    this.#offerTargetsOverActions(arms.length === 0);
    const select = find("target-arm");
    const chosen = select.value;
    select.replaceChildren(...arms.slice(0, MAX_OPTIONS).map((arm) => element("option", { value: arm }, escapeName(arm))));
    if (arms.includes(chosen)) select.value = chosen;
    const against = find("target-against");
    const compared = against.value;
    const others = arms.length
      ? arms.slice(0, MAX_OPTIONS).map((arm) => [`arm:${arm}`, escapeName(arm)])
      : Object.entries(OVER_ACTIONS);
    against.replaceChildren(
      element("option", { value: "" }, "nothing: estimate one mean"),
      ...others.map(([value, text]) => element("option", { value }, text)));
    if (others.some(([value]) => value === compared)) against.value = compared;
    const mix = arms.length > 1 ? `dist:${inQuotes(arms[0])}=0.7,${inQuotes(arms[1])}=0.3` : MIX;
    setText(find("target-example"), escapeName(mix).length > 60 ? MIX : escapeName(mix));
  }

  /** Whether every decision has its own arms, so that there is no list of arms to choose from. */
  #offerTargetsOverActions(dynamic) {
    show(!dynamic, ...document.querySelectorAll("#form-evaluate .for-arms"));
    show(dynamic, ...document.querySelectorAll("#form-evaluate .for-actions"));
    setAttributes(find("target-other"), { placeholder: dynamic ? "rank:1" : "uniform" });
    if (dynamic && find("target-type-arm").checked) find("target-type-other").checked = true;
  }

  /** Offers these keys of the context for rules and segments. */
  offerKeys(keys) {
    if (JSON.stringify(keys) === JSON.stringify(this.#keys)) return;
    this.#keys = keys;
    show(keys.length > 0, ...document.querySelectorAll("#form-evaluate .for-contexts"));
    const by = find("target-by");
    const chosen = by.value;
    by.replaceChildren(
      element("option", { value: "" }, "nothing: one estimate for all decisions"),
      ...keys.map((key) => element("option", { value: key }, escapeName(key))));
    if (keys.includes(chosen)) by.value = chosen;
    this.#rule.update(keys, this.#arms);
  }

  /** The target, or null if none was entered, which is shown. */
  #target() {
    if (find("target-type-arm").checked) return `arm:${find("target-arm").value}`;
    const rule = find("target-type-rule").checked;
    const field = find(rule ? "target-rule" : "target-other");
    const typed = field.value.trim();
    if (!typed) {
      this.#wrong(rule ? "Assemble a rule, or enter one." : "Enter a policy, uniform, or fixed probabilities.", field);
      field.focus();
      return null;
    }
    return rule && !typed.startsWith("rule:") ? `rule:${typed}` : typed;
  }

  async #evaluate() {
    if (this.#running || !this.#names) return; // the arms are not known yet
    const target = this.#target();
    if (target === null) return;
    this.#wrong("");
    find("results").replaceChildren(); // an old answer must not look like the new one
    const { key, signal, failed } = this.#subject;
    this.#busy(true);
    try {
      const compared = find("target-against").value;
      const body = compared ? { target, against: compared } : { target };
      if (find("target-by").value) body.by = [find("target-by").value];
      const request = { body, signal, timeout: null };
      const { data } = await this.#service.request("POST", experimentPath(key, "/evaluations"), request);
      if (!signal.aborted) this.#show(data);
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 422) this.#wrong(sentence(error.message), find(find("target-type-rule").checked ? "target-rule" : "target-other"));
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

  #wrong(text, field = null) {
    setText(find("evaluate-error"), text);
    for (const id of ["target-other", "target-rule"]) {
      setAttributes(find(id), { "aria-invalid": text && find(id) === field ? "true" : null });
    }
  }

  #show(result) {
    find("results").replaceChildren(result.has_estimate ? estimateNode(result, this.#reward) : refusalNode(result));
  }
}

function inQuotes(arm) {
  return /^[A-Za-z_][A-Za-z0-9_-]*$/.test(arm) ? arm : `'${arm.replaceAll("'", "''")}'`;
}
