// The panels beside the chart: the best subset, what is being tried, what is in flight, what happened.

import { h, icon, keyed, say, setVars } from "./dom.js";
import { ago, count, exact, moment, plural } from "./format.js";

const CHIPS = 12;
const ROWS = 5;
const HAPPENED = 6;

function panel(name, title, ...inside) {
  return h(
    "section",
    { class: `panel ${name}`, "aria-labelledby": `${name}-title` },
    h("div", { class: "panel-head" }, h("h2", { id: `${name}-title` }, title), h("span", { class: "panel-count" })),
    ...inside,
  );
}

const counted = (element, text) => say(element.querySelector(".panel-count"), text);

/** Names in a row; of very many, the first. */
export function chips(names, most = CHIPS) {
  const shown = names.slice(0, most).map((name) => h("span", { class: "chip", title: name }, name));
  if (names.length > most) shown.push(h("span", { class: "chip more" }, `and ${exact(names.length - most)} more`));
  return shown;
}

/** What shows the rest of a list; hidden until there is one. */
function restButton(click) {
  return h("button", { class: "button wide ghost", type: "button", hidden: true, on: { click } });
}

export function bestPanel() {
  const list = h("ol", { class: "best-list" });
  const rest = restButton(() => {
    all = true;
    redraw();
  });
  const element = panel("best-set", "Best set now", list, rest);
  let names = [],
    all = false;

  function redraw() {
    const shown = all ? names : names.slice(0, CHIPS);
    keyed(list, shown, { key: (name) => name, create: (name) => h("li", {}, h("span", { title: name }, name)) });
    rest.hidden = shown.length === names.length;
    say(rest, `Show all ${exact(names.length)}`);
  }

  return {
    element,
    update({ best, summary, arms }) {
      const good = summary.direction === "minimize" ? -1 : 1;
      const worth = new Map(arms.map((arm) => [arm.name, good * (arm.effect ?? 0)]));
      names = best.toSorted((a, b) => worth.get(b) - worth.get(a));
      counted(element, `${summary.k} of ${exact(summary.arms)}`);
      element.classList.toggle("is-guess", !summary.rewards);
      redraw();
    },
  };
}

export function tryingPanel() {
  const list = h("ul", { class: "rows" });
  const none = h("p", { class: "quiet" });
  const rest = restButton(() => {
    most = 20;
    redraw();
  });
  const element = panel("trying", "Being tried now", none, list, rest);
  let most = ROWS,
    insight = null;

  function redraw() {
    const { plan, summary } = insight;
    keyed(list, plan.slice(0, most), {
      key: ({ arms }) => arms.join("\n"),
      create: ({ arms }) =>
        h(
          "li",
          { class: "try" },
          h("div", { class: "chips" }, chips(arms, 8)),
          h("div", { class: "meter", "aria-hidden": "true" }, h("i", { class: "told" }), h("i", { class: "out" })),
          h("div", { class: "try-count" }),
        ),
      update: fillTry,
    });
    none.hidden = plan.length > 0;
    say(
      none,
      summary.state === "finished" ? "Nothing: the campaign is finished." : "Nothing is planned at the moment.",
    );
    rest.hidden = plan.length <= most;
    say(rest, `Show ${plan.length - most} more`);
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

function fillTry(element, { remaining: wanted, in_flight: out, observed: told }) {
  const all = Math.max(1, wanted + told);
  setVars(element.querySelector(".meter"), { "--told": told / all, "--out": Math.min(out, wanted) / all });
  say(
    element.querySelector(".try-count"),
    `${count(told)} of ${count(all)} told${out ? `, ${count(out)} in flight` : ""}`,
  );
}

export function flightPanel() {
  const list = h("ul", { class: "rows" });
  const none = h("p", { class: "quiet" }, "Every decision has its reward.");
  const element = panel("flight", "In flight", none, list);
  return {
    element,
    update({ in_flight: out, expired }, decisions) {
      keyed(list, decisions, {
        key: ({ id }) => id,
        create: ({ id, arms, at }) =>
          h(
            "li",
            { class: "fly" },
            h("div", { class: "chips" }, chips(arms, 8)),
            h(
              "div",
              { class: "fly-line" },
              h("code", { title: id }, short(id)),
              h("span", { class: "tag" }),
              since(at),
            ),
          ),
        update: (row, { expired: late }) => say(row.querySelector(".tag"), late ? "expired" : ""),
      });
      none.hidden = decisions.length > 0;
      counted(element, out || expired ? `${count(out)}${expired ? `, ${count(expired)} expired` : ""}` : "");
    },
  };
}

const short = (id) => (id.length > 14 ? `${id.slice(0, 6)}…${id.slice(-6)}` : id);

/** How long ago, kept right by `tick`. */
export const since = (at) => h("time", { datetime: at, title: moment(at) }, ago(at));

/** Bring all times on the page up to date. */
export function tick() {
  for (const element of document.querySelectorAll("time[datetime]")) say(element, ago(element.dateTime));
}

const SIGNS = {
  created: "plus",
  imported: "plus",
  paused: "pause",
  resumed: "play",
  finished: "flag",
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
  let most = HAPPENED,
    events = [];

  function redraw() {
    rest.hidden = events.length <= most;
    say(rest, `Show ${events.length - HAPPENED} earlier`);
    keyed(list, events.slice(0, most), {
      key: ({ number }) => number,
      create: ({ at, kind, message }) =>
        h(
          "li",
          { class: `event ${kind === "learned" ? "is-learned" : ""}` },
          h("span", { class: "event-sign" }, icon(SIGNS[kind] ?? "check")),
          h("div", {}, h("b", {}, kind === "learned" ? "New best set" : sentence(kind)), message && h("p", {}, message)),
          since(at),
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

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);
