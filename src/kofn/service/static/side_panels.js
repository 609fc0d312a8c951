// The panels beside the chart: best subset, current plan, decisions in flight, events.

import { capitalized } from "./api.js";
import { h, icon, setText, setVars, syncList } from "./dom.js";
import { ago, count, exact, moment, percent, plural, segmentName } from "./format.js";
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
export function restButton(click) {
  return h("button", { class: "button wide ghost", type: "button", hidden: true, on: { click } });
}

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
  return `Probability that this is the best subset: ${percent(Math.min(share, 0.9999), 1)}.`;
}

export function rulesPanel() {
  const list = h("ul", { class: "rows rule-rows" });
  const rest = restButton(() => {
    most = Infinity;
    redraw();
  });
  const element = panel("rules", "Rules", list, rest);
  let most = ROWS,
    rules = [];

  function redraw() {
    syncList(list, rules.slice(0, most), { key: (text) => text, create: (text) => h("li", {}, text) });
    rest.hidden = rules.length <= most;
    setText(rest, `Show ${rules.length - ROWS} more`);
  }

  return {
    element,
    update({ settings }) {
      rules = [...new Set((settings?.constraints ?? []).map(sentence))];
      element.hidden = !rules.length;
      counted(element, plural(rules.length, "rule"));
      redraw();
    },
  };
}

export function planPanel() {
  const list = h("ul", { class: "rows" });
  const none = h("p", { class: "quiet" }, "Nothing is planned.");
  const rest = restButton(() => {
    most = 20;
    redraw();
  });
  const element = panel("plan", "Current plan", none, list, rest);
  let most = ROWS,
    insight = null;

  function redraw() {
    const { plan, summary } = insight;
    element.hidden = summary.state !== "running" && summary.state !== "paused"; // the others do not follow it
    syncList(list, plan.slice(0, most), {
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
    });
    none.hidden = plan.length > 0;
    rest.hidden = plan.length <= most;
    setText(rest, `Show ${plan.length - most} more`);
    counted(element, plan.length ? plural(plan.length, "subset") : "");
  }
  return {
    element,
    update(next) {
      insight = next;
      redraw();
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
    update({ plays, in_flight: inFlight, expired }, decisions) {
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
      setText(none, plays ? "Every decision has a reward." : "No decisions yet.");
      counted(element, inFlight || expired ? `${count(inFlight)}${expired ? `, ${count(expired)} expired` : ""}` : "");
    },
  };
}

const short = (id) => (id.length > 14 ? `${id.slice(0, 6)}…${id.slice(-6)}` : id);

/** How long ago something happened; `refreshTimes` keeps it current. */
export const timeAgo = (at) => h("time", { datetime: at, title: moment(at) }, ago(at));

/** Update all relative times on the page. */
export function refreshTimes() {
  for (const element of document.querySelectorAll("time[datetime]")) setText(element, ago(element.dateTime));
}

const ICONS = {
  created: "plus",
  imported: "plus",
  paused: "pause",
  resumed: "play",
  shipped: "flag",
  ready: "check",
  breaker: "warn",
  stopped: "stop",
  archived: "archive",
  configured: "settings",
  learned: "spark",
  "arm added": "plus",
  "arm retired": "archive",
};

export function eventsPanel() {
  const list = h("ol", { class: "rows events-list" });
  const rest = restButton(() => {
    most = Infinity;
    redraw();
  });
  const element = panel("events", "Recent events", list, rest);
  let most = EVENTS,
    events = [];

  function redraw() {
    rest.hidden = events.length <= most;
    setText(rest, `Show ${events.length - EVENTS} earlier`);
    syncList(list, events.slice(0, most), {
      key: ({ number }) => number,
      create: ({ at, kind, message }) =>
        h(
          "li",
          { class: `event ${kind === "learned" ? "is-learned" : ""}` },
          h("span", { class: "event-sign" }, icon(ICONS[kind] ?? "check")),
          h("div", {}, h("b", {}, kind === "learned" ? "New best subset" : capitalized(kind)), message && h("p", {}, message)),
          timeAgo(at),
        ),
    });
  }
  return {
    element,
    update(next) {
      events = next;
      redraw();
    },
  };
}
