// The dashboard: its frame, the address of each page, the shortcuts.

import { onTokenNeeded, session, setToken, token } from "./api.js";
import { campaignPage } from "./campaign.js";
import { createDialog } from "./create.js";
import { login, shortcuts, toast } from "./dialogs.js";
import { h, icon, say } from "./dom.js";
import { listPage } from "./list.js";
import { tick } from "./panels.js";

const main = document.getElementById("main");
const bar = document.getElementById("bar");
let page = null,
  asking = false,
  allowed = { scope: "full", campaign: null };

const STATES = { live: "Live", polling: "Polling", offline: "No connection" };
const light = h(
  "span",
  { class: "live", role: "status", hidden: true },
  h("i", { "aria-hidden": "true" }),
  h("span", {}),
);
let link = "live";

/** Say how news comes. "loaded" ends a time without connection, whichever way news came before. */
function state(next) {
  if (next === "live" || next === "polling") link = next;
  const now = next === "loaded" ? link : next;
  light.hidden = false;
  light.className = `live is-${now}`;
  say(light.lastElementChild, STATES[now]);
}

const tool = (sign, label, keys, click) =>
  h(
    "button",
    {
      class: "button icon-only ghost",
      type: "button",
      "aria-label": label,
      title: keys ? `${label} (${keys})` : label,
      "aria-keyshortcuts": keys,
      on: { click },
    },
    icon(sign),
  );
const crumb = h("span", { class: "crumb" });
const leave = tool("out", "Sign out", null, () => {
  setToken(null);
  start();
});
const keys = tool("keys", "Shortcuts", "?", shortcuts);
keys.classList.add("by-key");
const home = () => {
  location.hash = "#/";
};

bar.append(
  h(
    "a",
    { class: "brand", href: "#/", "aria-label": "kofn, all campaigns" },
    h("img", { src: "mark.svg", alt: "", width: "28", height: "28" }),
    h("span", {}, "kofn"),
  ),
  crumb,
  h("span", { class: "grow" }),
  light,
  tool("theme", "Light or dark", "t", () => window.kofnTheme.toggle()),
  keys,
  leave,
);
document
  .getElementById("foot")
  .append(
    h("span", { class: "by-key" }, "Press ", h("kbd", {}, "?"), " for shortcuts"),
    h("a", { href: "api/openapi.json" }, "OpenAPI document"),
  );

/** What the token is for: what it cannot do is not offered. */
const may = { change: () => allowed.scope === "full", create: () => allowed.scope === "full" && !allowed.campaign };

const create = () =>
  may.create() &&
  createDialog((name) => {
    toast(`${name} is created`);
    location.hash = `#/${encodeURIComponent(name)}`;
  });

/** Ask what may be done, then show the page of the address. */
async function start() {
  try {
    allowed = await session();
  } catch (why) {
    if (why.status === 401) return;
  }
  show();
}

/** Show the page of the address. */
function show() {
  page?.stop();
  asking = false;
  light.hidden = true;
  leave.hidden = !token();
  for (const dialog of document.querySelectorAll("dialog")) dialog.close();
  const name = named();
  const tools = { create, failed, state, home, may };
  page = name ? campaignPage(name, tools) : listPage(tools);
  document.title = name ? `${name} · kofn` : "Campaigns · kofn";
  crumb.replaceChildren(
    ...(name
      ? [h("a", { href: "#/", "aria-keyshortcuts": "c", title: "All campaigns (c)" }, icon("back"), "Campaigns")]
      : []),
  );
  main.replaceChildren(page.element);
  window.scrollTo(0, 0);
}

function named() {
  try {
    return decodeURIComponent(location.hash.replace(/^#\/?/, ""));
  } catch {
    return "";
  }
}

/** Say in place of the page what went wrong, and how to go on. */
function failed(why) {
  const gone = why.status === 404;
  light.hidden = true;
  main.replaceChildren(
    h(
      "div",
      { class: "page" },
      h(
        "div",
        { class: "empty panel", role: "alert" },
        h("span", { class: "empty-sign" }, icon("warn")),
        h("h1", {}, gone ? "Not here" : why.status ? "That did not work" : "No connection"),
        h("p", { class: "quiet" }, why.message),
        h(
          "div",
          { class: "tools" },
          gone
            ? h("a", { class: "button primary", href: "#/" }, "All campaigns")
            : h("button", { class: "button primary", type: "button", on: { click: show } }, "Try again"),
        ),
      ),
    ),
  );
}

onTokenNeeded((why) => {
  if (asking) return;
  asking = true;
  page?.stop();
  light.hidden = true;
  for (const dialog of document.querySelectorAll("dialog")) dialog.close();
  const said = token() ? why.message : null;
  setToken(null);
  leave.hidden = true;
  document.title = "Sign in · kofn";
  main.replaceChildren(
    h(
      "div",
      { class: "page" },
      login(said, () => {
        asking = false;
        start();
      }),
    ),
  );
});

const KEYS = { n: create, "?": shortcuts, t: () => window.kofnTheme.toggle(), c: home };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.key === "Escape" && event.target.matches?.("input[type=search]")) return event.target.blur();
  if (event.target.closest?.("input, textarea, select") && event.target.type !== "radio") return;
  if (asking && event.key === "n") return;
  const work = page?.keys[event.key] ?? KEYS[event.key];
  if (!work) return;
  event.preventDefault();
  work();
});

// "Skip to the content" is an address of its own kind: it moves the focus, not the page.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", () => {
  show();
  main.focus({ preventScroll: true });
});
setInterval(tick, 5000);
start();
