// The panels that compare learned plays with control plays: by the reward, and by the metrics beside it.

import { scale } from "./chart_data.js";
import { h, setText, setVars, syncList } from "./dom.js";
import { metric as number, moment, percent, plural, relative, reward, signed, signedMetric, withUnit } from "./format.js";
import { words } from "./insight_facts.js";
import { chips, panel, counted } from "./side_panels.js";

export const OVER = "Per play, over the control";

/** Names with their values and notes: `update([[name, value, note], ...])`. */
export function figures(caption) {
  const list = h("dl", {});
  const element = h("div", { class: "figures" }, caption && h("p", { class: "plan-count" }, caption), list);
  const item = {
    key: ([name]) => name,
    create: ([name]) => h("div", {}, h("dt", {}, name), h("dd", {}), h("dd", { class: "plan-count" })),
    update: ({ children: [, value, note] }, [, text, more]) => (setText(value, text), setText(note, more ?? "")),
  };
  return { element, update: (rows) => syncList(list, rows, item) };
}

/** An interval in words. */
export const interval = ({ low, high }, text) =>
  (low ?? null) === null || (high ?? null) === null ? "no interval yet" : `95% interval ${text(low)} to ${text(high)}`;

/** A difference from the control as a value, and its share of the control and its interval as a note. */
function difference(lift, text, unit = "", unknown = "not known yet") {
  if (!lift || lift.difference === null) return [unknown];
  const share = lift.relative === null ? "" : `${relative(lift.relative)}, `;
  return [withUnit(text(lift.difference), unit), share + interval(lift, text)];
}

/** What learning has earned, and what shipping the best subset is estimated to earn. */
export function worth(insight) {
  const { lift, winner, summary, settings } = insight;
  const { earned, ship } = words(insight);
  const amount = (each, unknown) => difference(each, (value) => signed(value, summary.reward_range), settings.unit, unknown);
  const [estimate, note] = amount(winner?.lift, summary.takes_context ? "not estimated" : "not known yet");
  return [
    [earned, ...amount(lift)],
    [ship, estimate, note && `${note}; from ${plural(winner.lift.plays_learned, "play")} of the best subset since ${moment(winner.since)}`],
  ];
}

function group(label) {
  const value = h("b", {});
  const track = h("div", { class: "track" }, h("i", { class: "range" }), h("i", { class: "dot" }));
  const under = h("div", { class: "plan-count" });
  const line = h("div", { class: "group-line" }, h("span", {}, label), value);
  return { element: h("li", { class: "group" }, line, track, under), value, track, under };
}

/** The panel of the reward; hidden without a control or rewards. */
export function liftPanel() {
  const learned = group("Learned"),
    control = group("Control");
  learned.element.classList.add("is-best");
  const arms = h("div", { class: "chips" });
  const numbers = figures(OVER);
  const verdict = h("p", { class: "quiet verdict" });
  const element = panel(
    "lift",
    "Learned against control",
    h("ul", { class: "rows" }, learned.element, control.element, h("li", {}, arms), h("li", {}, numbers.element)),
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
    update(insight) {
      const { lift, settings, sample_ratio: ratio, summary } = insight;
      element.hidden = !settings?.control || !lift || !summary.rewards;
      if (element.hidden) return;
      const range = summary.reward_range;
      const common = { range, unit: settings.unit, place: axis(lift, range) };
      fillGroup(learned, lift.learned, lift.plays_learned, common);
      fillGroup(control, lift.control, lift.plays_control, common);
      counted(element, ratio?.observed ? `control ${percent(ratio.observed, 1)} of decisions` : "");
      numbers.update(worth(insight));
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

/** The panel of the metrics; hidden if there are none. */
export function metricsPanel() {
  const list = h("ul", { class: "rows" });
  const element = panel("metrics", "Metrics beside the reward", list);
  const create = ({ name }) => {
    const { element: numbers, update } = figures();
    const head = h("div", { class: "group-line" }, h("b", {}, name), h("span", { class: "pill" }));
    return Object.assign(h("li", { class: "metric" }, head, numbers), { show: update });
  };
  const fill = (row, metric) => {
    const pill = row.querySelector(".pill");
    const { name, guardrail, broken } = metric;
    pill.hidden = !guardrail;
    pill.classList.toggle("is-bad", broken);
    setText(pill, `${guardrail?.replace(name, "")} ${broken ? "broken" : "not broken"}`);
    row.show(comparison(metric));
  };
  return {
    element,
    update({ metrics = [] }) {
      element.hidden = !metrics.length;
      syncList(list, metrics, { key: ({ name }) => name, create, update: fill });
    },
  };
}

function comparison({ learned, control, lift }) {
  const mean = (estimate) => (estimate ? [number(estimate.mean), interval(estimate, number)] : ["–"]);
  if (!control && !lift) return [["Mean", ...mean(learned)]];
  return [["Learned", ...mean(learned)], ["Control", ...mean(control)], ["Difference", ...difference(lift, signedMetric)]];
}
