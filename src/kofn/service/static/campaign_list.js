// The page that lists all campaigns.

import * as api from "./api.js";
import { sparkline } from "./chart.js";
import { button, h, icon, listItem, s, setText, syncList } from "./dom.js";
import { firstSteps } from "./first_steps.js";
import { count, exact, plural, reward, withUnit } from "./format.js";
import { throttled, watch } from "./live_updates.js";
import { timeAgo } from "./side_panels.js";

const RELOAD_INTERVAL = 1500; // milliseconds between two reloads, at least
const PAGE_SIZE = 48; // campaigns of one page
const TYPING_PAUSE = 200; // milliseconds without a key after which the service is asked
const STATES = ["running", "paused", "shipped", "stopped"];
const HIDDEN = "archived"; // listed only if it is asked for
const SPARKLINES = 24; // campaigns with a sparkline
const SPARKLINE_INTERVAL = 12_000; // milliseconds between two requests for one sparkline, at least

/** The list of campaigns: a page of them, found by name and state. `stop()` ends its requests. */
export function listPage({ create, failed, state, may }) {
  const find = h("input", {
    type: "search",
    class: "find",
    placeholder: "Filter campaigns",
    "aria-label": "Filter campaigns",
    "aria-keyshortcuts": "/",
    autocomplete: "off",
    maxlength: "200",
    on: { input: () => typed() },
  });
  const rows = h("ul", { class: "cards", "aria-label": "Campaigns" });
  const none = h("p", { class: "quiet pad", role: "status", hidden: true });
  const bones = h(
    "ul",
    { class: "cards", "aria-busy": "true" },
    [1, 2, 3].map(() => h("li", { class: "bone card-bone" })),
  );
  const under = h("p", { class: "lede" });
  const about = { "aria-keyshortcuts": "n", title: "New campaign (n)" };
  const newButton = button({ kind: "primary", ...about, click: create }, icon("plus"), "New campaign");
  const chosen = h(
    "select",
    { class: "state-filter", "aria-label": "State", on: { change: () => search() } },
    [["", "All but archived"], ...[...STATES, HIDDEN].map((each) => [each, api.capitalized(each)])].map(([value, label]) =>
      h("option", { value }, label),
    ),
  );
  const turn = (label, text, by) => button({ label, click: () => turnTo(offset + by) }, text);
  const back = turn("Previous page", "Previous", -PAGE_SIZE);
  const on = turn("Next page", "Next", PAGE_SIZE);
  const where = h("span", { class: "quiet", role: "status" });
  const pager = h("nav", { class: "pager", "aria-label": "Pages", hidden: true }, back, where, on);
  const tools = h("div", { class: "tools" }, h("label", { class: "finder" }, icon("search"), find), chosen, newButton);
  const blank = empty(create);
  blank.hidden = true;
  const element = h(
    "div",
    { class: "page list-page" },
    h("div", { class: "page-head" }, h("div", {}, h("h1", {}, "Campaigns"), under), tools),
    bones,
    rows,
    none,
    pager,
    blank,
  );
  const sparks = new Map();
  let shown = null,
    offset = 0,
    turns = 0,
    stopped = false,
    typing = null,
    stopWatching = () => {};

  function redraw() {
    const { campaigns, count: found, states } = shown;
    syncList(rows, campaigns, { key: ({ name, created }) => name + created, create: card, update: fillCard });
    const total = STATES.reduce((sum, each) => sum + (states[each] ?? 0), 0);
    const asked = find.value.trim() || chosen.value;
    bones.hidden = true;
    blank.hidden = Boolean(total || states[HIDDEN] || asked);
    tools.hidden = !blank.hidden;
    newButton.hidden = !may.create();
    none.hidden = campaigns.length > 0 || !blank.hidden;
    setText(none, missing());
    pager.hidden = found <= PAGE_SIZE;
    back.disabled = offset === 0;
    on.disabled = offset + PAGE_SIZE >= found;
    setText(where, `${exact(offset + 1)} to ${exact(offset + campaigns.length)} of ${exact(found)}`);
    const counted = `${exact(states.running ?? 0)} running, ${exact(total)} in total`;
    setText(under, blank.hidden ? (find.value.trim() ? `${counted} with this name` : counted) : "Nothing to show yet.");
  }

  function missing() {
    const sought = find.value.trim();
    if (!chosen.value && !sought) return "All campaigns are archived.";
    if (!chosen.value) return `No campaign name contains “${sought}”.`;
    return `No ${chosen.value} campaign${sought ? ` has a name that contains “${sought}”` : "s"}.`;
  }

  /** Draw the sparklines of the first campaigns. Each is one small request, repeated only after a change. */
  async function drawSparklines() {
    const asked = turns;
    for (const each of shown.campaigns.slice(0, SPARKLINES)) {
      if (asked !== turns) return; // another page is asked for
      const known = sparks.get(each.name);
      if (stopped || !each.rewards || known?.version === each.version || (known && Date.now() - known.at < SPARKLINE_INTERVAL))
        continue;
      sparks.set(each.name, { version: each.version, at: Date.now() });
      const points = await api.history(each.name, 80).catch(() => []);
      listItem(rows, each.name + each.created)
        ?.querySelector(".card-spark")
        .replaceChildren(sparkline(points, each.reward_range, `Reward of ${each.name} over time`));
    }
  }

  async function load() {
    const asked = { q: find.value.trim(), state: chosen.value, offset, limit: PAGE_SIZE };
    try {
      const found = await api.campaigns(asked);
      if (stopped) return;
      if (asked.q !== find.value.trim() || asked.state !== chosen.value || asked.offset !== offset) return refresh.now();
      if (offset && !found.campaigns.length) return turnTo(0); // campaigns were deleted
      shown = found;
      state("loaded");
      redraw();
      await drawSparklines();
    } catch (error) {
      if (stopped || error.status === 401) return;
      if (!(error instanceof api.ApiError)) throw error;
      if (shown) return state("offline");
      stop();
      failed(error);
    }
  }
  const refresh = throttled(load, RELOAD_INTERVAL);

  function turnTo(next) {
    offset = Math.max(0, next);
    turns += 1;
    sparks.clear();
    refresh.now();
    window.scrollTo(0, 0);
  }
  function search() {
    clearTimeout(typing);
    turnTo(0);
  }
  function typed() {
    clearTimeout(typing);
    typing = setTimeout(search, TYPING_PAUSE);
  }

  const stop = () => {
    stopped = true;
    clearTimeout(typing);
    refresh.stop();
    stopWatching();
  };
  stopWatching = watch(null, { onChange: refresh, state });
  refresh();

  function step(by) {
    const links = [...rows.querySelectorAll("a")];
    const here = links.indexOf(document.activeElement);
    links[here < 0 ? (by > 0 ? 0 : links.length - 1) : Math.max(0, Math.min(links.length - 1, here + by))]?.focus();
  }
  return { element, stop, keys: { "/": () => find.focus(), j: () => step(1), k: () => step(-1) } };
}

function card({ name }) {
  const fact = (label, key) => h("div", { class: `fact ${key}` }, h("dt", {}, label), h("dd", {}));
  return h(
    "li",
    { class: "card" },
    h("a", { href: `#/${encodeURIComponent(name)}`, class: "card-link" }, h("span", { class: "card-name" }, name)),
    h(
      "div",
      { class: "card-line" },
      h("span", { class: "pill" }),
      h("span", { class: "card-alarm", hidden: true }, icon("warn"), h("span", {})),
      h("span", { class: "card-sub" }),
    ),
    h("div", { class: "card-spark" }),
    h(
      "dl",
      { class: "facts" },
      fact("Mean reward", "mean"),
      fact("Plays", "plays"),
      fact("In flight", "flight"),
      h("div", { class: "fact changed" }, h("dt", {}, "Changed"), h("dd", {})),
    ),
  );
}

function fillCard(element, each) {
  const pill = element.querySelector(".pill");
  pill.className = `pill is-${each.state}`;
  setText(pill, each.state);
  setText(
    element.querySelector(".card-sub"),
    `${each.k} of ${exact(each.arms)} arms${each.direction === "minimize" ? " · lower is better" : ""}`,
  );
  const alarm = element.querySelector(".card-alarm");
  alarm.hidden = !each.alarms && !each.failing;
  setText(alarm.lastElementChild, each.failing ? "policy fails" : plural(each.alarms, "alarm"));
  setText(element.querySelector(".mean dd"), each.mean === null ? "–" : withUnit(reward(each.mean, each.reward_range), each.unit));
  setText(element.querySelector(".plays dd"), count(each.plays));
  setText(element.querySelector(".flight dd"), count(each.in_flight));
  const changed = element.querySelector(".changed dd");
  if (changed.firstElementChild?.dateTime !== each.changed) changed.replaceChildren(timeAgo(each.changed));
}

function empty(create) {
  const dots = Array.from({ length: 15 }, (_, i) =>
    s("circle", {
      cx: 14 + (i % 5) * 22,
      cy: 14 + Math.floor(i / 5) * 22,
      r: 7,
      class: [1, 5, 8, 12].includes(i) ? "picked" : "",
    }),
  );
  return h(
    "div",
    { class: "empty panel" },
    s("svg", { class: "dots", viewBox: "0 0 116 72", "aria-hidden": "true" }, dots),
    h("h2", {}, "No campaigns yet"),
    h(
      "p",
      { class: "quiet" },
      "List the arms to choose from and how many to show at a time. kofn learns the best subset from one reward per decision.",
    ),
    button({ kind: "primary", click: create }, icon("plus"), "Create the first campaign"),
    h("p", { class: "quiet or" }, "or paste this"),
    firstSteps({ name: "front-page", create: true }),
  );
}
