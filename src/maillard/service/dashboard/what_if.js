// The "What if?" form: evaluates an arm or a policy on the log.

import { answered, refused } from "./what_if_results.js";
import { experimentPath } from "./api.js";
import { element, find, mark, say } from "./dom.js";
import { sentence, shown } from "./text.js";

const MAX_ANSWERS = 6;
const MAX_OPTIONS = 1000;
const MIX = "dist:red=0.7,blue=0.3"; // an example

export class WhatIf {
  #service;
  #subject = null;
  #names = "";
  #reward = {};
  #asking = false;

  constructor(service) {
    this.#service = service;
    find("form-question").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#ask();
    });
    // Choosing an arm or typing a policy also selects its radio button.
    find("question-arm").addEventListener("change", () => (find("ask-arm").checked = true));
    find("question-other").addEventListener("input", () => (find("ask-other").checked = true));
  }

  /** Resets the form for an experiment; `failed(error)` handles errors that are not about the input. */
  clear(subject) {
    this.#subject = subject;
    this.#names = "";
    find("answers").replaceChildren();
    find("question-arm").replaceChildren();
    say(find("question-mix"), MIX);
    find("question-other").value = "";
    find("ask-arm").checked = true;
    this.#wrong("");
  }

  /** Lists these arms; `reward` is the reward rule of the experiment. */
  update(arms, reward) {
    this.#reward = reward;
    const names = JSON.stringify(arms);
    if (names === this.#names) return;
    this.#names = names;
    const select = find("question-arm");
    const chosen = select.value;
    select.replaceChildren(...arms.slice(0, MAX_OPTIONS).map((arm) => element("option", { value: arm }, shown(arm))));
    if (arms.includes(chosen)) select.value = chosen;
    const mix = arms.length > 1 ? `dist:${inQuotes(arms[0])}=0.7,${inQuotes(arms[1])}=0.3` : MIX;
    say(find("question-mix"), shown(mix).length > 60 ? MIX : shown(mix));
  }

  async #ask() {
    if (this.#asking) return;
    const typed = find("question-other").value.trim();
    const other = find("ask-other").checked;
    if (other && !typed) {
      this.#wrong("Enter a policy, uniform, or fixed probabilities.");
      find("question-other").focus();
      return;
    }
    this.#wrong("");
    const target = other ? typed : `arm:${find("question-arm").value}`;
    const { key, signal, failed } = this.#subject;
    this.#busy(true);
    try {
      const request = { body: { target }, signal, timeout: null };
      const { data } = await this.#service.ask("POST", experimentPath(key, "/evaluations"), request);
      if (!signal.aborted) this.#show(data);
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 422) this.#wrong(sentence(error.message));
      else failed(error);
    } finally {
      this.#busy(false);
    }
  }

  #busy(asking) {
    this.#asking = asking;
    mark(find("ask"), { "aria-disabled": asking ? "true" : null });
    say(find("ask"), asking ? "Estimating…" : "Estimate");
  }

  #wrong(text) {
    say(find("question-error"), text);
    mark(find("question-other"), { "aria-invalid": text ? "true" : null });
  }

  #show(answer) {
    const all = find("answers");
    all.prepend(answer.answered ? answered(answer, this.#reward) : refused(answer));
    while (all.childElementCount > MAX_ANSWERS) all.lastElementChild.remove();
  }
}

function inQuotes(arm) {
  return /^[A-Za-z_][A-Za-z0-9_-]*$/.test(arm) ? arm : `'${arm.replaceAll("'", "''")}'`;
}
