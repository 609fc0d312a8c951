// The panels beside the chart: best subset, current plan, decisions in flight, events.

import { capitalized } from "./api.js";
import { button, h, icon, setText, setVars, syncList } from "./dom.js";
import { ago, ahead, count, exact, moment, percent, plural, segmentName } from "./format.js";
import { bestKnown } from "./insight_facts.js";
import { sentence } from "./rules.js";

const CHIPS = 12;
const ROWS = 5;
const EVENTS = 6;

/** A panel with a title and a count. */
export function panel(name, title, ...inside) {
  return h(
    "section",
    { class: `panel ${name}`, "aria-labelledby": `${name}-title` },
    h("div", { class: "panel-head" }, h("h2", { id: `${name}-title` }, title), h("span", { class: "panel-count" })),
    ...inside,
  );
}

/** Set the count of a panel. */
export const counted = (element, text) => setText(element.querySelector(".panel-count"), text);

/** The first names as chips, and how many more there are. */
export function chips(names, most = CHIPS) {
  const shown = names.slice(0, most).map((name) => h("span", { class: "chip", title: name }, name));
  if (names.length > most) shown.push(h("span", { class: "chip more" }, `and ${exact(names.length - most)} more`));
  return shown;
}

/** The button that shows the rest of a list; hidden while there is none. */
export const restButton = (click) => button({ kind: "wide ghost", hidden: true, click });

/** A panel with a list, its first `few` items, and a button for the rest: `show(items, text of the button)`. */
function listPanel(name, title, few, item, ...before) {
  let most = few,
    shown = [];
  const list = h("ul", { class: `rows ${name}-rows` });
  const rest = restButton(() => {
    most = Infinity;
    redraw();
  });
  function redraw() {
    syncList(list, shown.slice(0, most), item);
    rest.hidden = shown.length <= most;
  }
  return {
    element: panel(name, title, ...before, list, rest),
    show(items, noun) {
      shown = items;
      setText(rest, `Show ${exact(items.length - few)} ${noun}`);
      redraw();
    },
  };
}

/** A table whose roles hold when a phone shows its rows as blocks. */
export function table(labelledBy, titles) {
  const heads = titles.map((title) => h("th", { role: "columnheader", scope: "col" }, title));
  const body = h("tbody", { role: "rowgroup" });
  const head = h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads));
  return { element: h("table", { role: "table", "aria-labelledby": labelledBy }, head, body), body, heads };
}

/** A cell of such a table. */
export const cell = (name, ...inside) => h("td", { class: name, role: "cell" }, ...inside);

export function bestPanel() {
  const list = h("ol", { class: "best-list" });
  const rest = restButton(() => {
    all = true;
    redraw();
  });
  const note = h("p", { class: "quiet" });
  const element = panel("best-subset", "Best subset", list, rest, note);
  let names = [],
    all = false;

  function redraw() {
    const shown = all ? names : names.slice(0, CHIPS);
    syncList(list, shown, { key: (name) => name, create: (name) => h("li", {}, h("span", { title: name }, name)) });
    rest.hidden = shown.length === names.length;
    setText(rest, `Show all ${exact(names.length)}`);
  }

  return {
    element,
    update(insight) {
      const { best, summary, arms, probability_best: share } = insight;
      const sign = summary.direction === "minimize" ? -1 : 1;
      const effects = new Map(arms.map((arm) => [arm.name, sign * (arm.effect ?? 0)]));
      names = bestKnown(insight) ? best.toSorted((a, b) => effects.get(b) - effects.get(a)) : [];
      setText(element.querySelector("h2"), summary.takes_context ? "Best subset for all together" : "Best subset");
      counted(element, `${summary.k} of ${exact(summary.arms)}`);
      note.hidden = names.length > 0 && share === null;
      setText(note, names.length ? noteOf(summary, share) : "Not known before the first rewards.");
      redraw();
    },
  };
}

function noteOf({ takes_context: takesContext }, share) {
  if (takesContext) return "The best if everyone got the same. Each segment has its own best subset: see Segments.";
  return `Probability that no swap of two arms improves it: ${percent(Math.min(share, 0.9999), 1)}.`;
}

export function rulesPanel() {
  const { element, show } = listPanel("rules", "Rules", ROWS, { key: (text) => text, create: (text) => h("li", {}, text) });
  return {
    element,
    update({ settings }) {
      const rules = [...new Set((settings?.constraints ?? []).map(sentence))];
      element.hidden = !rules.length;
      counted(element, plural(rules.length, "rule"));
      show(rules, "more");
    },
  };
}

export function planPanel() {
  const none = h("p", { class: "quiet" }, "Nothing is planned.");
  const item = {
    key: ({ arms, context }) => `${JSON.stringify(context)}\n${arms.join("\n")}`,
    create: ({ arms, context }) =>
      h(
        "li",
        { class: "planned" },
        context && h("div", { class: "for-whom" }, segmentName(context)),
        h("div", { class: "chips" }, chips(arms, 8)),
        h("div", { class: "meter", "aria-hidden": "true" }, h("i", { class: "observed" }), h("i", { class: "in-flight" })),
        h("div", { class: "plan-count" }),
      ),
    update: fillPlanned,
  };
  const { element, show } = listPanel("plan", "Current plan", ROWS, item, none);
  return {
    element,
    update({ plan, summary }) {
      element.hidden = summary.state !== "running" && summary.state !== "paused"; // the others do not follow it
      none.hidden = plan.length > 0;
      counted(element, plan.length ? plural(plan.length, "subset") : "");
      show(plan, "more");
    },
  };
}

function fillPlanned(element, { remaining, in_flight: inFlight, observed }) {
  const all = Math.max(1, remaining + observed);
  setVars(element.querySelector(".meter"), {
    "--observed": observed / all,
    "--in-flight": Math.min(inFlight, remaining) / all,
  });
  setText(
    element.querySelector(".plan-count"),
    `${count(observed)} of ${count(all)} observed${inFlight ? `, ${count(inFlight)} in flight` : ""}`,
  );
}

export function inFlightPanel() {
  const list = h("ul", { class: "rows" });
  const none = h("p", { class: "quiet" });
  const element = panel("in-flight-panel", "In flight", none, list);
  return {
    element,
    update({ summary }, { decisions }) {
      const { plays, in_flight: inFlight } = summary;
      syncList(list, decisions, {
        key: ({ id }) => id,
        create: ({ id, arms, at, context }) =>
          h(
            "li",
            { class: "decision" },
            context && h("div", { class: "for-whom" }, segmentName(context)),
            h("div", { class: "chips" }, chips(arms, 8)),
            h(
              "div",
              { class: "decision-line" },
              h("code", { title: id }, short(id)),
              h("span", { class: "tag" }),
              timeAgo(at),
            ),
          ),
        update: (row, { expired: late }) => setText(row.querySelector(".tag"), late ? "expired" : ""),
      });
      none.hidden = decisions.length > 0;
      setText(none, plays ? "Every decision has its reward." : "No decisions yet.");
      counted(element, plays ? [count(inFlight), expiredOf(summary)].filter(Boolean).join(", ") : "");
    },
  };
}

/** How many decisions expired without a reward, if some did. */
export const expiredOf = ({ expired }) => (expired ? `${count(expired)} expired` : "");

const short = (id) => (id.length > 14 ? `${id.slice(0, 6)}…${id.slice(-6)}` : id);

/** How long ago something happened; `refreshTimes` keeps it current. */
export const timeAgo = (at) => h("time", { datetime: at, title: moment(at) }, ago(at));

/** When the next open window ends, after other words: `update(insight)`; hidden without one. */
export function nextSettles(before) {
  const time = h("time", { class: "ahead" });
  const element = h("span", { hidden: true }, `${before}the next settles `, time);
  return {
    element,
    update({ settles }) {
      element.hidden = !settles;
      if (!settles) return;
      time.dateTime = settles;
      setText(time, ahead(settles));
    },
  };
}

/** Update all relative times on the page. */
export function refreshTimes() {
  for (const element of document.querySelectorAll("time[datetime]"))
    setText(element, (element.className === "ahead" ? ahead : ago)(element.dateTime));
}

const ICONS = {
  created: "plus",
  imported: "plus",
  paused: "pause",
  resumed: "play",
  shipped: "flag",
  ready: "check",
  breaker: "warn",
  alarm: "warn",
  "policy failed": "warn",
  stopped: "stop",
  archived: "archive",
  configured: "settings",
  learned: "spark",
  "arm added": "plus",
  "arm retired": "archive",
};

export function eventsPanel() {
  const item = {
    key: ({ number }) => number,
    create: ({ at, kind, message }) =>
      h(
        "li",
        { class: `event ${kind === "learned" ? "is-learned" : ""}` },
        h("span", { class: "event-sign" }, icon(ICONS[kind] ?? "check")),
        h("div", {}, h("b", {}, kind === "learned" ? "New best subset" : capitalized(kind)), message && h("p", {}, message)),
        timeAgo(at),
      ),
  };
  const { element, show } = listPanel("events", "Recent events", EVENTS, item);
  return { element, update: (_, { events }) => show(events, "earlier") };
}
