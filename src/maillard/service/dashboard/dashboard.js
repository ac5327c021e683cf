// The entry point: selects the view, handles the API key and shows the connection status.

import { ApiError, Service } from "./api.js";
import { NewExperimentForm } from "./new_experiment.js";
import { element, find, focusTitle, setAttributes, setText, show } from "./dom.js";
import { ExperimentView } from "./experiment_view.js";
import { Listing } from "./experiment_list.js";
import { poll } from "./poller.js";
import { quoted, sentence } from "./text.js";

const VIEWS = ["key", "error", "list", "new", "experiment"];
const TITLE = "maillard";
const MESSAGE_MS = 6000; // milliseconds until a message disappears

const service = new Service();
const listing = new Listing(service);
const experimentView = new ExperimentView(service);
const creation = new NewExperimentForm(service, {
  created: (experiment) => {
    location.hash = `#/experiments/${encodeURIComponent(experiment.experiment)}`;
    showMessage("Created.");
  },
  failed,
});

let me = null; // the permissions of the key; null until they are known
let view = new AbortController(); // aborts when another view is shown
let messageTimer = null;

/** Shows one view and aborts the requests of the previous one. */
function showView(name, title) {
  view.abort();
  view = new AbortController();
  for (const each of VIEWS) show(each === name, find(`view-${each}`));
  document.title = title ? `${title} · ${TITLE}` : TITLE;
  show(false, find("connection"));
}

/** Shows the view that the URL names. */
function route(moved) {
  if (!me) {
    begin();
    return;
  }
  const [, place, name] = location.hash.split("/");
  const common = { admin: me.scopes.includes("admin"), open: me.open, reached, missed, showMessage, failed };
  const key = place === "experiments" && name ? decoded(name) : null;
  if (key) {
    showView("experiment", key);
    experimentView.open({ ...common, key, signal: view.signal });
  } else if (place === "new" && common.admin) {
    showView("new", "New experiment");
    creation.clear();
    readPolicies();
  } else {
    showView("list");
    listing.open({ ...common, signal: view.signal });
  }
  if (moved) {
    // Move the focus to the title of the new view, also for screen readers.
    scrollTo(0, 0);
    focusTitle();
  }
}

function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

/** Takes the key from a link that ends in #key=..., and removes it from the address bar and the history. */
function takeKeyFromUrl() {
  const [, secret] = /^#key=(.+)$/.exec(location.hash) ?? [];
  if (!secret) return false;
  history.replaceState(null, "", location.pathname + location.search);
  service.key = decoded(secret).trim();
  return true;
}

/** Requests the permissions of the key until the service responds, then shows the view. */
function begin() {
  me = null;
  showView(null);
  show(Boolean(service.key), find("forget"));
  const step = async (ends) => {
    const permissions = await service.get("v1/me", ends);
    if (ends.aborted) return;
    me = permissions;
    setText(find("version"), `maillard ${me.version}`);
    readPolicies();
    route(false);
  };
  poll(step, { signal: view.signal, reached: () => {}, missed });
}

/** Asks for an API key and removes all data from the page. */
function lock(message) {
  me = null;
  showView("key", "An API key");
  experimentView.clear();
  listing.clear();
  show(false, find("forget"));
  setText(find("key-error"), message);
  setAttributes(find("key-secret"), { "aria-invalid": message ? "true" : null });
  find("key-secret").focus();
}

function reached() {
  setAttributes(find("connection"), { "data-state": "live" });
  setText(find("connection-text"), "Live");
  show(true, find("connection"));
}

/** Handles a failed poll; returns false if repeating it is useless. */
function missed(error) {
  if (error instanceof ApiError && error.status < 500 && error.status !== 429 && error.status !== 408) {
    failed(error, true);
    return false;
  }
  setAttributes(find("connection"), { "data-state": "missed" });
  setText(find("connection-text"), error.status === 429 ? "Too many requests; trying again" : "No connection; trying again");
  show(true, find("connection"));
  return true;
}

/** Shows an error, as a message or instead of the view. */
function failed(error, fatal = false) {
  if (error.status === 401) {
    lock(service.key ? "The service does not know this key, or it has been revoked." : "");
  } else if (fatal) {
    const key = decoded(location.hash.split("/")[2] ?? "");
    showView("error");
    const titles = { 403: "Not allowed", 404: "Experiment not found" };
    setText(find("title-error"), titles[error.status] ?? "Something went wrong");
    const missing = `There is no experiment called ${quoted(key)}.`;
    setText(find("error-text"), error.status === 404 ? missing : sentence(error.message));
  } else {
    const unknown = "The service could not be reached, so the change may or may not have been made. Please check and try again.";
    showMessage(error instanceof ApiError ? sentence(error.message) : unknown, true);
  }
}

/** Shows a message. Errors stay until they are dismissed. */
function showMessage(message, stays = false) {
  clearTimeout(messageTimer);
  setAttributes(find("message"), { "data-kind": stays ? "wrong" : "news" });
  show(true, find("message-close"));
  setText(find("message-text"), message);
  if (!stays) messageTimer = setTimeout(hideMessage, MESSAGE_MS);
}

function hideMessage() {
  setAttributes(find("message"), { "data-kind": null });
  show(false, find("message-close"));
  setText(find("message-text"), "");
}

async function readPolicies() {
  if (find("policies").childElementCount) return;
  try {
    const { policies } = await service.get("v1/policies");
    const options = () => policies.map((each) => element("option", { value: each.name, label: each.summary ?? "" }));
    find("policies").replaceChildren(...options());
    find("targets").replaceChildren(...options());
  } catch {
    // Suggestions only: the field accepts any text.
  }
}

async function copy(button) {
  const source = find(button.dataset.copies);
  try {
    await navigator.clipboard.writeText(source.textContent);
    setText(button, "Copied");
    setTimeout(() => setText(button, "Copy"), 2000);
  } catch {
    getSelection().selectAllChildren(source); // without access to the clipboard, select the text for copying
  }
}

find("form-key").addEventListener("submit", (event) => {
  event.preventDefault();
  service.key = find("key-secret").value.trim();
  find("key-secret").value = "";
  begin();
});
find("forget").addEventListener("click", () => {
  service.key = null;
  begin();
});
find("message-close").addEventListener("click", hideMessage);
for (const button of document.querySelectorAll("[data-copies]")) button.addEventListener("click", () => copy(button));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the URL selects the view
  find("main").focus();
});
addEventListener("hashchange", () => (takeKeyFromUrl() ? begin() : route(true)));
takeKeyFromUrl();
begin();
