// Example code in Python and curl: it creates an experiment, requests a decision and reports a reward.

import { experimentPath } from "./api.js";
import { find, setText, show } from "./dom.js";

const STORAGE_KEY = "maillard.language";
const LANGUAGES = ["python", "curl"];
const ARMS = ["blue", "orange"];
const NO_REWARD = 0; // the reward of a decision whose window closes without one

/**
 * For each language, the code of the steps {create, decide, reward}, and of a program that begins with a decision: `first`.
 * With a key if required. `example` is what a decision needs besides a unit, see `exampleContext`.
 */
export function codeExamples(experiment, withKey, example = {}) {
  return { python: pythonCode(experiment, withKey, example), curl: curlCode(experiment, withKey, example) };
}

function pythonCode(experiment, withKey, example) {
  const url = new URL(".", document.baseURI).href.replace(/\/$/, "");
  const key = withKey ? 'os.environ["MAILLARD_KEY"], ' : "";
  const connect = (names) =>
    [
      ...(withKey ? ["import os", ""] : []),
      `from maillard import ${names}`,
      "",
      `client = Client(${python(url)}, ${key}experiment=${python(experiment)})`,
    ].join("\n");
  const more = Object.entries(example).map(([name, value]) => `, ${name}=${python(value)}`);
  const create = `client.create(${python(experiment)}, ${python(ARMS)}, reward=Reward.clicks(window="1h"))`;
  const choose = `decision = client.choose(unit="user-17"${more.join("")})\nprint(decision.arm)  # show this arm`;
  return {
    create: `${connect("Client, Reward")}\n${create}`,
    decide: choose,
    first: `${connect("Client")}\n${choose}`,
    reward: "client.reward(decision.id, 1.0)",
  };
}

function curlCode(experiment, withKey, example) {
  const curl = (method, path, body) =>
    [
      `curl -X ${method} ${inQuotes(new URL(path, document.baseURI).href)}`,
      ...(withKey ? ['  -H "Authorization: Bearer $MAILLARD_KEY"'] : []),
      "  -H 'Content-Type: application/json'",
      `  -d ${inQuotes(body)}`,
    ].join(" \\\n");
  const decide = curl("POST", experimentPath(experiment, "/decisions"), JSON.stringify({ unit: "user-17", ...example }));
  const created = { experiment, arms: ARMS, reward: { low: 0, high: 1, window: "1h", default: NO_REWARD } };
  return {
    create: curl("POST", "v1/experiments", JSON.stringify(created)),
    decide,
    first: decide,
    reward: curl("PUT", "v1/decisions/DECISION_ID/reward", '{"value": 1}'),
  };
}

/** An example of the context, and of the arms if every decision has its own, that an experiment needs. */
export function exampleContext({ features, segments, attributes, model, arms, retired }) {
  if (segments) return { context: Object.fromEntries(segments.map((key) => [key, "value"])) };
  if (!features) return {};
  const ofArms = new Set(Object.values(attributes ?? {}).flatMap(Object.keys));
  const needed = features.features.filter(({ name }) => !ofArms.has(name));
  const values = Object.fromEntries(needed.map((feature) => [feature.name, exampleValue(feature)]));
  const dynamic = model === "shared" && arms.length + retired.length === 0;
  return dynamic ? { actions: { "article-17": values, "article-18": values } } : { context: values };
}

/** Code examples of a view in one language at a time, which the tab remembers. */
export class CodeExamples {
  #blocks;
  #examples = null;

  /** `blocks` has the id of the element for each step, as in {decide: "code-decide"}. */
  constructor(blocks) {
    this.#blocks = blocks;
    for (const radio of document.querySelectorAll(".languages input")) {
      radio.addEventListener("change", () => {
        language = radio.value;
        store(language);
        this.#show();
      });
    }
  }

  /** Shows the result of `codeExamples`. */
  update(examples) {
    this.#examples = examples;
    this.#show();
  }

  #show() {
    for (const radio of document.querySelectorAll(".languages input")) radio.checked = radio.value === language;
    if (!this.#examples) return;
    for (const [step, id] of Object.entries(this.#blocks)) setText(find(id), this.#examples[language][step]);
    for (const each of document.querySelectorAll("[data-language]")) show(each.dataset.language === language, each);
  }
}

let language = LANGUAGES.includes(stored()) ? stored() : LANGUAGES[0];

function stored() {
  try {
    return sessionStorage.getItem(STORAGE_KEY);
  } catch {
    return null; // storage is disabled
  }
}

function store(value) {
  try {
    sessionStorage.setItem(STORAGE_KEY, value);
  } catch {
    // As above.
  }
}

function exampleValue({ type, low, levels }) {
  return { number: low, flag: true, category: levels?.[0] }[type] ?? "value";
}

/** A value of JSON as a literal of Python. */
function python(value) {
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  return `{${Object.entries(value).map(([name, each]) => `${python(name)}: ${python(each)}`).join(", ")}}`;
}

function inQuotes(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
