// Creates and updates elements of the page. Data become text, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** The element of the page with this id. */
export function find(id) {
  return document.getElementById(id);
}

/** A new element with these attributes and children; strings become text. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  setAttributes(made, attributes);
  made.append(...children);
  return made;
}

/** A new SVG element. */
export function svgElement(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  setAttributes(made, attributes);
  made.append(...children);
  return made;
}

/** Sets attributes that differ; null removes an attribute. */
export function setAttributes(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null) node.removeAttribute(name);
    else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
  }
}

/** Sets the text of an element only if it differs, so that a selection is kept. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Shows or hides elements. If a hidden element had the focus, the title of the view gets it. */
export function show(whether, ...nodes) {
  for (const node of nodes) {
    const leaves = !whether && !node.hidden && node.contains(document.activeElement);
    node.hidden = !whether;
    if (leaves) focusTitle();
  }
}

/** Moves the focus to the title of the view. */
export function focusTitle() {
  document.querySelector("main > :not([hidden]) h1")?.focus({ preventScroll: true });
}

/** Children of an element, one per item. A child is reused while its key exists, so that it keeps the focus. */
export class Rows {
  #parent;
  #make;
  #rows = new Map();

  /** `make(key)` returns {node, update(item)}. */
  constructor(parent, make) {
    this.#parent = parent;
    this.#make = make;
  }

  update(items, keyOf) {
    const wanted = new Set(items.map(keyOf));
    for (const [key, row] of this.#rows) {
      if (wanted.has(key)) continue;
      row.node.remove();
      this.#rows.delete(key);
    }
    let next = this.#parent.firstElementChild;
    for (const item of items) {
      const key = keyOf(item);
      if (!this.#rows.has(key)) this.#rows.set(key, this.#make(key));
      const row = this.#rows.get(key);
      if (row.node === next) {
        next = next.nextElementSibling;
      } else {
        const focused = row.node.contains(document.activeElement) && document.activeElement;
        this.#parent.insertBefore(row.node, next);
        if (focused) focused.focus({ preventScroll: true });
      }
      row.update(item);
    }
  }

  clear() {
    this.update([], () => "");
  }
}
