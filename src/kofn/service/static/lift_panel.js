// The panel that compares learned plays with control plays.

import { scale } from "./chart_data.js";
import { h, setText, setVars } from "./dom.js";
import { percent, plural, reward, withUnit } from "./format.js";
import { chips, panel, counted } from "./side_panels.js";

function group(label) {
  const value = h("b", {});
  const track = h("div", { class: "track" }, h("i", { class: "range" }), h("i", { class: "dot" }));
  const under = h("div", { class: "plan-count" });
  const element = h(
    "li",
    { class: "group" },
    h("div", { class: "group-line" }, h("span", {}, label), value),
    track,
    under,
  );
  return { element, value, track, under };
}

/** The panel; hidden without a control or rewards. */
export function liftPanel() {
  const learned = group("Learned"),
    control = group("Control");
  learned.element.classList.add("is-best");
  const arms = h("div", { class: "chips" });
  const verdict = h("p", { class: "quiet verdict" });
  const element = panel(
    "lift",
    "Learned against control",
    h("ul", { class: "rows" }, learned.element, control.element, h("li", {}, arms)),
    verdict,
  );
  let shown = null;

  function fillGroup({ value, track, under }, estimate, plays, { range, unit, place }) {
    setText(value, estimate ? withUnit(reward(estimate.mean, range), unit) : "–");
    track.hidden = !estimate;
    if (estimate) {
      const [low, high] = [estimate.low ?? range[0], estimate.high ?? range[1]];
      setVars(track, { "--low": place(low), "--high": place(high), "--at": place(estimate.mean) });
      track.title = `95% interval ${reward(low, range)} to ${reward(high, range)}`;
    }
    setText(under, plural(plays, "rewarded play"));
  }

  return {
    element,
    update({ lift, settings, sample_ratio: ratio, summary }) {
      element.hidden = !settings?.control || !lift || !summary.rewards;
      if (element.hidden) return;
      const range = summary.reward_range;
      const common = { range, unit: settings.unit, place: axis(lift, range) };
      fillGroup(learned, lift.learned, lift.plays_learned, common);
      fillGroup(control, lift.control, lift.plays_control, common);
      counted(element, ratio?.observed ? `control ${percent(ratio.observed, 1)} of decisions` : "");
      setText(verdict, verdictOf(lift));
      const now = JSON.stringify(settings.control);
      if (now === shown) return;
      shown = now;
      arms.replaceChildren(
        h("span", { class: "plan-count" }, "Control gets"),
        ...(settings.control === "uniform" ? [h("span", { class: "chip" }, "random arms")] : chips(settings.control, 8)),
      );
    },
  };
}

function verdictOf({ claimed, harmful, difference }) {
  if (difference === null) return "Both need rewards before they can be compared.";
  if (claimed) return "Learned plays were better on average so far. This holds however often you look.";
  if (harmful) return "Learned plays were worse on average so far. This holds however often you look.";
  return "No difference is certain yet.";
}

/** A function from a reward to its position, in percent: both intervals and a margin. */
function axis({ learned, control }, range) {
  const ends = [learned, control].filter(Boolean).flatMap(({ low, high, mean }) => [low ?? mean, high ?? mean, mean]);
  const from = Math.min(...ends),
    to = Math.max(...ends);
  const margin = 0.1 * (to - from) || 0.01 * (range[1] - range[0]);
  const place = scale([from - margin, to + margin], [0, 100]);
  return (value) => Math.max(0, Math.min(100, place(value)));
}
