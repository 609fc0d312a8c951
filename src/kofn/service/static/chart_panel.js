// The charts over time: the reward, the expected loss, or the lift over control.

import { legend, rewardChart } from "./chart.js";
import { h, segmented, setText } from "./dom.js";
import { firstSteps } from "./first_steps.js";
import { count, duration, leastLoss, withUnit } from "./format.js";
import { hasWindow, words } from "./insight_facts.js";
import { lineChart, seriesOf } from "./line_chart.js";
import { nextSettles } from "./side_panels.js";

const LOSS = "What shipping the best subset of that time would lose per play, on a logarithmic scale.";
const GOAL = " Ready when the limit above it, which the tile shows, stays below the goal.";
const LIFT = " per play over the control, on average up to that time, with its 95% interval. Another control starts a new comparison.";

/** The panel of the charts; before the first reward, it shows the first step. */
export function chartPanel(name) {
  const rewards = rewardChart(),
    loss = lineChart({ label: "Expected loss", log: true }),
    lift = lineChart({ label: "Lift over control", signs: true });
  const lossNote = h("p", { class: "chart-note" }),
    liftNote = h("p", { class: "chart-note" });
  const bodies = {
    reward: h("div", {}, rewards.element, legend()),
    loss: h("div", { hidden: true }, loss.element, lossNote),
    lift: h("div", { hidden: true }, lift.element, liftNote),
  };
  const blank = h("div", { class: "waiting" }),
    progress = h("span", {}),
    next = nextSettles("; ");
  const show = (value) => {
    for (const [each, element] of Object.entries(bodies)) element.hidden = each !== value;
  };
  const what = segmented("Shown", "chart-what", [["reward", "Reward"], ["loss", "Loss"], ["lift", "Lift"]], show);
  const liftChoice = what.querySelector("[value=lift]");
  const by = segmented("Horizontal axis", "chart-by", [["time", "By time"], ["rewards", "By plays"]], (value) => {
    for (const chart of [rewards, loss, lift]) chart.by(value);
  });
  const body = h("div", {}, ...Object.values(bodies));
  const tools = h("div", { class: "tools" }, what, by);
  const title = h("h2", { id: "rewards-title" });
  const element = h(
    "section",
    { class: "panel rewards", "aria-labelledby": "rewards-title" },
    h("div", { class: "panel-head" }, title, tools),
    blank,
    body,
  );

  function updateLoss({ stop, settings, summary }, estimates) {
    const least = leastLoss(summary.reward_range);
    const series = seriesOf(estimates, ({ expected_loss: value }) => (value === null ? {} : { value: Math.max(value, least) }));
    loss.element.hidden = !series.length;
    setText(lossNote, series.length ? LOSS + (stop ? GOAL : "") : "This policy does not estimate it.");
    loss.update({ series, unit: settings?.unit ?? "", goal: stop?.threshold ?? null });
  }

  function updateLift(insight, estimates) {
    const { settings } = insight;
    const series = seriesOf(estimates, ({ lift: value, lift_low: low, lift_high: high }) =>
      value === null ? {} : { value, low, high },
    );
    liftChoice.parentElement.hidden = !settings?.control && !series.length;
    lift.element.hidden = !series.length;
    setText(liftNote, series.length ? words(insight).earned + LIFT : "Learned and control need rewards first.");
    lift.update({ series, unit: settings?.unit ?? "" });
  }

  return {
    element,
    update(insight, { history, estimates }) {
      const some = insight.summary.rewards > 0,
        unit = insight.settings?.unit;
      if (!some && !blank.hasChildNodes()) blank.append(h("h3", {}, progress, next.element), ...waiting(name, insight));
      setText(progress, progressOf(insight));
      next.update(insight);
      setText(title, some ? `Over time${unit ? `, ${unit} per play` : ""}` : "First step");
      blank.hidden = some;
      body.hidden = tools.hidden = !some;
      rewards.update(history, insight);
      updateLoss(insight, estimates);
      updateLift(insight, estimates);
    },
  };
}

/** Decisions that have been made; before the first, what is to be done. */
function progressOf({ summary: { plays, in_flight: open } }) {
  return plays ? `${count(plays)} decided, 0 settled, ${count(open)} open` : "Waiting for the first decision";
}

function waiting(name, insight) {
  const { summary, settings, plan } = insight;
  const [low, high] = summary.reward_range;
  const value = low === 0 && high === 1 ? 1 : Number(((low + high) / 2).toPrecision(2));
  const context = summary.takes_context ? exampleContext(plan) : null;
  const silence = withUnit(String(settings.silence), settings.unit);
  const paragraph = (text) => h("p", { class: "quiet" }, text);
  return [
    paragraph(`Ask for a decision, show its arms, and report ${hasWindow(insight) ? "orders" : "its reward"}. This page updates by itself.`),
    hasWindow(insight) &&
      paragraph(`A decision counts ${duration(settings.window)} after it was made: the sum of its orders, or ${silence} if nothing was reported.`),
    context && paragraph("The context says for whom the decision is: a few attributes of the visitor."),
    firstSteps({ name, value, context, hasWindow: hasWindow(insight) }),
  ].filter(Boolean);
}

/** A context with the declared attributes, which the first plan has too. */
function exampleContext(plan) {
  const names = Object.keys(plan[0]?.context ?? {});
  return names.length ? Object.fromEntries(names.map((each) => [each, "VALUE"])) : { device: "phone" };
}
