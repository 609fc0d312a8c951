// The tiles at the top of a campaign: the loss of shipping now, the lift over control, the best subset's reward, plays.

import { h, icon, s, setText, setVars } from "./dom.js";
import { count, exact, loss as lossText, perMonth, relative, reward, rough, signed } from "./format.js";
import { hasWindow, whyUnknown, words } from "./insight_facts.js";
import { interval } from "./lift_panel.js";
import { expiredOf, nextSettles } from "./side_panels.js";

const CIRCUMFERENCE = 2 * Math.PI * 20;

function tile(name, title) {
  const head = h("span", {}, title);
  const number = h("span", { class: "tile-value" }, "–");
  const unit = h("span", { class: "tile-unit" });
  const under = h("div", { class: "tile-under" });
  const more = h("span", {});
  const goal = h("div", { class: "tile-under tile-goal" }, more);
  const element = h(
    "div",
    { class: `tile ${name}`, role: "group", "aria-label": title },
    h("div", { class: "tile-title" }, head),
    h("div", { class: "tile-line" }, number, unit),
    under,
    goal,
  );

  function fill({ title: next = title, value, per = "", lines = [], tone = "" }) {
    setText(head, next);
    element.setAttribute("aria-label", next);
    setText(number, value);
    setText(unit, value === "–" ? "" : per);
    [under, more].forEach((each, i) => setText(each, lines[i] ?? ""));
    for (const each of ["good", "bad"]) element.classList.toggle(`is-${each}`, tone === each);
  }
  return { element, number, goal, fill };
}

const link = (text, click) => h("button", { class: "tile-link", type: "button", hidden: true, on: { click } }, text);

/** The tiles, and `update(insight)`. `configure(field)` opens the settings. */
export function tiles({ configure, may }) {
  const loss = tile("tile-loss", "Expected loss of shipping now"),
    lift = tile("", "Earned so far"),
    best = tile("", "Reward of the best subset"),
    plays = tile("", "Plays");
  const ready = h("span", { class: "pill ready", hidden: true });
  const addRule = link("Set a stop rule", () => configure("stop_when"));
  const addControl = link("Add a control", () => configure("control"));
  const ring = goalRing();
  const next = nextSettles("");
  plays.goal.append(next.element);
  loss.goal.prepend(ready);
  loss.goal.append(addRule);
  lift.goal.append(addControl);
  loss.element.append(ring.element);
  const element = h(
    "div",
    { class: "tiles" },
    [loss, lift, best, plays].map((each) => each.element),
  );

  function update(insight) {
    const { summary, settings, stop } = insight;
    const fixed = !may.change() || !["running", "paused"].includes(summary.state);
    loss.fill(lossTile(insight));
    ready.hidden = !stop;
    ready.classList.toggle("is-running", Boolean(stop?.ready));
    setText(ready, stop?.ready ? "ready" : "not ready");
    ready.title = stop?.reason ?? "";
    ring.update(stop);
    loss.element.classList.toggle("has-ring", Boolean(stop));
    addRule.hidden = fixed || Boolean(stop) || insight.expected_loss === null;
    lift.fill(settings?.control ? liftTile(insight) : gainTile(insight));
    addControl.hidden = fixed || Boolean(settings?.control);
    best.fill(bestTile(insight));
    plays.fill(playsTile(insight));
    next.update(insight);
    plays.number.title = `${exact(summary.plays)} plays, ${exact(summary.rewards)} rewards`;
  }
  return { element, update };
}

/** How near the loss is to the goal of the stop rule: the full circle is ready. */
function goalRing() {
  const arc = s("circle", { class: "ring-value", cx: 24, cy: 24, r: 20, "stroke-dasharray": `0 ${CIRCUMFERENCE}` });
  const track = s("circle", { class: "ring-track", cx: 24, cy: 24, r: 20 });
  const element = h(
    "span",
    { class: "ring", "aria-hidden": "true", hidden: true },
    s("svg", { viewBox: "0 0 48 48" }, track, arc),
    icon("check"),
  );
  return {
    element,
    update(stop) {
      element.hidden = !stop;
      const share = stop?.ready ? 1 : stop?.bound > 0 ? Math.min(0.97, stop.threshold / stop.bound) : 0;
      element.classList.toggle("is-ready", Boolean(stop?.ready));
      arc.setAttribute("stroke-dasharray", `${CIRCUMFERENCE * share} ${CIRCUMFERENCE}`);
    },
  };
}

const unitOf = ({ settings }) => settings?.unit ?? "";
const perPlay = (insight) => `${unitOf(insight)} per play`.trim();

/** What the expected loss is of, in states in which nobody is to ship. */
const LOSS_TITLES = { shipped: "Expected loss when shipped", archived: "Expected loss at the end" };

function lossTile(insight) {
  const { summary, stop, expected_loss: expected, plays_per_month: traffic } = insight;
  const bound = stop?.bound ?? expected;
  const title = LOSS_TITLES[summary.state];
  if (bound === null || bound === undefined) return { title, value: "–", lines: [whyUnknown(insight), goalText(insight)] };
  const month = perMonth(bound, traffic, unitOf(insight));
  return {
    title,
    value: lossText(bound, summary.reward_range, Boolean(stop)),
    per: perPlay(insight),
    lines: [month ?? "per month: known after an hour", goalText(insight)],
  };
}

function goalText(insight) {
  const { stop } = insight;
  return stop ? `goal: < ${rough(stop.threshold)}` : "";
}

function liftTile(insight) {
  const { lift, summary, plays_per_month: traffic } = insight;
  const title = `${words(insight).earned}, over the control`;
  if (!lift || lift.difference === null) return { title, value: "–", lines: ["learned and control need rewards first"] };
  const text = (value) => signed(value, summary.reward_range);
  const share = lift.relative === null ? null : relative(lift.relative);
  return {
    title,
    value: text(lift.difference),
    per: perPlay(insight),
    lines: [interval(lift, text), [share, perMonth(lift.difference, traffic, unitOf(insight))].filter(Boolean).join(", ")],
    tone: lift.claimed ? "good" : lift.harmful ? "bad" : "",
  };
}

function gainTile(insight) {
  const { gain, average, summary, plays_per_month: traffic } = insight;
  const title = words(insight).gain;
  if (gain === null) return { title, value: "–", lines: [whyUnknown(insight)] };
  const range = summary.reward_range;
  const share = average ? `${relative(gain / Math.abs(average))} of ${reward(average, range)} so far` : "";
  return {
    title,
    value: signed(gain, range),
    per: perPlay(insight),
    lines: [share, perMonth(gain, traffic, unitOf(insight)) ?? ""],
    tone: gain > 0 ? "good" : "",
  };
}

function bestTile(insight) {
  const { value, low, high, summary } = insight;
  const range = summary.reward_range;
  const title = summary.takes_context ? "Reward of the best subsets" : "Reward of the best subset";
  if (value === null) return { title, value: "–", lines: [whyUnknown(insight)] };
  return {
    title,
    value: reward(value, range),
    per: perPlay(insight),
    lines: [
      `95% interval ${reward(low, range)} to ${reward(high, range)}`,
      summary.takes_context ? "average over all segments" : "",
    ],
  };
}

function playsTile(insight) {
  const { summary, plays_per_month: traffic, clipped } = insight;
  const open = count(summary.in_flight);
  const state = hasWindow(insight) ? [`${count(summary.rewards)} settled`, `${open} open`] : [`${open} in flight`];
  return {
    value: count(summary.plays),
    per: traffic ? `about ${rough(traffic)} per month` : "",
    lines: [
      [...state, expiredOf(summary)].filter(Boolean).join(", "),
      clipped ? `${count(clipped)} outside the range` : "",
    ],
  };
}

/** Placeholders that are shown while the page loads. */
export function skeleton() {
  const block = (tall) => {
    const element = h("div", { class: "bone" });
    setVars(element, { "--tall": `${tall}px` });
    return element;
  };
  return h(
    "div",
    { class: "skeleton", "aria-busy": "true" },
    h("span", { class: "unseen" }, "Loading"),
    block(64),
    h("div", { class: "tiles" }, block(112), block(112), block(112), block(112)),
    h("div", { class: "bones" }, block(420), block(420)),
  );
}
