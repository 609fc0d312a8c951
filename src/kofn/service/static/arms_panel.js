// The panel of arms: each arm with its effect and interval, its share of plays, and buttons to retire or add arms.

import { scale } from "./chart_data.js";
import { button, h, icon, setText, setVars, syncList } from "./dom.js";
import { count, exact, percent, reward, signed } from "./format.js";
import { bestKnown } from "./insight_facts.js";
import { cell, table } from "./side_panels.js";

const PAGE = 50;

const ORDERS = {
  effect: (sign) => (a, b) => b.best - a.best || sign * ((b.effect ?? 0) - (a.effect ?? 0)) || b.plays - a.plays,
  plays: () => (a, b) => b.plays - a.plays,
  name: () => (a, b) => a.name.localeCompare(b.name, "en", { numeric: true }),
};

/** The panel of arms. `show(arm)`, `retire(arm)`, `bringBack(arm)` and `add()` are called by its buttons, `loadAll()` when
 * arms are needed that have not been loaded. */
export function armsPanel({ show, retire, bringBack, add, loadAll, may }) {
  let insight = null,
    sought = "",
    most = PAGE;
  const find = h("input", {
    type: "search",
    class: "find",
    placeholder: "Filter arms",
    "aria-label": "Filter arms",
    "aria-keyshortcuts": "/",
    autocomplete: "off",
    spellcheck: "false",
    on: {
      input: () => {
        sought = find.value.trim().toLowerCase();
        most = PAGE;
        redrawAll();
      },
    },
  });
  const sort = h(
    "select",
    { class: "sort", "aria-label": "Sort arms", on: { change: redrawAll } },
    Object.keys(ORDERS).map((value) => h("option", { value }, `By ${value}`)),
  );
  const about = { "aria-keyshortcuts": "a", title: "Add an arm (a)" };
  const addButton = button({ kind: "small", ...about, click: add }, icon("plus"), "Add arm");
  const unseen = (text) => h("span", { class: "unseen" }, text);
  const titles = ["#", "Arm", "Effect, 95% interval", unseen("Effect"), "Share of plays", unseen("Actions")];
  const { element: arms, body } = table("arms-title", titles);
  const none = h("p", { class: "quiet pad", hidden: true });
  const showMore = () => {
    most += 4 * PAGE;
    redrawAll();
  };
  const more = button({ kind: "wide", hidden: true, click: showMore });
  const note = h("p", { class: "panel-note" });
  const element = h(
    "section",
    { class: "panel arms", "aria-labelledby": "arms-title" },
    h(
      "div",
      { class: "panel-head" },
      h("h2", { id: "arms-title" }, "Arms"),
      h("div", { class: "tools" }, h("label", { class: "finder" }, icon("search"), find), sort, addButton),
    ),
    note,
    arms,
    none,
    more,
  );

  const left = () => Math.max(0, insight.summary.arms - insight.arms.filter(({ retired }) => !retired).length);
  function redrawAll() {
    if (left() > 0) loadAll();
    redraw();
  }

  function redraw() {
    if (!insight) return;
    const { summary } = insight;
    const order = sort.value;
    const fixed = ["stopped", "archived"].includes(summary.state) || !may.change();
    const arms = ranked(insight, order);
    const chosen = arms.filter(({ name }) => name.toLowerCase().includes(sought));
    const places = axis(insight.arms);
    syncList(body, chosen.slice(0, most), {
      key: ({ name, retired }) => `${retired}${name}`,
      create: (arm) => row(arm, { show, retire, bringBack }),
      update: (element, arm) =>
        fillRow(element, arm, {
          summary,
          places,
          fixed,
          border: bestKnown(insight) && order === "effect" && !sought && arm.rank === summary.k,
        }),
    });
    none.hidden = chosen.length > 0;
    setText(none, `No arm name contains “${find.value}”.`);
    const rest = Math.max(0, chosen.length - most) + (sought ? 0 : left());
    more.hidden = rest === 0;
    setText(more, `Show more (${exact(rest)} remaining)`);
    addButton.hidden = fixed;
    setText(note, explanation(insight));
  }

  return {
    element,
    focus: () => find.focus(),
    update(next) {
      insight = next;
      redraw();
    },
  };
}

function explanation(insight) {
  const { arms, summary, settings } = insight;
  if (!bestKnown(insight)) return "The arms are ranked after the first rewards.";
  if (arms.every(({ effect }) => effect === null))
    return "This policy does not estimate individual arms. The best subset is listed first, then arms by plays.";
  const prefix = summary.direction === "minimize" ? "Lower is better. " : "";
  const average = summary.takes_context ? ", on average over all segments" : "";
  const best = summary.takes_context ? "best subset for all" : `best ${summary.k}`;
  const change = settings?.unit ? `Change in ${settings.unit} per play` : "Change of the reward per play";
  return `${prefix}${change} when the arm replaces a borderline arm${average}. The dashed line separates the ${best}.`;
}

function ranked(insight, order) {
  const { arms, summary } = insight;
  const known = bestKnown(insight);
  const sign = summary.direction === "minimize" ? -1 : 1;
  const here = arms
    .filter(({ retired }) => !retired)
    .sort(ORDERS.effect(sign))
    .map((arm, i) => ({ ...arm, best: arm.best && known, rank: known ? i + 1 : null }));
  const gone = arms.filter(({ retired }) => retired).map((arm) => ({ ...arm, rank: null }));
  return [...here.sort(ORDERS[order](sign)), ...gone];
}

/** A function from an effect to its position in the column, in percent. Very wide intervals are cut off. */
function axis(arms) {
  const known = arms.filter(({ effect }) => effect !== null);
  if (!known.length) return null;
  const middle = known.map(({ effect }) => effect);
  const wide = median(known.map(({ low, high }) => high - low));
  const from = Math.min(0, ...middle) - 0.6 * wide,
    to = Math.max(0, ...middle) + 0.6 * wide;
  const place = scale([from, to], [0, 100]);
  return (value) => Math.max(0, Math.min(100, place(value)));
}

function median(values) {
  return values.toSorted((a, b) => a - b)[values.length >> 1];
}

function row(arm, { show, retire, bringBack }) {
  const act = (verb, sign, work) => {
    const label = `${verb} ${arm.name}`;
    return button({ kind: "icon-only ghost", title: label, label, click: () => work(arm.name) }, icon(sign));
  };
  return h(
    "tr",
    { role: "row" },
    cell("rank"),
    cell(
      "name",
      h(
        "div",
        { class: "named" },
        h(
          "button",
          { class: "arm-link", type: "button", title: `${arm.name}: effect over time`, on: { click: () => show(arm.name) } },
          h("span", { class: "arm-name" }, arm.name),
        ),
        h("span", { class: "tag" }),
      ),
    ),
    cell("effect-range", h("div", { class: "track" }, ["zero", "range", "dot"].map((each) => h("i", { class: each })))),
    cell("effect"),
    cell("shown", h("div", { class: "share" }, h("i", {})), h("span", {})),
    cell("do", arm.retired ? act("Bring back", "undo", bringBack) : act("Retire", "archive", retire)),
  );
}

function fillRow(element, arm, { summary, places, fixed, border }) {
  const [rank, name, effectRange, effect, shown, act] = element.cells;
  const range = summary.reward_range;
  element.className = [arm.best && "is-best", arm.retired && "is-retired", border && "is-border"]
    .filter(Boolean)
    .join(" ");
  setText(rank, arm.rank === null ? "–" : String(arm.rank));
  setText(name.querySelector(".tag"), arm.retired ? "retired" : arm.best ? "best" : "");
  const track = effectRange.firstElementChild;
  track.hidden = !places || arm.effect === null;
  if (!track.hidden) {
    setVars(track, {
      "--zero": places(0),
      "--low": places(arm.low),
      "--high": places(arm.high),
      "--at": places(arm.effect),
    });
    track.title = `${signed(arm.effect, range)}, 95% interval ${reward(arm.low, range)} to ${reward(arm.high, range)}`;
  }
  setText(effect, arm.effect === null ? "–" : signed(arm.effect, range));
  const share = summary.rewards ? Math.min(1, arm.plays / summary.rewards) : 0;
  setVars(shown.firstElementChild, { "--share": share });
  setText(shown.lastElementChild, percent(share));
  shown.title = `In ${count(arm.plays)} of ${count(summary.rewards)} rewarded plays`;
  if (act.firstElementChild) act.firstElementChild.hidden = fixed;
}
