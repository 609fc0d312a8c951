// The arms, ranked: what each is worth with its interval, how often it is shown, and the way to retire or add one.

import { h, icon, keyed, say, setVars } from "./dom.js";
import { count, exact, percent, plural, reward, signed } from "./format.js";
import { scale } from "./series.js";

const PAGE = 50;

const ORDERS = {
  worth: (good) => (a, b) => b.best - a.best || good * ((b.effect ?? 0) - (a.effect ?? 0)) || b.plays - a.plays,
  shown: () => (a, b) => b.plays - a.plays,
  name: () => (a, b) => a.name.localeCompare(b.name, "en", { numeric: true }),
};

/** The panel, and `update(insight)`. `retire(arm)` and `add()` are what its buttons do; of very many arms the first
 * have come, and `wantAll()` asks for the others. */
export function armsPanel({ retire, add, wantAll, may }) {
  let insight = null,
    order = "worth",
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
        askForAll();
        redraw();
      },
    },
  });
  const sort = h(
    "select",
    {
      class: "sort",
      "aria-label": "Order of the arms",
      on: {
        change: () => {
          order = sort.value;
          askForAll();
          redraw();
        },
      },
    },
    h("option", { value: "worth" }, "By worth"),
    h("option", { value: "shown" }, "By plays"),
    h("option", { value: "name" }, "By name"),
  );
  const addButton = h(
    "button",
    { class: "button small", type: "button", "aria-keyshortcuts": "a", title: "Add an arm (a)", on: { click: add } },
    icon("plus"),
    "Add arm",
  );
  const body = h("tbody", { role: "rowgroup" });
  const none = h("p", { class: "quiet pad", hidden: true });
  const more = h("button", {
    class: "button wide",
    type: "button",
    hidden: true,
    on: {
      click: () => {
        most += 4 * PAGE;
        askForAll();
        redraw();
      },
    },
  });
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
    h(
      "table",
      { role: "table", "aria-labelledby": "arms-title" },
      h(
        "thead",
        { role: "rowgroup" },
        h(
          "tr",
          { role: "row" },
          ["#", "Arm", "Worth, 95% interval", "", "Shown", ""].map((text, i) =>
            h(
              "th",
              { role: "columnheader", scope: "col" },
              text || h("span", { class: "unseen" }, i === 3 ? "Effect" : "Actions"),
            ),
          ),
        ),
      ),
      body,
    ),
    none,
    more,
  );

  const left = () => Math.max(0, insight.summary.arms - insight.arms.filter(({ retired }) => !retired).length);
  const askForAll = () => {
    if (left() > 0) wantAll();
  };

  function redraw() {
    if (!insight) return;
    const { summary } = insight;
    const fixed = summary.state === "finished" || !may.change();
    const arms = ranked(insight, order);
    const chosen = arms.filter(({ name }) => name.toLowerCase().includes(sought));
    const places = axis(insight.arms);
    keyed(body, chosen.slice(0, most), {
      key: ({ name, retired }) => `${retired}${name}`,
      create: (arm) => row(arm, retire),
      update: (element, arm) =>
        fillRow(element, arm, {
          summary,
          places,
          fixed,
          border: order === "worth" && !sought && arm.rank === summary.k,
        }),
    });
    none.hidden = chosen.length > 0;
    say(none, `No arm has “${find.value}” in its name.`);
    const rest = Math.max(0, chosen.length - most) + (sought ? 0 : left());
    more.hidden = rest === 0;
    say(more, `Show more: ${exact(rest)} are left`);
    addButton.hidden = fixed;
    say(note, explained(insight));
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

function explained({ arms, summary }) {
  if (arms.every(({ effect }) => effect === null)) {
    return summary.rewards
      ? "This policy does not estimate arms one by one; they stand in the order of its best guess, then by plays."
      : "Nothing has been learned yet: the first rewards will put the arms in order.";
  }
  const side = summary.direction === "minimize" ? "Lower is better. " : "";
  return `${side}What a play gains by the arm in place of one on the borderline. The dashed line is where the places end.`;
}

function ranked({ arms, summary }, order) {
  const good = summary.direction === "minimize" ? -1 : 1;
  const here = arms
    .filter(({ retired }) => !retired)
    .sort(ORDERS.worth(good))
    .map((arm, i) => ({ ...arm, rank: i + 1 }));
  const gone = arms.filter(({ retired }) => retired).map((arm) => ({ ...arm, rank: null }));
  return [...here.sort(ORDERS[order](good)), ...gone];
}

/** Where an effect stands between the ends of the column, in percent. Wild intervals are cut, not obeyed. */
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

function row(arm, retire) {
  const cell = (name, ...inside) => h("td", { class: name, role: "cell" }, ...inside);
  return h(
    "tr",
    { role: "row" },
    cell("rank"),
    cell(
      "name",
      h(
        "div",
        { class: "named" },
        h("span", { class: "arm-name", title: arm.name }, arm.name),
        h("span", { class: "tag" }),
      ),
    ),
    cell(
      "worth",
      h("div", { class: "track" }, h("i", { class: "zero" }), h("i", { class: "range" }), h("i", { class: "dot" })),
    ),
    cell("effect"),
    cell("shown", h("div", { class: "share" }, h("i", {})), h("span", {})),
    cell(
      "do",
      arm.retired
        ? ""
        : h(
            "button",
            {
              class: "button icon-only ghost",
              type: "button",
              title: `Retire ${arm.name}`,
              "aria-label": `Retire ${arm.name}`,
              on: { click: () => retire(arm.name) },
            },
            icon("archive"),
          ),
    ),
  );
}

function fillRow(element, arm, { summary, places, fixed, border }) {
  const [rank, name, worth, effect, shown, act] = element.cells;
  const range = summary.reward_range;
  element.className = [arm.best && "is-best", arm.retired && "is-retired", border && "is-border"]
    .filter(Boolean)
    .join(" ");
  say(rank, arm.rank === null ? "–" : String(arm.rank));
  say(name.querySelector(".tag"), arm.retired ? "retired" : arm.best ? "best" : "");
  const track = worth.firstElementChild;
  track.hidden = !places || arm.effect === null;
  if (!track.hidden) {
    setVars(track, {
      "--zero": places(0),
      "--low": places(arm.low),
      "--high": places(arm.high),
      "--at": places(arm.effect),
    });
    track.title = `${signed(arm.effect, range)}, 95% within ${reward(arm.low, range)} to ${reward(arm.high, range)}`;
  }
  say(effect, arm.effect === null ? "–" : signed(arm.effect, range));
  const share = summary.rewards ? Math.min(1, arm.plays / summary.rewards) : 0;
  setVars(shown.firstElementChild, { "--share": share });
  say(shown.lastElementChild, percent(share));
  shown.title = `In ${plural(arm.plays, "play")} of ${count(summary.rewards)}`;
  if (act.firstElementChild) act.firstElementChild.hidden = fixed;
}
