// Actions that change an experiment, with a confirmation if they cannot be undone.

import { experimentPath } from "./api.js";
import { find, focusTitle, setAttributes, setText } from "./dom.js";
import { quoted, sentence, escapeName } from "./text.js";

export class AdminActions {
  #service;
  #subject = null;
  #busy = false;
  #confirmed = null;
  #etag = null;

  constructor(service) {
    this.#service = service;
    const on = (id, action) => find(id).addEventListener("click", action);
    on("pause", () => this.#pauseOrResume());
    on("add-arm", () => this.#open("dialog-arm", "arm-name", ""));
    on("change-policy", () => this.#askPolicy());
    on("reset", () => this.#askReset());
    on("archive", () => this.#askArchive());
    for (const dialog of document.querySelectorAll("dialog")) {
      dialog.querySelector("[data-closes]").addEventListener("click", () => dialog.close());
      dialog.addEventListener("close", () => this.#keepFocus());
    }
    this.#onSubmit("dialog-confirm", "confirm-error", () => this.#confirmed());
    this.#onSubmit("dialog-arm", "arm-error", () => this.#addArm());
    this.#onSubmit("dialog-policy", "policy-error", () => this.#changePolicy());
  }

  /** Sets the experiment: {key, signal, experiment(), changed(experiment, message), failed(error)}. */
  clear(subject) {
    this.#subject = subject;
    for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  }

  /** Asks for confirmation before retiring an arm. */
  retire(arm) {
    const text = "It will not be chosen any more. Rewards of earlier decisions still count, and its decisions stay in the log.";
    this.#confirm(`Retire ${quoted(arm)}?`, text, "Retire the arm",
      () => this.#change("DELETE", `/arms/${encodeURIComponent(arm)}`, {}, `${quoted(arm)} has been retired.`));
  }

  async #pauseOrResume() {
    const paused = this.#subject.experiment()?.status === "paused";
    const failed = this.#subject.failed;
    try {
      const message = paused ? "Resumed." : "Paused. No decisions are made until you resume; rewards are still accepted.";
      await this.#change("POST", paused ? ":resume" : ":pause", {}, message);
    } catch (error) {
      failed(error);
    }
  }

  #askReset() {
    const text = "The policy starts again without the rewards so far: all arms are treated as new. The log keeps everything.";
    this.#confirm("Reset the experiment?", text, "Reset", () => this.#change("POST", ":reset", {}, "Reset. The policy has started again."));
  }

  #askArchive() {
    const text = "The experiment stops making decisions. Its log stays and can still be read, evaluated and downloaded.";
    this.#confirm(`Archive ${quoted(this.#subject.key)}?`, text, "Archive",
      () => this.#change("POST", ":archive", {}, "Archived."));
  }

  async #askPolicy() {
    const { key, signal, failed } = this.#subject;
    try {
      // The ETag ensures that the change applies to the version shown here.
      const { data, etag } = await this.#service.request("GET", experimentPath(key), { signal });
      if (signal.aborted) return;
      this.#etag = etag;
      setText(find("policy-now"), `Now: ${escapeName(data.policy)}.`);
      this.#open("dialog-policy", "policy-spec", data.policy);
    } catch (error) {
      if (!signal.aborted) failed(error);
    }
  }

  async #changePolicy() {
    try {
      const body = { policy: find("policy-spec").value.trim() };
      await this.#change("PATCH", "", { body, etag: this.#etag }, "The policy has been changed.");
    } catch (error) {
      if (error.status !== 412) throw error;
      find("dialog-policy").close();
      const message = "Someone else has changed the experiment. Your change was not made; the current version is shown.";
      this.#subject.changed(null, message);
    }
  }

  async #addArm() {
    const arm = find("arm-name").value.trim();
    await this.#change("POST", "/arms", { body: { arm } }, `${quoted(arm)} has been added.`);
  }

  async #change(method, rest, request, message) {
    const { key, signal, changed } = this.#subject;
    // Not aborted when the view changes, because the service may already have made the change.
    const { data } = await this.#service.request(method, experimentPath(key, rest), request);
    if (!signal.aborted) changed(data, message);
  }

  #confirm(title, text, yes, action) {
    this.#confirmed = action;
    setText(find("confirm-title"), title);
    setText(find("confirm-text"), text);
    setText(find("confirm-yes"), yes);
    this.#open("dialog-confirm");
  }

  #open(id, field = null, value = null) {
    const dialog = find(id);
    for (const each of dialog.querySelectorAll(".wrong")) setText(each, "");
    if (field) {
      find(field).value = value;
      setAttributes(find(field), { "aria-invalid": null });
    }
    dialog.showModal();
    if (field) find(field).select();
  }

  #onSubmit(id, errors, action) {
    const dialog = find(id);
    dialog.querySelector("form").addEventListener("submit", async (event) => {
      event.preventDefault();
      if (this.#busy) return;
      this.#busy = true;
      const { signal, failed } = this.#subject;
      setText(find(errors), "");
      try {
        await action();
        dialog.close();
      } catch (error) {
        if (signal.aborted) return;
        if (error.status === 401) {
          dialog.close();
          failed(error);
        } else {
          setText(find(errors), sentence(error.message));
          const field = dialog.querySelector("input");
          if (field) setAttributes(field, { "aria-invalid": "true" });
        }
      } finally {
        this.#busy = false;
      }
    });
  }

  /** Returns the focus to the element that opened the dialog, or to the title if it is gone. */
  #keepFocus() {
    queueMicrotask(() => {
      if (!document.activeElement || document.activeElement === document.body) focusTitle();
    });
  }
}
