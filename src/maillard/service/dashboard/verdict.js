// The verdict in words: which arm leads, which arms are ruled out, and which are undecided.

import { stylesOf } from "./arm_styles.js";
import { element, find, setText, show } from "./dom.js";
import { escapeName } from "./text.js";

const ANNOUNCED_MS = 5000; // milliseconds until the announcement for screen readers is removed

export class Verdict {
  #shown = "";
  #announced = "";
  #timer = null;

  clear() {
    this.#shown = this.#announced = "";
    clearTimeout(this.#timer);
    find("verdict").replaceChildren();
    setText(find("verdict-news"), "");
    setText(find("verdict-explanation"), "");
    find("verdict-meaning").open = false;
    show(false, find("verdict-section"));
  }

  /** Shows the verdict of a State; older services have none. */
  update({ verdict, arms }) {
    show(Boolean(verdict), find("verdict-section"));
    if (!verdict) return;
    const { text, parts, explanation } = verdict;
    setText(find("verdict-explanation"), explanation);
    const names = arms.map((each) => each.arm);
    const shown = JSON.stringify([parts, names]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    const styles = new Map(stylesOf(names).map((style, index) => [names[index], style]));
    find("verdict").replaceChildren(...parts.map((part) => partNode(part, styles)));
    this.#announce(escapeName(text), parts);
  }

  /** Tells screen readers a new verdict, but not that only its numbers have changed. */
  #announce(text, parts) {
    const news = JSON.stringify(parts.map((part) => part.arm ?? part.text.replace(/\d[\d,]*/g, "#")));
    if (news === this.#announced) return;
    this.#announced = news;
    setText(find("verdict-news"), text);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => setText(find("verdict-news"), ""), ANNOUNCED_MS); // the text itself is on the page
  }
}

function partNode({ text, arm }, styles) {
  const name = escapeName(text);
  if (arm === null) return name;
  const swatch = element("span", { class: `swatch ${styles.get(arm)?.colour ?? ""}`, "aria-hidden": "true" });
  return element("strong", { class: "named" }, swatch, element("bdi", {}, name));
}
