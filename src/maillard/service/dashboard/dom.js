// Elements of the page, made and changed in place. Names and answers become text, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** The element of the page with this id. */
export function find(id) {
  return document.getElementById(id);
}

/** A new element with these attributes, and with these children, strings as text. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  mark(made, attributes);
  made.append(...children);
  return made;
}

/** A new element of a drawing. */
export function svgElement(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  mark(made, attributes);
  made.append(...children);
  return made;
}

/** Sets attributes, touching only what differs; null takes one away. */
export function mark(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null) node.removeAttribute(name);
    else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
  }
}

/** Sets the text of an element, touching it only when it differs, so that what is selected stays so. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Shows elements, or hides them; focus within what is hidden goes to the title of the view, not to nowhere. */
export function show(whether, ...nodes) {
  for (const node of nodes) {
    const leaves = !whether && !node.hidden && node.contains(document.activeElement);
    node.hidden = !whether;
    if (leaves) focusTitle();
  }
}

/** Moves the focus to where the view begins. */
export function focusTitle() {
  document.querySelector("main > :not([hidden]) h1")?.focus({ preventScroll: true });
}

/** Children of an element, one for each item, kept for as long as their key is there: so focus outlives an update. */
export class Rows {
  #parent;
  #make;
  #rows = new Map();

  /** `make(key)` gives {node, update(item)}. */
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
