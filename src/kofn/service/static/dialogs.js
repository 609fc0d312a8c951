// Forms in dialogs, the sign-in form, the list of shortcuts, and toasts.

import { ApiError, setToken } from "./api.js";
import { button, h, icon, setText } from "./dom.js";

/** Open a dialog with a title and a button that closes it. */
export function modal(title, kind, ...inside) {
  const close = button({ kind: "icon-only ghost", label: "Close", click: () => dialog.close() }, icon("close"));
  const on = {
    close: () => dialog.remove(),
    click: ({ target }) => target === dialog && dialog.close(), // beside it
  };
  const dialog = h(
    "dialog",
    { class: kind, "aria-labelledby": "dialog-title", on },
    h("div", { class: "dialog-head" }, h("h2", { id: "dialog-title" }, title), close),
    ...inside,
  );
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Open a dialog with a form. If `done(data)` throws an ApiError, the dialog stays open and shows it, at its field if
 * `error.field` names one. `focus` names the field that has the focus at first. */
export function form({ title, intro, fields = [], submit, danger = false, done, wide = false, focus = null }) {
  const wrong = h("p", { class: "wrong", id: "dialog-wrong", role: "alert", hidden: true });
  const go = h("button", { class: `button ${danger ? "danger" : "primary"}`, type: "submit" }, submit);
  const body = h(
    "form",
    { method: "dialog", novalidate: true, on: { submit: send } },
    intro && h("p", { class: "dialog-intro" }, intro),
    wrong,
    ...fields,
    h("div", { class: "dialog-foot" }, button({ click: () => dialog.close() }, "Cancel"), go),
  );

  async function send(event) {
    event.preventDefault();
    if (go.disabled) return;
    clear();
    go.disabled = true;
    try {
      await done(new FormData(body));
      dialog.close();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      show(error);
    } finally {
      go.disabled = false;
    }
  }

  const top = wrong.nextSibling; // the error goes back here

  /** The field with a name, or the first of several. */
  function named(name) {
    const found = body.elements[name] ?? null;
    return found instanceof RadioNodeList ? found[0] : found;
  }

  function clear() {
    wrong.hidden = true;
    for (const each of body.querySelectorAll("[aria-invalid]")) {
      each.removeAttribute("aria-invalid");
      each.removeAttribute("aria-errormessage");
    }
  }

  function show(error) {
    const input = named(error.field);
    const around = input?.closest?.("details");
    if (around) around.open = true;
    const found = input?.closest?.(".field");
    const place = found?.checkVisibility() ? found : null;
    if (place) {
      place.append(wrong);
      input.setAttribute("aria-invalid", "true");
      input.setAttribute("aria-errormessage", wrong.id);
    } else body.insertBefore(wrong, top);
    wrong.classList.toggle("at-field", Boolean(place));
    setText(wrong, error.message);
    wrong.hidden = false;
    input?.focus?.();
    wrong.scrollIntoView({ block: "center" });
  }

  const dialog = modal(title, wide ? "wide" : "", body);
  const first = focus ? named(focus) : dialog.querySelector("[autofocus]");
  first?.focus();
  if (focus) first?.scrollIntoView({ block: "center" });
}

export const input = (name, value = "", more = {}) =>
  h("input", { name, value: value ?? "", autocomplete: "off", spellcheck: "false", ...more });
export const number = (name, value, more = {}) =>
  input(name, value, { type: "number", step: "any", inputmode: "decimal", ...more });
export const area = (name, rows, lines = [], more = {}) =>
  h("textarea", { name, rows, spellcheck: "false", value: lines.join("\n"), ...more });

let fieldCount = 0;

/** A labelled field, with a hint that screen readers announce. */
export function field(label, element, hint) {
  fieldCount += 1;
  element.id = `field-${fieldCount}`;
  const under = hint ? h("span", { class: "hint", id: `hint-${fieldCount}` }, hint) : null;
  if (under) element.setAttribute("aria-describedby", under.id);
  return h("div", { class: "field" }, h("label", { for: element.id }, label), element, under);
}

/** A checkbox with its label and a hint. */
export function check(label, name, checked, hint) {
  const box = h("input", { type: "checkbox", name, checked });
  const element = field(label, box, hint);
  element.classList.add("check");
  element.prepend(box);
  return element;
}

/** A question with radio buttons, in a row (choices) or one below the other (options). */
export const question = (text, kind, radioButtons) =>
  h("fieldset", { class: "field" }, h("legend", {}, text), h("div", { class: kind }, radioButtons));

/** The sign-in form, shown while the service requires a token. */
export function login(message, signedIn) {
  const token = input("token", "", { type: "password", autocomplete: "current-password", required: true });
  const wrong = h("p", { class: "wrong", role: "alert", hidden: !message }, message ?? "");
  const element = h(
    "form",
    {
      class: "login panel",
      on: {
        submit: (event) => {
          event.preventDefault();
          if (token.value.trim()) {
            setToken(token.value.trim());
            signedIn();
          }
        },
      },
    },
    h(
      "div",
      { class: "empty-art", "aria-hidden": "true" },
      h("img", { src: "logo.svg", alt: "", width: "48", height: "48" }),
    ),
    h("h1", {}, "Sign in"),
    h(
      "p",
      { class: "quiet" },
      "This service requires a token. Open the link that ",
      h("code", {}, "kofn serve"),
      " printed, or create a token with ",
      h("code", {}, "kofn token create"),
      ".",
    ),
    wrong,
    field("Token", token, "Stored in this tab only, until you close it."),
    h("button", { class: "button primary wide", type: "submit" }, "Sign in"),
  );
  queueMicrotask(() => token.focus());
  return element;
}

/** Show a message for a few seconds; errors stay longer. */
export function toast(text, bad = false) {
  const element = h(
    "div",
    { class: `toast ${bad ? "is-bad" : ""}`, role: bad ? "alert" : false },
    icon(bad ? "warn" : "check"),
    h("span", {}, text),
  );
  const all = document.getElementById("toasts");
  all.append(element);
  while (all.children.length > 3) all.firstElementChild.remove();
  setTimeout(() => element.remove(), bad ? 9000 : 4000);
}

const SHORTCUTS = [
  ["n", "New campaign"],
  ["/", "Filter campaigns or arms"],
  ["j  k", "Next and previous campaign"],
  ["Enter", "Open the campaign"],
  ["c", "All campaigns"],
  ["p", "Pause or resume"],
  ["s", "Ship"],
  ["e", "Settings"],
  ["a", "Add an arm"],
  ["t", "Toggle dark mode"],
  ["?", "Show the shortcuts"],
  ["Esc", "Close a dialog, leave the chart"],
];

/** Open the list of keyboard shortcuts. */
export function shortcuts() {
  const line = ([keys, what]) =>
    h("div", {}, h("dt", {}, keys.split("  ").map((key) => h("kbd", {}, key))), h("dd", {}, what));
  modal("Shortcuts", "", h("dl", { class: "keys" }, SHORTCUTS.map(line)));
}
