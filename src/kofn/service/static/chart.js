// The chart of rewards: recent mean with its interval, average, estimated reward of the best subset, and plays.

import { recent, scale, ticks } from "./chart_data.js";
import { AXIS, between, chartStage, curve, grid, horizontal, tipHead, tipLine, xAxis } from "./chart_stage.js";
import { h, s } from "./dom.js";
import { digits, exact, moment, reward, signed } from "./format.js";

const BARS = 30;

/** The chart. `update(points, insight)` redraws it, `by(axis)` selects time or rewards as the horizontal axis. */
export function rewardChart() {
  const { element, by, update } = chartStage({ draw, tooltip, describe });
  return {
    element,
    by,
    update(points, insight) {
      const range = insight.summary.reward_range;
      update({ series: recent(points, range), points, insight, range });
    },
  };
}

function describe({ series, insight, range }) {
  const last = series.at(-1);
  const best = insight.value === null ? "" : ` The estimated reward of the best subset is ${reward(insight.value, range)}.`;
  return `Reward over time, ${series.length} points. The first value is ${reward(series[0].recent, range)} and the latest ${reward(last.recent, range)}; the overall average is ${reward(insight.average, range)}.${best}`;
}

function tooltip(here, { range }) {
  return [
    tipHead(moment(here.until)),
    tipLine("recent", "Recent mean", reward(here.recent, range)),
    tipLine("band", "95% interval", `${reward(here.low, range)} – ${reward(here.high, range)}`),
    tipLine("average", "Average so far", reward(here.average, range)),
    tipLine("", "Rewards so far", exact(here.total_rewards)),
  ];
}

function draw({ width, height, data, by, clip }) {
  const { series, insight, range, points } = data;
  const narrow = width < 520;
  const box = { left: narrow ? 40 : 52, right: width - (narrow ? 12 : 84), top: 14, bottom: height - AXIS - BARS - 10 };
  const over = bounds(series, insight, range);
  const across = horizontal(series, by, box, Date.parse(points[0].at));
  const { x, xs } = across;
  const y = scale(over, [box.bottom, box.top]);
  const heights = (key) => series.map((each) => y(each[key]));
  const ys = heights("recent");
  const nodes = [
    grid(box, y, ticks(over, 4), labels(over, range)),
    xAxis(box, across, by, height, narrow),
    bars(points, box, x, by, height),
    best(insight, box, y),
    s(
      "g",
      { "clip-path": `url(#${clip})` },
      s("path", { class: "band", d: between(xs, heights("high"), heights("low")) }),
      s("path", { class: "average", d: curve(xs, heights("average")) }),
      s("path", { class: "recent", d: curve(xs, ys) }),
    ),
    s("circle", { class: "now", cx: xs.at(-1), cy: ys.at(-1), r: 3.5 }),
    narrow ? "" : ends(data, box, y),
  ];
  return { nodes, xs, ys, box };
}

/** The range of the vertical axis: all curves and the interval of the best subset, with a margin. */
function bounds(series, insight, range) {
  const seen = [
    insight.value,
    insight.low,
    insight.high,
    insight.average,
    ...series.flatMap((each) => [each.recent, each.average]),
  ].filter((each) => each !== null && each !== undefined);
  const low = Math.min(...seen),
    high = Math.max(...seen);
  const margin = Math.max((high - low) * 0.12, (range[1] - range[0]) * 0.005);
  return [Math.min(low, Math.max(range[0], low - margin)), Math.max(high, Math.min(range[1], high + margin))]; // costs may lead out of the range
}

/** The text of a value of the vertical axis, with the decimal places that neighbours need. */
function labels(over, range) {
  const values = ticks(over, 4);
  const fine = Math.max(0, Math.min(digits(range), -Math.floor(Math.log10((values[1] ?? over[1]) - values[0]) + 1e-9)));
  return (value) => value.toFixed(Number.isFinite(fine) ? fine : 2);
}

/** Bars of plays per interval of the horizontal axis. */
function bars(points, box, x, by, height) {
  const width = 6,
    many = Math.max(1, Math.floor((box.right - box.left) / width));
  const sums = new Array(many).fill(0);
  for (const point of points) {
    const where = by === "time" ? Date.parse(point.at) : point.total_rewards;
    const slot = Math.floor((x(where) - box.left) / width);
    sums[Math.max(0, Math.min(many - 1, slot))] += point.plays;
  }
  const most = Math.max(...sums, 1);
  return s(
    "g",
    { class: "bars" },
    sums.map((sum, i) => {
      if (!sum) return "";
      const tall = Math.max(1.5, (BARS * sum) / most);
      return s("rect", { x: box.left + i * width + 1, y: height - AXIS - tall, width: width - 2, height: tall, rx: 1 });
    }),
  );
}

function best(insight, box, y) {
  if (insight.value === null) return "";
  const top = Math.max(box.top, y(insight.high)),
    end = Math.min(box.bottom, y(insight.low));
  return s(
    "g",
    { class: "best" },
    s("rect", { x: box.left, width: Math.max(0, box.right - box.left), y: top, height: Math.max(1, end - top) }),
    s("line", { x1: box.left, x2: box.right, y1: y(insight.value), y2: y(insight.value) }),
  );
}

/** Labels at the right: the best subset, the average, and the gain between them. */
function ends({ insight, range }, box, y) {
  const x = box.right + 10;
  const text = (name, at, label, value) =>
    s(
      "g",
      { class: `end ${name}` },
      s("text", { x, y: at - 2 }, label),
      s("text", { x, y: at + 12, class: "end-value" }, value),
    );
  const average = y(insight.average);
  if (insight.value === null) return text("average-end", average, "average", reward(insight.average, range));
  const value = y(insight.value),
    apart = Math.abs(value - average);
  const up = value <= average ? 1 : -1,
    push = Math.max(0, 32 - apart) / 2;
  const gap =
    apart > 84 &&
    s(
      "g",
      { class: "end gain-end" },
      s("path", { d: `M${x + 3} ${value + up * 22}V${average - up * 20}` }),
      s("text", { x: x + 10, y: (value + average) / 2 + 4 }, signed(insight.value - insight.average, range)),
    );
  return s(
    "g",
    {},
    text("best-end", value - up * push, "best", reward(insight.value, range)),
    text("average-end", average + up * push, "average", reward(insight.average, range)),
    gap || "",
  );
}

/** A sparkline of recent means. */
export function sparkline(points, range, label) {
  const series = recent(points, range);
  const svg = s("svg", {
    class: "spark",
    viewBox: "0 0 120 32",
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": label,
  });
  if (series.length < 2) return svg;
  const values = series.map(({ recent: mean }) => mean);
  const x = scale([0, series.at(-1).total_rewards], [2, 118]);
  const y = scale([Math.min(...values), Math.max(...values)], [28, 4]);
  const xs = series.map(({ total_rewards }) => x(total_rewards));
  const ys = series.map((each) => y(each.recent) || 16);
  const line = curve(xs, ys);
  svg.append(
    s("path", { class: "spark-area", d: between(xs, ys, ys.map(() => 32)) }),
    s("path", { class: "spark-line", d: line }),
  );
  return svg;
}

/** The legend of the chart. */
export function legend() {
  const entry = (name, text) => h("span", { class: `key ${name}` }, h("i", { "aria-hidden": "true" }), text);
  return h(
    "div",
    { class: "legend" },
    entry("recent", "Recent mean, 95% band"),
    entry("average", "Average so far"),
    entry("best", "Best subset, 95% interval"),
    entry("plays", "Plays"),
  );
}
