// The numbers at the top of a campaign: how sure it is, what the best subset earns, what learning gains, plays.

import { h, s, say, setVars } from "./dom.js";
import { count, exact, percent, reward, signed } from "./format.js";

const ROUND = 2 * Math.PI * 20;

function tile(name, title) {
  const value = h("div", { class: "tile-value" }, "–");
  const under = h("div", { class: "tile-under" });
  const element = h(
    "div",
    { class: `tile ${name}`, role: "group", "aria-label": title },
    h("div", { class: "tile-title" }, title),
    value,
    under,
  );
  return { element, value, under };
}

/** The tiles, and `update(insight)`. */
export function tiles() {
  const sure = tile("tile-sure", "How sure it is"),
    earns = tile("", "The best set earns"),
    gain = tile("tile-gain", "Learning gain per play"),
    plays = tile("", "Plays");
  const arc = s("circle", { class: "ring-value", cx: 24, cy: 24, r: 20, "stroke-dasharray": `0 ${ROUND}` });
  sure.element.append(
    s(
      "svg",
      { class: "ring", viewBox: "0 0 48 48", "aria-hidden": "true" },
      s("circle", { class: "ring-track", cx: 24, cy: 24, r: 20 }),
      arc,
    ),
  );
  const element = h(
    "div",
    { class: "tiles" },
    [sure, earns, gain, plays].map((each) => each.element),
  );

  function update({ summary, value, low, high, average, gain: gained, probability_best: share }) {
    const range = summary.reward_range;
    say(sure.value, percent(share, 1));
    say(sure.under, sureness(share, summary));
    arc.setAttribute("stroke-dasharray", `${ROUND * (share ?? 0)} ${ROUND}`);
    say(earns.value, reward(value ?? null, range));
    say(
      earns.under,
      value === null
        ? summary.rewards
          ? "this policy does not say"
          : "no reward yet"
        : `95% within ${reward(low, range)} – ${reward(high, range)}`,
    );
    const better = summary.direction === "minimize" && gained !== null ? -gained : gained;
    say(gain.value, signed(better, range));
    gain.element.classList.toggle("is-good", gained !== null && gained > 0);
    say(
      gain.under,
      gained === null
        ? "against the average so far"
        : `${relative(better, average)}against the average of ${reward(average, range)}`,
    );
    say(plays.value, count(summary.plays));
    plays.value.title = `${exact(summary.plays)} plays, ${exact(summary.rewards)} rewards`;
    say(
      plays.under,
      `${count(summary.in_flight)} in flight${summary.expired ? `, ${count(summary.expired)} expired` : ""}`,
    );
  }
  return { element, update };
}

function relative(gained, average) {
  if (!average) return "";
  const share = (100 * gained) / Math.abs(average);
  return `${share > 0 ? "+" : share < 0 ? "−" : ""}${Math.abs(share).toFixed(Math.abs(share) < 10 ? 1 : 0)}% `;
}

function sureness(share, { rewards, k }) {
  if (share === null) return rewards ? "this policy does not say" : "no reward yet";
  const set = k === 1 ? "that the best arm is right" : `that these ${k} are the best ${k}`;
  return set;
}

/** Blocks where the page will be, while its data is on the way. */
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
