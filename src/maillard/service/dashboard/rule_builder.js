// Assembles a rule from conditions, such as rule:device=phone->blue,else->red.

import { element, find } from "./dom.js";
import { escapeName } from "./text.js";

const OPERATORS = [["=", "is"], ["<", "is less than"], [">=", "is at least"]];
const MAX_OPTIONS = 1000;
const UNIFORM = "\u0000uniform"; // no arm has this name

export class RuleBuilder {
  #changed;
  #keys = [];
  #arms = [];

  /** Calls `changed(rule)` with the text of the rule when the user changes a part of it. */
  constructor(changed) {
    this.#changed = changed;
    find("rule-add").addEventListener("click", () => {
      this.#add();
      find("rule-clauses").lastElementChild.querySelector("select").focus();
      this.#write();
    });
    find("rule-else").addEventListener("change", () => this.#write());
  }

  /** Begins with one empty condition. */
  clear() {
    this.#keys = [];
    this.#arms = [];
    find("rule-clauses").replaceChildren();
    find("rule-else").replaceChildren();
  }

  /** Offers these keys and arms. */
  update(keys, arms) {
    if (JSON.stringify([keys, arms]) === JSON.stringify([this.#keys, this.#arms])) return;
    [this.#keys, this.#arms] = [keys, arms];
    for (const select of document.querySelectorAll("#rule-clauses .rule-key")) fill(select, keys.map((key) => [key, key]));
    for (const select of document.querySelectorAll("#rule-clauses .rule-arm, #rule-else")) fill(select, this.#choices());
    if (!find("rule-clauses").childElementCount && keys.length) this.#add();
  }

  #choices() {
    return [...this.#arms.slice(0, MAX_OPTIONS).map((arm) => [arm, arm]), [UNIFORM, "all arms, equally often"]];
  }

  #add() {
    const key = fill(element("select", { class: "rule-key", "aria-label": "Key of the context" }), this.#keys.map((each) => [each, each]));
    const operator = fill(element("select", { class: "rule-operator", "aria-label": "Comparison" }), OPERATORS);
    const value = element("input", { class: "rule-value", spellcheck: "false", "aria-label": "Value", placeholder: "value" });
    const arm = fill(element("select", { class: "rule-arm", "aria-label": "Arm to show" }), this.#choices());
    if (this.#arms.length > 1) arm.value = this.#arms[1]; // otherwise the arm is that of all others
    const remove = element("button", { type: "button", class: "quiet small", "aria-label": "Remove this condition" }, "Remove");
    const node = element("li", {}, element("span", {}, "If"), key, operator, value, element("span", {}, "show"), arm, remove);
    node.addEventListener("input", () => this.#write());
    remove.addEventListener("click", () => {
      node.remove();
      find("rule-add").focus();
      this.#write();
    });
    find("rule-clauses").append(node);
  }

  /** Writes the rule; conditions without a value are left out. */
  #write() {
    const clauses = [...find("rule-clauses").children].map((node) => {
      const [key, operator, value, arm] = ["key", "operator", "value", "arm"].map((part) => node.querySelector(`.rule-${part}`).value);
      return value.trim() ? `${quoted(key)}${operator}${quoted(value.trim())}->${target(arm)}` : "";
    });
    this.#changed(`rule:${[...clauses.filter(Boolean), `else->${target(find("rule-else").value)}`].join(",")}`);
  }
}

/** Fills a select with [value, label] pairs and keeps what was chosen, if possible. */
function fill(select, pairs) {
  const chosen = select.value;
  select.replaceChildren(...pairs.map(([value, label]) => element("option", { value }, escapeName(label))));
  if (pairs.some(([value]) => value === chosen)) select.value = chosen;
  return select;
}

function target(arm) {
  return arm === UNIFORM ? "uniform" : quoted(arm);
}

/** A key, value or arm as a rule writes it. */
function quoted(word) {
  const plain = /^[\p{L}\p{N}_.+-]*[\p{L}\p{N}_.+]$/u.test(word) && !["else", "uniform"].includes(word);
  return plain ? word : `'${word.replaceAll("'", "''")}'`;
}
