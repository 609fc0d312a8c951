// The page that lists all campaigns.

import * as api from "./api.js";
import { sparkline } from "./chart.js";
import { h, icon, listItem, s, setText, syncList } from "./dom.js";
import { count, exact, reward } from "./format.js";
import { throttled, watch } from "./live_updates.js";
import { timeAgo } from "./side_panels.js";

const RELOAD_INTERVAL = 1500; // milliseconds between two reloads, at least
const SPARKLINES = 24; // campaigns with a sparkline
const SPARKLINE_INTERVAL = 12_000; // milliseconds between two requests for one sparkline, at least

/** The list of campaigns. `stop()` ends its requests. */
export function listPage({ create, failed, state, may }) {
  const find = h("input", {
    type: "search",
    class: "find",
    placeholder: "Filter campaigns",
    "aria-label": "Filter campaigns",
    "aria-keyshortcuts": "/",
    autocomplete: "off",
    on: { input: redraw },
  });
  const rows = h("ul", { class: "cards", "aria-label": "Campaigns" });
  const none = h("p", { class: "quiet pad", role: "status", hidden: true });
  const bones = h(
    "ul",
    { class: "cards", "aria-busy": "true" },
    [1, 2, 3].map(() => h("li", { class: "bone card-bone" })),
  );
  const under = h("p", { class: "lede" });
  const newButton = h(
    "button",
    {
      class: "button primary",
      type: "button",
      "aria-keyshortcuts": "n",
      title: "New campaign (n)",
      on: { click: create },
    },
    icon("plus"),
    "New campaign",
  );
  const tools = h("div", { class: "tools" }, h("label", { class: "finder" }, icon("search"), find), newButton);
  const blank = empty(create);
  blank.hidden = true;
  const element = h(
    "div",
    { class: "page list-page" },
    h("div", { class: "page-head" }, h("div", {}, h("h1", {}, "Campaigns"), under), tools),
    bones,
    rows,
    none,
    blank,
  );
  const sparks = new Map();
  let all = null,
    stopped = false,
    stopWatching = () => {};

  function redraw() {
    if (!all) return;
    const sought = find.value.trim().toLowerCase();
    const chosen = all.filter(({ name }) => name.toLowerCase().includes(sought));
    syncList(rows, chosen, { key: ({ name, created }) => name + created, create: card, update: fillCard });
    bones.hidden = true;
    blank.hidden = all.length > 0;
    tools.hidden = all.length === 0;
    newButton.hidden = !may.create();
    none.hidden = chosen.length > 0 || !all.length;
    setText(none, `No campaign name contains “${find.value}”.`);
    const running = all.filter((each) => each.state === "running").length;
    setText(under, all.length ? `${exact(running)} running, ${exact(all.length)} in total` : "Nothing to show yet.");
  }

  /** Draw the sparklines of the first campaigns. Each is one small request, repeated only after a change. */
  async function drawSparklines() {
    for (const each of all.slice(0, SPARKLINES)) {
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
    try {
      all = await api.campaigns();
      if (stopped) return;
      state("loaded");
      redraw();
      await drawSparklines();
    } catch (error) {
      if (stopped || error.status === 401) return;
      if (!(error instanceof api.ApiError)) throw error;
      if (all) return state("offline");
      stop();
      failed(error);
    }
  }
  const refresh = throttled(load, RELOAD_INTERVAL);
  const stop = () => {
    stopped = true;
    refresh.stop();
    stopWatching();
  };
  stopWatching = watch(null, { changed: refresh, state });
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
    h("div", { class: "card-line" }, h("span", { class: "pill" }), h("span", { class: "card-sub" })),
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
  setText(element.querySelector(".mean dd"), reward(each.mean, each.reward_range));
  setText(element.querySelector(".plays dd"), count(each.plays));
  setText(element.querySelector(".flight dd"), count(each.in_flight));
  const changed = element.querySelector(".changed dd");
  if (changed.firstElementChild?.dateTime !== each.changed) changed.replaceChildren(timeAgo(each.changed));
}

const START = `campaign = kofn.Campaign.create("front-page", arms=goods, k=5)
decision = campaign.decide()         # show decision.arms
campaign.reward(decision.id, 0.7)    # later, from any process`;

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
    h(
      "button",
      { class: "button primary", type: "button", on: { click: create } },
      icon("plus"),
      "Create the first campaign",
    ),
    h("p", { class: "quiet or" }, "or in Python"),
    h("pre", { tabindex: "0", "aria-label": "Example in Python" }, h("code", {}, START)),
  );
}
