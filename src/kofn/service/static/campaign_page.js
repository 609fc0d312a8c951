// The page of one campaign.

import * as api from "./api.js";
import { armsPanel } from "./arms_panel.js";
import { actions } from "./campaign_actions.js";
import { legend, rewardChart } from "./chart.js";
import { h, setText } from "./dom.js";
import { exact, reward } from "./format.js";
import { throttled, watch } from "./live_updates.js";
import { bestPanel, eventsPanel, inFlightPanel, planPanel, timeAgo } from "./side_panels.js";
import { skeleton, tiles } from "./summary_tiles.js";

const ARMS = 300; // arms loaded at first
const POINTS = 800;
const EVENTS = 40;
const DECISIONS = 4; // newest decisions in flight that are shown
const RELOAD_INTERVAL = 1000; // milliseconds between two reloads, at least

/** The page of a campaign. `stop()` ends its requests. */
export function campaignPage(name, { failed, state, home, may }) {
  const element = h("div", { class: "page" }, skeleton());
  const aborter = new AbortController();
  let parts = null,
    most = ARMS,
    stopWatching = () => {};

  async function load() {
    try {
      const { signal } = aborter;
      const [insight, history, events, decisions] = await Promise.all([
        api.insight(name, most, signal),
        api.history(name, POINTS, signal),
        api.events(name, EVENTS, signal),
        api.openDecisions(name, DECISIONS, signal),
      ]);
      if (!parts) {
        parts = build(name, {
          refresh: refresh.now,
          home,
          may,
          loadAll: () => {
            if (most) {
              most = null;
              refresh.now();
            }
          },
        });
        element.replaceChildren(parts.element);
      }
      parts.update({ insight, history, events, decisions });
      state("loaded");
    } catch (error) {
      if (aborter.signal.aborted || error.status === 401) return;
      if (!(error instanceof api.ApiError)) throw error;
      if (parts && error.status !== 404) return state("offline");
      refresh.stop();
      stopWatching();
      failed(error);
    }
  }

  const refresh = throttled(load, RELOAD_INTERVAL);
  stopWatching = watch(name, { onChange: refresh, state });
  refresh();
  return {
    element,
    stop() {
      aborter.abort();
      refresh.stop();
      stopWatching();
    },
    keys: { "/": () => parts?.arms.focus(), p: () => parts?.toggle(), a: () => parts?.add() },
  };
}

/** The content of the page, and `update(data)`. */
function build(name, { refresh, home, may, loadAll }) {
  let summary = null;
  const campaignActions = actions(name, () => (may.change() ? summary : null), refresh, home);
  const pill = h("span", { class: "pill" });
  const under = h("p", { class: "lede" });
  const top = tiles(),
    chart = chartPanel(name),
    best = bestPanel(),
    plan = planPanel(),
    inFlight = inFlightPanel(),
    events = eventsPanel();
  const arms = armsPanel({ retire: campaignActions.retire, add: campaignActions.add, loadAll, may });
  const buttons = campaignActions.buttons();
  const element = h(
    "div",
    {},
    h(
      "div",
      { class: "page-head" },
      h("div", { class: "page-title" }, h("div", { class: "title-line" }, h("h1", { title: name }, name), pill), under),
      buttons.element,
    ),
    top.element,
    h(
      "div",
      { class: "board" },
      h("div", { class: "side-main" }, chart.element, arms.element),
      h("div", { class: "side" }, best.element, plan.element, inFlight.element, events.element),
    ),
  );

  function update({ insight, history, events: newest, decisions }) {
    summary = insight.summary;
    pill.className = `pill is-${summary.state}`;
    setText(pill, summary.state);
    if (!under.hasChildNodes()) under.append(h("span", {}), " · created ", timeAgo(summary.created));
    setText(under.firstElementChild, facts(summary));
    buttons.element.hidden = !may.change();
    buttons.update(summary);
    top.update(insight);
    chart.update(history, insight);
    arms.update(insight);
    best.update(insight);
    plan.update(insight);
    inFlight.update(summary, decisions);
    events.update(newest);
  }
  return { element, update, arms, toggle: campaignActions.toggle, add: campaignActions.add };
}

function facts({ k, arms, policy, reward_range: range, direction }) {
  const better = direction === "minimize" ? "lower is better" : "higher is better";
  return `${k} of ${exact(arms)} arms · ${policy} · reward ${reward(range[0], [0, 1000])} to ${range[1]}, ${better}`;
}

function chartPanel(name) {
  const chart = rewardChart();
  const choice = (value, text, checked) =>
    h(
      "label",
      {},
      h("input", { type: "radio", name: "chart-by", value, checked, on: { change: () => chart.by(value) } }),
      h("span", {}, text),
    );
  const body = h("div", {}, chart.element, legend());
  const blank = waiting(name);
  const element = h(
    "section",
    { class: "panel rewards", "aria-labelledby": "rewards-title" },
    h(
      "div",
      { class: "panel-head" },
      h("h2", { id: "rewards-title" }, "Reward over time"),
      h(
        "fieldset",
        { class: "segments" },
        h("legend", { class: "unseen" }, "Horizontal axis"),
        choice("time", "Time", true),
        choice("rewards", "Rewards", false),
      ),
    ),
    blank,
    body,
  );
  return {
    element,
    update(points, insight) {
      const some = insight.summary.rewards > 0;
      blank.hidden = some;
      body.hidden = !some;
      element.querySelector(".segments").hidden = !some;
      chart.update(points, insight);
    },
  };
}

function waiting(name) {
  const text = `campaign = kofn.Campaign.open(${JSON.stringify(name)})\ndecision = campaign.decide()\ncampaign.reward(decision.id, value)`;
  return h(
    "div",
    { class: "waiting" },
    h("h3", {}, "Waiting for the first reward"),
    h(
      "p",
      { class: "quiet" },
      "Ask for a decision, show its arms, and report its reward. This page updates by itself.",
    ),
    h("pre", { tabindex: "0", "aria-label": "Example in Python" }, h("code", {}, text)),
  );
}
