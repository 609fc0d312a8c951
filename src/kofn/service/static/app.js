// The dashboard: header, routing by URL hash, keyboard shortcuts.

import { onTokenNeeded, session, setToken, token } from "./api.js";
import { listPage } from "./campaign_list.js";
import { campaignPage } from "./campaign_page.js";
import { createDialog } from "./create_dialog.js";
import { login, shortcuts, toast } from "./dialogs.js";
import { button, h, icon, setText } from "./dom.js";
import { refreshTimes } from "./side_panels.js";

const main = document.getElementById("main");
const bar = document.getElementById("bar");
let page = null,
  signingIn = false,
  allowed = { scope: "full", campaign: null };

const STATES = { live: "Live", polling: "Polling", offline: "No connection" };
const light = h(
  "span",
  { class: "live", role: "status", hidden: true },
  h("i", { "aria-hidden": "true" }),
  h("span", {}),
);
let link = "live";

/** Tell assistive technology, and whoever waits for it, whether the page is still loading what it is to show. */
const setBusy = (busy) => main.setAttribute("aria-busy", String(busy));

/** Show how updates arrive. "loaded" means that data is shown and the connection is back, in the mode that was used
 * before. */
function state(next) {
  if (next === "loaded") setBusy(false);
  if (next === "live" || next === "polling") link = next;
  const now = next === "loaded" ? link : next;
  light.hidden = false;
  light.className = `live is-${now}`;
  setText(light.lastElementChild, STATES[now]);
}

const tool = (sign, label, keys, click) => {
  const title = keys ? `${label} (${keys})` : label;
  return button({ kind: "icon-only ghost", label, title, "aria-keyshortcuts": keys, click }, icon(sign));
};
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
    h("img", { src: "logo.svg", alt: "", width: "28", height: "28" }),
    h("span", {}, "kofn"),
  ),
  crumb,
  h("span", { class: "grow" }),
  light,
  tool("theme", "Toggle dark mode", "t", () => window.kofnTheme.toggle()),
  keys,
  leave,
);
document
  .getElementById("foot")
  .append(
    h("span", { class: "by-key" }, "Press ", h("kbd", {}, "?"), " for shortcuts"),
    h("a", { href: "api/openapi.json" }, "OpenAPI document"),
  );

/** What the token allows. Other actions are hidden. */
const may = { change: () => allowed.scope === "full", create: () => allowed.scope === "full" && !allowed.campaign };

const create = () =>
  may.create() &&
  createDialog((name) => {
    toast(`${name} is created`);
    location.hash = `#/${encodeURIComponent(name)}`;
  });

/** Take the token of a link such as `/#token=kofn_...`, which `kofn serve` prints, and remove it from the address. */
function takeToken() {
  const found = /^#token=([^/&]+)$/.exec(location.hash);
  if (!found) return;
  setToken(decodeURIComponent(found[1]));
  history.replaceState(null, "", "#/");
}

/** Load what the token allows, then show the page. */
async function start() {
  setBusy(true);
  takeToken();
  try {
    allowed = await session();
  } catch (error) {
    if (error.status === 401) return;
    if (error.status === 403) return signIn("This token is for web pages: it may only decide and reward. Sign in with another one.");
  }
  show();
}

/** End what the page does, and close its dialogs. */
function leavePage() {
  if (!page) return; // the list of shortcuts may be open, and stays
  page.stop();
  page = null;
  light.hidden = true;
  for (const dialog of document.querySelectorAll("dialog")) dialog.close();
}

/** Show the page that the URL hash names. */
function show() {
  setBusy(true);
  leavePage();
  signingIn = false;
  leave.hidden = !token();
  const name = campaignName();
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

function campaignName() {
  try {
    return decodeURIComponent(location.hash.replace(/^#\/?/, ""));
  } catch {
    return "";
  }
}

/** Show an error in place of the page. */
function failed(error) {
  const missing = error.status === 404;
  setBusy(false);
  light.hidden = true;
  main.replaceChildren(
    h(
      "div",
      { class: "page" },
      h(
        "div",
        { class: "empty panel", role: "alert" },
        h("span", { class: "empty-sign" }, icon("warn")),
        h("h1", {}, missing ? "Not found" : error.status ? "Something went wrong" : "No connection"),
        h("p", { class: "quiet" }, error.message),
        h(
          "div",
          { class: "tools" },
          missing
            ? h("a", { class: "button primary", href: "#/" }, "All campaigns")
            : button({ kind: "primary", click: show }, "Try again"),
        ),
      ),
    ),
  );
}

onTokenNeeded((error) => signIn(token() ? error.message : null));

/** Show the form that asks for a token, and why the last one is not accepted. */
function signIn(message) {
  if (signingIn) return;
  signingIn = true;
  setBusy(false);
  leavePage();
  setToken(null);
  leave.hidden = true;
  document.title = "Sign in · kofn";
  main.replaceChildren(
    h(
      "div",
      { class: "page" },
      login(message, () => {
        signingIn = false;
        start();
      }),
    ),
  );
}

const KEYS = { "?": shortcuts, t: () => window.kofnTheme.toggle() };
const KEYS_OF_PAGES = { n: create, c: home }; // not before it is known what the token allows

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.key === "Escape" && event.target.matches?.("input[type=search]")) return event.target.blur();
  if (event.target.closest?.("input, textarea, select") && event.target.type !== "radio") return;
  const known = page ? { ...KEYS, ...KEYS_OF_PAGES, ...page.keys } : KEYS;
  const work = known[event.key];
  if (!work) return;
  event.preventDefault();
  work();
});

// The link "Skip to content" moves the focus; its hash is not a page.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#token=")) start();
  else show();
  main.focus({ preventScroll: true });
});
setInterval(refreshTimes, 5000);
start();
