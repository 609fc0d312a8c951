// The tiles at the top of a campaign: probability of being best, reward of the best subset, gain per play, plays.

import { h, s, setText, setVars } from "./dom.js";
import { count, exact, percent, reward, signed } from "./format.js";

const CIRCUMFERENCE = 2 * Math.PI * 20;

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
  const probability = tile("tile-probability", "Probability of being best"),
    best = tile("", "Reward of the best subset"),
    gain = tile("tile-gain", "Gain per play"),
    plays = tile("", "Plays");
  const arc = s("circle", { class: "ring-value", cx: 24, cy: 24, r: 20, "stroke-dasharray": `0 ${CIRCUMFERENCE}` });
  probability.element.append(
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
    [probability, best, gain, plays].map((each) => each.element),
  );

  function update({ summary, value, low, high, average, gain: gained, probability_best: share, expected_loss: loss, alarms }) {
    const range = summary.reward_range;
    setText(probability.value, percent(share, 1));
    setText(probability.under, alarmNote(alarms) ?? probabilityNote(share, loss, summary));
    probability.element.classList.toggle("is-alarm", Boolean(alarms?.length));
    arc.setAttribute("stroke-dasharray", `${CIRCUMFERENCE * (share ?? 0)} ${CIRCUMFERENCE}`);
    setText(best.value, reward(value ?? null, range));
    setText(
      best.under,
      value === null
        ? summary.rewards
          ? "not estimated by this policy"
          : "no rewards yet"
        : `95% interval ${reward(low, range)} – ${reward(high, range)}`,
    );
    const better = summary.direction === "minimize" && gained !== null ? -gained : gained;
    setText(gain.value, signed(better, range));
    gain.element.classList.toggle("is-good", gained !== null && gained > 0);
    setText(
      gain.under,
      gained === null
        ? "vs. the average so far"
        : `${relative(better, average)}vs. the average of ${reward(average, range)}`,
    );
    setText(plays.value, count(summary.plays));
    plays.value.title = `${exact(summary.plays)} plays, ${exact(summary.rewards)} rewards`;
    setText(
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

function probabilityNote(share, loss, { rewards, k, reward_range: range }) {
  if (share === null) return rewards ? "not estimated by this policy" : "no rewards yet";
  const best = k === 1 ? "for the best arm" : `for the best ${k} arms together`;
  return loss === null || loss === undefined ? best : `${best}; expected loss ${reward(loss, range)} per play`;
}

const ALARMS = {
  drift: "the rewards of the best subset have changed",
  misfit: "other subsets earn something else than predicted",
};

function alarmNote(alarms) {
  if (!alarms?.length) return null;
  return alarms.map(({ kind, since }) => `Alarm since ${count(since)} rewards: ${ALARMS[kind] ?? kind}`).join(". ");
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
