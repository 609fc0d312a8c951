// The chart of rewards: recent mean with its interval, average, estimated reward of the best subset, and plays.

import { nearest, recent, scale, ticks, timeTicks } from "./chart_data.js";
import { h, s, setVars } from "./dom.js";
import { count, digits, exact, moment, reward, signed } from "./format.js";

const BARS = 30;
const AXIS = 24;

/** The chart. `update(points, insight)` redraws it, `by(axis)` selects time or rewards as the horizontal axis. */
export function rewardChart() {
  const svg = s("svg", { class: "plot", "aria-hidden": "true" });
  const tip = h("div", { class: "tip", role: "status", hidden: true });
  const stage = h(
    "div",
    {
      class: "stage",
      tabindex: "0",
      role: "group",
      "aria-roledescription": "chart",
      "aria-describedby": "chart-keys",
    },
    svg,
    tip,
  );
  const keys = h(
    "p",
    { id: "chart-keys", class: "unseen" },
    "Use the left and right arrow keys to move between points, Home and End for the first and last, Escape to leave.",
  );
  const element = h("div", { class: "chart" }, stage, keys);
  let data = null,
    by = "time",
    drawn = null,
    at = null;

  function redraw() {
    if (!data || !stage.clientWidth) return;
    drawn = draw(svg, stage.clientWidth, stage.clientHeight, data, by);
    stage.setAttribute("aria-label", description(data));
    point(at === null ? null : Math.min(at, data.series.length - 1));
  }

  function point(index) {
    at = index;
    tip.hidden = index === null;
    drawn.cross.setAttribute("visibility", index === null ? "hidden" : "visible");
    if (index === null) return;
    const here = data.series[index],
      x = drawn.xs[index];
    drawn.line.setAttribute("x1", x);
    drawn.line.setAttribute("x2", x);
    drawn.dot.setAttribute("cx", x);
    drawn.dot.setAttribute("cy", drawn.y(here.recent));
    tip.replaceChildren(...tooltipLines(here, data.range));
    const width = tip.offsetWidth,
      left = x + 14 + width > stage.clientWidth ? x - width - 14 : x + 14;
    setVars(tip, { "--x": `${Math.max(0, left)}px` });
  }

  stage.addEventListener("pointermove", (event) => {
    if (!drawn) return;
    point(nearest(drawn.xs, event.clientX - stage.getBoundingClientRect().left));
  });
  stage.addEventListener("pointerleave", () => drawn && point(null));
  stage.addEventListener("blur", () => drawn && point(null));
  stage.addEventListener("keydown", (event) => {
    if (!drawn) return;
    const last = data.series.length - 1,
      here = at ?? last;
    const big = Math.max(1, Math.round(last / 20));
    const to = {
      ArrowLeft: here - (event.shiftKey ? big : 1),
      ArrowRight: here + (event.shiftKey ? big : 1),
      Home: 0,
      End: last,
      Escape: null,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    point(to === null ? null : Math.max(0, Math.min(last, to)));
  });
  new ResizeObserver(redraw).observe(stage);

  return {
    element,
    by(what) {
      by = what;
      at = null;
      redraw();
    },
    update(points, insight) {
      data = {
        series: recent(points, insight.summary.reward_range),
        points,
        insight,
        range: insight.summary.reward_range,
      };
      if (!data.series.length) data = drawn = null;
      redraw();
    },
  };
}

function description({ series, insight, range }) {
  const last = series.at(-1);
  const best = insight.value === null ? "" : ` The estimated reward of the best subset is ${reward(insight.value, range)}.`;
  return `Reward over time, ${series.length} points. The first value is ${reward(series[0].recent, range)} and the latest ${reward(last.recent, range)}; the overall average is ${reward(insight.average, range)}.${best}`;
}

function tooltipLines(here, range) {
  const line = (name, label, value) => h("div", { class: `tip-line ${name}` }, h("span", {}, label), h("b", {}, value));
  return [
    h("div", { class: "tip-head" }, moment(here.until)),
    line("recent", "Recent mean", reward(here.recent, range)),
    line("band", "95% interval", `${reward(here.low, range)} – ${reward(here.high, range)}`),
    line("average", "Average so far", reward(here.average, range)),
    line("", "Rewards so far", exact(here.total_rewards)),
  ];
}

function draw(svg, width, height, data, by) {
  const { series, insight, range } = data;
  const narrow = width < 520;
  const box = { left: narrow ? 40 : 52, right: width - (narrow ? 12 : 84), top: 14, bottom: height - AXIS - BARS - 10 };
  const value = by === "time" ? ({ time }) => time : ({ total_rewards }) => total_rewards;
  const over = [by === "time" ? Date.parse(data.points[0].at) : 0, value(series.at(-1))];
  const x = scale(over, [box.left, box.right]);
  const y = scale(bounds(series, insight, range), [box.bottom, box.top]);
  const xs = series.map((each) => x(value(each)));
  const line = s("line", { class: "cross", y1: box.top, y2: height - AXIS });
  const dot = s("circle", { class: "cross-dot", r: 4.5 });
  const cross = s("g", { visibility: "hidden" }, line, dot);

  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren(
    s(
      "defs",
      {},
      s(
        "clipPath",
        { id: "chart-box" },
        s("rect", {
          x: box.left,
          y: box.top,
          width: Math.max(0, box.right - box.left),
          height: Math.max(0, box.bottom - box.top),
        }),
      ),
    ),
    grid(box, y, range, bounds(series, insight, range)),
    xAxis(box, over, x, by, height, narrow),
    bars(data.points, box, x, by, height),
    best(insight, box, y),
    s(
      "g",
      { "clip-path": "url(#chart-box)" },
      s("path", { class: "band", d: area(series, xs, y) }),
      s("path", { class: "average", d: path(series, xs, (each) => y(each.average)) }),
      s("path", { class: "recent", d: path(series, xs, (each) => y(each.recent)) }),
    ),
    s("circle", { class: "now", cx: xs.at(-1), cy: y(series.at(-1).recent), r: 3.5 }),
    narrow ? "" : ends(data, box, y),
    cross,
  );
  return { xs, y, cross, line, dot };
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
  return [Math.max(range[0], low - margin), Math.min(range[1], high + margin)];
}

const fix = (number) => number.toFixed(1);
const path = (series, xs, y) =>
  series.map((each, i) => `${i ? "L" : "M"}${fix(xs[i])} ${fix(y(each))}`).join("") + (xs.length > 1 ? "" : "h.1");

function area(series, xs, y) {
  const up = series.map((each, i) => `${i ? "L" : "M"}${fix(xs[i])} ${fix(y(each.high))}`);
  const down = series.map((each, i) => `L${fix(xs[i])} ${fix(y(each.low))}`).reverse();
  return `${up.join("")}${down.join("")}Z`;
}

function grid(box, y, range, over) {
  const values = ticks(over, 4);
  const fine = Math.max(0, Math.min(digits(range), -Math.floor(Math.log10((values[1] ?? over[1]) - values[0]) + 1e-9)));
  return s(
    "g",
    { class: "grid" },
    values.map((value) => [
      s("line", { x1: box.left, x2: box.right, y1: y(value), y2: y(value) }),
      s(
        "text",
        { x: box.left - 10, y: y(value) + 4, "text-anchor": "end" },
        value.toFixed(Number.isFinite(fine) ? fine : 2),
      ),
    ]),
  );
}

function xAxis(box, over, x, by, height, narrow) {
  const about = narrow ? 3 : 6;
  const marks = by === "time" ? timeTicks(over, about) : ticks(over, about).map((value) => [value, count(value)]);
  const shown = marks.filter(([value]) => x(value) > box.left + 12 && x(value) < box.right - 12);
  return s(
    "g",
    { class: "axis" },
    s("line", { x1: box.left, x2: box.right, y1: height - AXIS, y2: height - AXIS }),
    shown.map(([value, text]) => s("text", { x: x(value), y: height - 6, "text-anchor": "middle" }, text)),
  );
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
  const line = path(series, xs, (each) => y(each.recent) || 16);
  svg.append(
    s("path", { class: "spark-area", d: `${line}L${fix(xs.at(-1))} 32L${fix(xs[0])} 32Z` }),
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
