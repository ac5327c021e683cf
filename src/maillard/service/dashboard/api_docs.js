// The page /docs: a filter, the address of this service in the examples, and requests that read.

import { ApiError, Service } from "./api.js";
import { element, find, setText, show } from "./dom.js";
import { counted, sentence } from "./text.js";

const EXAMPLE_ADDRESS = "http://localhost:8000/"; // in the examples of the page
const MAX_SHOWN = 20_000; // characters of a response

const service = new Service();
const operations = [...document.querySelectorAll(".operation")];

/** Shows the operations that contain every word that was typed. */
function filter() {
  const words = find("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = operations.filter((each) => {
    const { method, path, text } = each.dataset;
    const searched = `${method} ${path} ${text} ${each.querySelector("summary").textContent}`.toLowerCase();
    const matches = words.every((word) => searched.includes(word));
    each.hidden = !matches;
    return matches;
  });
  for (const group of document.querySelectorAll(".group")) {
    group.hidden = !group.querySelector(".operation:not([hidden])");
  }
  setText(find("filtered"), words.length ? `${counted(found.length, "operation")} found.` : "");
}

/** Opens the operation or object that the URL names. */
function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target?.tagName !== "DETAILS") return;
  find("filter").value = "";
  filter();
  target.open = true;
  target.scrollIntoView();
}

/** Adds a form that sends the request of an operation that reads, with the API key of this tab. */
function addTrial(operation) {
  const { path } = operation.dataset;
  const parameters = JSON.parse(operation.dataset.try);
  const fields = parameters.map(({ name, example }) => {
    const input = element("input", { spellcheck: "false", placeholder: example ?? "" });
    return { name, input, node: element("label", {}, element("code", {}, name), input) };
  });
  const status = element("p", { class: "note", role: "status" });
  const output = element("code", {});
  const shown = element("pre", { tabindex: 0, hidden: "" }, output);
  const button = element("button", { type: "submit", class: "primary" }, "Send the request");
  const form = element("form", { class: "trial", autocomplete: "off" },
    element("h4", {}, "Try it"), ...fields.map((each) => each.node), element("p", { class: "actions" }, button), status, shown);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    show(false, shown);
    setText(status, "Waiting for the response…");
    const values = new Map(fields.map(({ name, input }) => [name, input.value.trim()]));
    const missing = parameters.find((each) => each.in === "path" && !values.get(each.name));
    if (missing) {
      setText(status, `Enter a value for ${missing.name}.`);
      return;
    }
    const query = new URLSearchParams(
      parameters.filter((each) => each.in === "query" && values.get(each.name)).map((each) => [each.name, values.get(each.name)]));
    const filled = path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(values.get(name)));
    try {
      const response = await service.download(`${filled.slice(1)}${query.size ? `?${query}` : ""}`);
      setText(status, "The response:");
      setText(output, shortened(await response.text()));
      show(true, shown);
    } catch (error) {
      setText(status, explain(error));
    }
  });
  operation.querySelector(".content").append(form);
}

function explain(error) {
  if (!(error instanceof ApiError)) return "There was no response. Please try again.";
  const hint = error.status === 401 ? " Open the dashboard in this tab and enter a key there." : "";
  return `Status ${error.status}. ${sentence(error.message)}${hint}`;
}

/** A response with line breaks, and not too long for the page. */
function shortened(text) {
  let found = text;
  try {
    found = JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    // Not JSON.
  }
  return found.length > MAX_SHOWN ? `${found.slice(0, MAX_SHOWN)}\n… and ${found.length - MAX_SHOWN} more characters` : found;
}

for (const code of document.querySelectorAll("pre code")) {
  if (code.textContent.startsWith("curl ")) {
    setText(code, code.textContent.replace(EXAMPLE_ADDRESS, () => new URL(".", document.baseURI).href));
  }
}
for (const operation of operations) if (operation.dataset.try) addTrial(operation);
find("filter").addEventListener("input", filter);
show(true, find("filter-field"));
addEventListener("hashchange", openTarget);
openTarget();
