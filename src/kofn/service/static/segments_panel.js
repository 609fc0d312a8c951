// The panel of segments: which attributes of visitors matter, and what is best for whom.

import { capitalized } from "./api.js";
import { h, icon, setText, setVars, syncList } from "./dom.js";
import { count, exact, loss as lossText, percent, plural, reward, rough, segmentName, segmentPairs, withUnit } from "./format.js";
import { sameArms } from "./insight_facts.js";
import { cell, chips, counted, panel, restButton, table } from "./side_panels.js";

const ROWS = 8; // segments that are shown at first
const CHIPS = 6;
const SURE = 0.95, // from this probability on an attribute matters, and from the next on it may
  LIKELY = 0.8;
const COLUMNS = ["Segment", "Share of visitors", "Best subset", "Reward, 95% interval", "Loss of shipping now"];

/** The panel; hidden if the policy takes no context. */
export function segmentsPanel() {
  const attributes = h("ul", { class: "attributes", "aria-label": "Which attributes matter" });
  const note = h("p", { class: "panel-note" });
  const { element: lines, body, heads } = table("by-segment-title", COLUMNS);
  const rest = restButton(() => {
    most = Infinity;
    redraw();
  });
  const element = panel("by-segment", "Segments", attributes, note, lines, rest);
  let most = ROWS,
    insight = null,
    found = null;

  function redraw() {
    const { segments } = found;
    const shipped = insight.summary.state === "shipped";
    setText(heads[2], shipped ? "Gets" : "Best subset");
    syncList(attributes, found.attributes, {
      key: ({ attribute }) => attribute,
      create: () => h("li", {}, icon("check"), h("span", {}, h("b", {}), " ", h("span", {}))),
      update: (item, each) => fillAttribute(item, each, insight),
    });
    syncList(body, segments.slice(0, most), {
      key: ({ context }) => JSON.stringify(context),
      create: row,
      update: (line, each) => fillRow(line, each, insight),
    });
    lines.hidden = !segments.length;
    rest.hidden = segments.length <= most;
    setText(rest, `Show ${exact(segments.length - ROWS)} smaller segments`);
    setText(note, explanation(segments, insight));
    counted(element, segments.length ? plural(segments.length, "segment") : "");
  }

  return {
    element,
    update(next, { segments }) {
      [insight, found] = [next, segments];
      element.hidden = !next.summary.takes_context;
      redraw();
    },
  };
}

function explanation(segments, { best }) {
  if (!segments.length) return "Known after the first rewards. A decision says for whom it is by its context.";
  const differ = segments.some((each) => !sameArms(each.shipped ?? each.best, best));
  return differ ? "Arms in color are not in the best subset for all together." : "The same subset is best for every segment so far.";
}

/** Whether an attribute matters, and the reason, as a sentence. */
function verdict({ attribute, values, probability, gain }, { summary, settings }) {
  const amount = withUnit(rough(gain), settings?.unit);
  const by = `choosing by ${attribute}`;
  const [earns, earn] = summary.direction === "minimize" ? [`saves ${amount}`, `save ${amount}`] : [`earns ${amount} more`, `earn ${amount} more`];
  const sure = probability > 0.99 ? "more than 99% sure" : `${percent(probability)} sure`;
  if (probability >= SURE) return ["matters", `${by} ${earns} per visitor; ${sure}.`];
  if (probability >= LIKELY) return ["may matter", `${by} seems to ${earn} per visitor; ${sure}.`];
  if (values.length < 2) return ["does not matter so far", "all visitors had the same value."];
  if (!probability) return ["does not matter so far", "the same subset is best for all its values."];
  return ["does not matter so far", `${by} would ${earn} per visitor, but that is only ${sure}.`];
}

function fillAttribute(item, each, insight) {
  const [matters, reason] = verdict(each, insight);
  item.className = { matters: "is-sure", "may matter": "is-likely" }[matters] ?? "";
  item.title = `Values: ${each.values.join(", ")}`;
  setText(item.querySelector("b"), `${capitalized(each.attribute)} ${matters}:`);
  setText(item.lastElementChild.lastElementChild, reason);
}

function row({ context }) {
  const label = (text) => h("span", { class: "label", "aria-hidden": "true" }, text); // on a phone, instead of columns
  const pairs = segmentPairs(context).map(([name, value], i) => [
    i > 0 && ", ",
    h("span", { class: "pair" }, h("span", { class: "attribute" }, `${name} `), value),
  ]);
  return h(
    "tr",
    { role: "row" },
    h("th", { class: "whom", role: "rowheader", scope: "row" }, pairs.length ? pairs : segmentName(context)),
    cell("shown", h("div", { class: "share" }, h("i", {})), h("span", {})),
    cell("subset", h("div", { class: "chips" }), h("p", { class: "better" })),
    cell("earned", label("Reward"), h("b", {}), h("span", { class: "interval" })),
    cell("lost", label("Loss"), h("span", {})),
  );
}

function fillRow(line, segment, { best, summary, settings }) {
  const [, shown, subset, earned, lost] = line.cells;
  const range = summary.reward_range,
    unit = settings?.unit;
  const gets = segment.shipped ?? segment.best;
  setVars(shown.firstElementChild, { "--share": segment.share });
  setText(shown.lastElementChild, percent(segment.share));
  shown.title = `${count(segment.plays)} rewarded plays`;
  fillSubset(subset.firstElementChild, gets, best);
  const stale = !sameArms(gets, segment.best);
  subset.lastElementChild.hidden = !stale;
  setText(subset.lastElementChild, stale ? `Best by now: ${segment.best.join(", ")}` : "");
  const known = segment.value !== null;
  setText(earned.querySelector("b"), known ? withUnit(reward(segment.value, range), unit) : "–");
  setText(earned.lastElementChild, known ? `${reward(segment.low, range)} to ${reward(segment.high, range)}` : "");
  setText(lost.lastElementChild, segment.expected_loss === null ? "–" : withUnit(lossText(segment.expected_loss, range, false), unit));
  lost.title = segment.loss_high === null ? "" : `At most ${withUnit(lossText(segment.loss_high, range, false), unit)}`;
}

/** The arms as chips: those that are not best for all come first, in color. */
function fillSubset(element, arms, best) {
  const special = (name) => !best.includes(name);
  const sorted = [...arms.filter(special), ...arms.filter((name) => !special(name))];
  const now = JSON.stringify([sorted, best]);
  if (element.dataset.shown === now) return;
  element.dataset.shown = now;
  element.replaceChildren(...chips(sorted, CHIPS));
  sorted.slice(0, CHIPS).forEach((name, i) => element.children[i].classList.toggle("special", special(name)));
}
