// Helpers that create and update elements. Text is always a text node, so a name cannot become markup. Styles are set
// by property, as a strict Content-Security-Policy requires.

const SVG = "http://www.w3.org/2000/svg";

/** Create an element: h("button", {class: "primary", on: {click}, disabled: false}, "Save"). */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** Create an SVG element. */
export function s(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

/** Create a button: button({ kind: "icon-only ghost", label: "Close", click }, icon("close")). */
export const button = ({ kind = "", label, click, ...more }, ...children) =>
  h("button", { class: `button ${kind}`, type: "button", "aria-label": label, ...more, on: { click } }, ...children);

/** Radio buttons with their labels, for [value, text] of each; `chosen` is a value. */
export const radios = (name, choices, chosen, change = () => {}) =>
  choices.map(([value, text]) =>
    h(
      "label",
      {},
      h("input", { type: "radio", name, value, checked: value === chosen, on: { change: () => change(value) } }),
      h("span", {}, text),
    ),
  );

/** Radio buttons in a row, the first of which is chosen. */
export const segmented = (label, name, choices, change) =>
  h("fieldset", { class: "segments" }, h("legend", { class: "unseen" }, label), radios(name, choices, choices[0][0], change));

/** Set custom properties: setVars(bar, {"--share": 0.4}). */
export function setVars(element, values) {
  for (const [name, value] of Object.entries(values)) element.style.setProperty(name, String(value));
}

/** Set the text of an element. Unchanged text is left alone, so that screen readers announce real changes only. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
  return element;
}

const itemsOf = new WeakMap();

/** The element of a key in a container that `syncList` fills. */
export const listItem = (container, name) => itemsOf.get(container)?.get(name);

/** Update the children of a container to match a list. Elements are reused by key, which keeps focus and transitions. */
export function syncList(container, items, { key, create, update }) {
  const known = itemsOf.get(container) ?? new Map();
  const rows = new Map();
  let place = container.firstElementChild;
  items.forEach((item, index) => {
    const name = key(item);
    const row = known.get(name) ?? create(item);
    rows.set(name, row);
    update?.(row, item, index);
    if (row === place) place = place.nextElementSibling;
    else container.insertBefore(row, place);
  });
  for (const [name, row] of known) if (!rows.has(name)) row.remove();
  itemsOf.set(container, rows);
}

const PATHS = {
  pause: "M6 4.5v11M14 4.5v11",
  play: "M6 4l10 6-10 6z",
  flag: "M5 17V3.5h9.5l-2 3.25 2 3.25H5",
  stop: "M5.5 5.5h9v9h-9z",
  undo: "M4 8h8a4 4 0 010 8H8M4 8l3.5-3.5M4 8l3.5 3.5",
  copy: "M7 7h9v9H7zM4 13V4h9",
  settings: "M4 6h7M15 6h1M4 14h1M9 14h7M11 4.2v3.6M15 4.2v3.6M11 6h4M5 12.2v3.6M9 12.2v3.6M5 14h4",
  plus: "M10 4v12M4 10h12",
  back: "M12 4.5L6.5 10l5.5 5.5",
  search: "M9 15a6 6 0 100-12 6 6 0 000 12zM13.5 13.5L17 17",
  more: "M4.5 10h.01M10 10h.01M15.5 10h.01",
  download: "M10 3v9.5M6 9l4 4 4-4M4 16.5h12",
  trash: "M4 5.5h12M8 5.5V3.5h4v2M5.5 5.5l.7 11h7.6l.7-11",
  close: "M5 5l10 10M15 5L5 15",
  check: "M4 10.5l4 4 8-9",
  archive: "M3.5 4h13v3.5h-13zM5 7.5v8.5h10V7.5M8 10.5h4",
  spark: "M10 2.5l1.8 5.7 5.7 1.8-5.7 1.8L10 17.5l-1.8-5.7L2.5 10l5.7-1.8z",
  theme: "M10 3a7 7 0 100 14 7 7 0 000-14zM10 3v14M10 6.5l4.6-1.7M10 10h7M10 13.5l4.6 1.7",
  keys: "M2.5 5.5h15v9h-15zM5.5 8.5h.01M8.5 8.5h.01M11.5 8.5h.01M14.5 8.5h.01M7 11.5h6",
  out: "M8 3.5H4v13h4M12 6.5l3.5 3.5-3.5 3.5M15 10H8",
  warn: "M10 3L18 16.5H2zM10 8v4M10 14.2h.01",
};

/** A decorative icon, hidden from screen readers. */
export function icon(name) {
  return s("svg", { class: "icon", viewBox: "0 0 20 20", "aria-hidden": "true" }, s("path", { d: PATHS[name] }));
}
