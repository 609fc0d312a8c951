// One estimate over time: the expected loss, the lift over control, or the effect of an arm.

import { scale, ticks } from "./chart_data.js";
import { AXIS, between, chartStage, curve, grid, horizontal, tipHead, tipLine, xAxis } from "./chart_stage.js";
import { s } from "./dom.js";
import { exact, moment, rough, signedRough, withUnit } from "./format.js";

/** A chart of data {series, unit, goal}: items have `at`, `time`, `total_rewards` and `value`, and the limits `low` and
 * `high` if there is an interval. A loss is drawn on a logarithmic scale, with the goal of the stop rule; a difference on
 * a linear one, with zero. `signs`: positive numbers have a sign. */
export function lineChart({ label, log = false, small = false, signs = false }) {
  const number = signs ? signedRough : rough;
  return chartStage({
    small,
    draw: (frame) => draw(frame, log, number),
    tooltip: ({ at, total_rewards: rewards, value, low, high }, { unit }) => [
      tipHead(moment(at)),
      tipLine("recent", label, withUnit(number(value), unit)),
      isInterval({ low, high }) ? tipLine("band", "95% interval", `${number(low)} to ${number(high)}`) : "",
      tipLine("", "Rewards so far", exact(rewards)),
    ],
    describe({ series, unit, goal }) {
      const text = (value) => withUnit(number(value), unit);
      const below = goal ? ` The stop rule allows ${text(goal)}.` : "";
      return `${label} over time, ${series.length} points, from ${text(series[0].value)} to ${text(series.at(-1).value)}.${below}`;
    },
  });
}

/** The estimates as items of a series. `parts(estimate)` returns {value, low, high}; those without a value are left out. */
export const seriesOf = (estimates, parts) =>
  estimates
    .map((each) => ({ at: each.at, time: Date.parse(each.at), total_rewards: each.rewards, ...parts(each) }))
    .filter((each) => Number.isFinite(each.value));

const isInterval = ({ low, high }) => Number.isFinite(low) && Number.isFinite(high);

function draw({ width, height, data, by, clip }, log, number) {
  const { series, goal } = data;
  const narrow = width < 520;
  const box = { left: narrow ? 54 : 60, right: width - (narrow ? 12 : 24), top: 14, bottom: height - AXIS - 8 };
  const across = horizontal(series, by, box, series[0].time);
  const { y, marks } = (log ? logarithmic : linear)(series, goal, box);
  const ys = series.map(({ value }) => y(value));
  const [tops, ends] = series.every(isInterval)
    ? [series.map(({ high }) => y(high)), series.map(({ low }) => y(low))]
    : [ys, ys.map(() => (log ? box.bottom : y(0)))];
  const line = (name, at) => s("line", { class: name, x1: box.left, x2: box.right, y1: y(at), y2: y(at) });
  const nodes = [
    grid(box, y, marks, number),
    xAxis(box, across, by, height, narrow),
    s(
      "g",
      { "clip-path": `url(#${clip})` },
      s("path", { class: "band", d: between(across.xs, tops, ends) }),
      log ? "" : line("zero-line", 0),
      goal ? line("goal", goal) : "",
      s("path", { class: "recent", d: curve(across.xs, ys) }),
    ),
    goal ? s("text", { class: "goal-text", x: box.right - 4, y: y(goal) - 7, "text-anchor": "end" }, "goal") : "",
    s("circle", { class: "now", cx: across.xs.at(-1), cy: ys.at(-1), r: 3.5 }),
  ];
  return { nodes, xs: across.xs, ys, box };
}

/** Shows zero and all values. Intervals count only in the last three quarters of the rewards: the first are very wide. */
function linear(series, _, box) {
  const late = series.filter(({ total_rewards: rewards }) => rewards >= series.at(-1).total_rewards / 4);
  const values = series.every(isInterval)
    ? late.flatMap(({ low, high }) => [low, high])
    : series.map(({ value }) => value);
  const from = Math.min(0, ...values),
    to = Math.max(0, ...values);
  const margin = 0.12 * (to - from) || 1;
  const over = [from - margin, to + margin];
  return { y: scale(over, [box.bottom, box.top]), marks: ticks(over, 4) };
}

/** Losses span several powers of ten, and the goal is among the smallest. */
function logarithmic(series, goal, box) {
  const known = [...series.map(({ value }) => value), goal].filter((value) => value > 0);
  const seen = known.length ? known : [1];
  const low = Math.log10(Math.min(...seen)) - 0.15,
    high = Math.max(Math.log10(Math.max(...seen)) + 0.15, low + 0.5);
  const place = scale([low, high], [box.bottom, box.top]);
  const y = (value) => place(value > 0 ? Math.max(low, Math.log10(value)) : low);
  const steps = high - low > 2.5 ? [1] : high - low > 1.2 ? [1, 3] : [1, 2, 5];
  const marks = [];
  for (let power = Math.floor(low); power <= high; power += 1)
    for (const step of steps) {
      const value = step * 10 ** power;
      if (Math.log10(value) >= low && Math.log10(value) <= high) marks.push(value);
    }
  return { y, marks };
}
