// What all charts share: the stage with its cross-hair, tooltip and keys, the axes and the paths of curves.

import { nearest, scale, ticks, timeTicks } from "./chart_data.js";
import { h, s, setVars } from "./dom.js";
import { count } from "./format.js";

export const AXIS = 24; // height of the horizontal axis, in pixels
let stages = 0;

/** A chart that follows pointer and keys. `draw({width, height, data, by, clip})` returns {nodes, xs, ys, box}; the
 * arrays have a place for each item of `data.series`. `tooltip(item, data)` returns the lines of the tooltip, and
 * `describe(data)` the text for screen readers. `update(data)` redraws, `by(axis)` selects "time" or "rewards". */
export function chartStage({ draw, tooltip, describe, small = false }) {
  stages += 1;
  const clip = `chart-box-${stages}`;
  const svg = s("svg", { class: "plot", "aria-hidden": "true" });
  const tip = h("div", { class: "tip", role: "status", hidden: true });
  const keys = h(
    "p",
    { id: `chart-keys-${stages}`, class: "unseen" },
    "Use the left and right arrow keys to move between points, Home and End for the first and last, Escape to leave.",
  );
  const stage = h(
    "div",
    {
      class: `stage ${small ? "is-small" : ""}`,
      tabindex: "0",
      role: "group",
      "aria-roledescription": "chart",
      "aria-describedby": keys.id,
    },
    svg,
    tip,
  );
  let data = null,
    by = "time",
    drawn = null,
    at = null;

  function redraw() {
    if (!data || !stage.clientWidth) return;
    const [width, height] = [stage.clientWidth, stage.clientHeight];
    const { nodes, xs, ys, box } = draw({ width, height, data, by, clip });
    const line = s("line", { class: "cross", y1: box.top, y2: height - AXIS });
    const dot = s("circle", { class: "cross-dot", r: 4.5 });
    const cross = s("g", { visibility: "hidden" }, line, dot);
    const inside = { width: Math.max(0, box.right - box.left), height: Math.max(0, box.bottom - box.top) };
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren(
      s("defs", {}, s("clipPath", { id: clip }, s("rect", { x: box.left, y: box.top, ...inside }))),
      ...nodes,
      cross,
    );
    drawn = { xs, ys, cross, line, dot };
    stage.setAttribute("aria-label", describe(data));
    point(at === null ? null : Math.min(at, data.series.length - 1));
  }

  function point(index) {
    at = index;
    tip.hidden = index === null;
    drawn.cross.setAttribute("visibility", index === null ? "hidden" : "visible");
    if (index === null) return;
    const x = drawn.xs[index];
    drawn.line.setAttribute("x1", x);
    drawn.line.setAttribute("x2", x);
    drawn.dot.setAttribute("cx", x);
    drawn.dot.setAttribute("cy", drawn.ys[index]);
    tip.replaceChildren(...tooltip(data.series[index], data));
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
    if (to === undefined || (to === null && at === null)) return;
    event.preventDefault();
    point(to === null ? null : Math.max(0, Math.min(last, to)));
  });
  new ResizeObserver(redraw).observe(stage);

  return {
    element: h("div", { class: "chart" }, stage, keys),
    by(what) {
      by = what;
      at = null;
      redraw();
    },
    update(next) {
      data = next?.series.length ? next : null;
      if (!data) drawn = null;
      redraw();
    },
  };
}

export const tipHead = (text) => h("div", { class: "tip-head" }, text);
export const tipLine = (name, label, value) =>
  h("div", { class: `tip-line ${name}` }, h("span", {}, label), h("b", {}, value));

/** The horizontal positions of a series between two edges: {over, x, xs}. `from` is the first time, in milliseconds. */
export function horizontal(series, by, box, from) {
  const value = by === "time" ? ({ time }) => time : ({ total_rewards: rewards }) => rewards;
  const over = [by === "time" ? from : 0, value(series.at(-1))];
  const x = scale(over, [box.left, box.right]);
  return { over, x, xs: series.map((each) => x(value(each))) };
}

const fix = (number) => number.toFixed(1);

/** The path of a curve through these heights. */
export const curve = (xs, ys) =>
  xs.map((x, i) => `${i ? "L" : "M"}${fix(x)} ${fix(ys[i])}`).join("") + (xs.length > 1 ? "" : "h.1");

/** The area between two curves. */
export const between = (xs, tops, ends) =>
  `${curve(xs, tops)}L${xs
    .map((x, i) => `${fix(x)} ${fix(ends[i])}`)
    .reverse()
    .join("L")}Z`;

/** Horizontal lines with their labels. */
export function grid(box, y, values, text) {
  return s(
    "g",
    { class: "grid" },
    values.map((value) => [
      s("line", { x1: box.left, x2: box.right, y1: y(value), y2: y(value) }),
      s("text", { x: box.left - 10, y: y(value) + 4, "text-anchor": "end" }, text(value)),
    ]),
  );
}

/** The horizontal axis: times, or numbers of rewards. */
export function xAxis(box, { over, x }, by, height, narrow) {
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
