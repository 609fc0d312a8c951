// The page of one campaign.

import { actions } from "./actions.js";
import * as api from "./api.js";
import { armsPanel } from "./arms.js";
import { legend, rewardChart } from "./chart.js";
import { h, say } from "./dom.js";
import { exact, reward } from "./format.js";
import { paced, watch } from "./live.js";
import { bestPanel, eventsPanel, flightPanel, since, tryingPanel } from "./panels.js";
import { skeleton, tiles } from "./tiles.js";

const ARMS = 300;
const POINTS = 800;
const EVENTS = 40;
const FLYING = 4;
const LEAST = 1000;

/** The page; `stop` ends its work. */
export function campaignPage(name, { failed, state, home, may }) {
  const element = h("div", { class: "page" }, skeleton());
  const wanted = new AbortController();
  let parts = null,
    most = ARMS,
    stopWatching = () => {};

  async function load() {
    try {
      const { signal } = wanted;
      const [insight, history, events, flying] = await Promise.all([
        api.insight(name, most, signal),
        api.history(name, POINTS, signal),
        api.events(name, EVENTS, signal),
        api.openDecisions(name, FLYING, signal),
      ]);
      if (!parts) {
        parts = build(name, {
          refresh: refresh.now,
          home,
          may,
          wantAll: () => {
            if (most) {
              most = null;
              refresh.now();
            }
          },
        });
        element.replaceChildren(parts.element);
      }
      parts.update({ insight, history, events, flying });
      state("loaded");
    } catch (why) {
      if (wanted.signal.aborted || why.status === 401) return;
      if (!(why instanceof api.Problem)) throw why;
      if (parts && why.status !== 404) return state("offline");
      refresh.stop();
      stopWatching();
      failed(why);
    }
  }

  const refresh = paced(load, LEAST);
  stopWatching = watch(name, { changed: refresh, state });
  refresh();
  return {
    element,
    title: name,
    stop() {
      wanted.abort();
      refresh.stop();
      stopWatching();
    },
    keys: { "/": () => parts?.arms.focus(), p: () => parts?.toggle(), a: () => parts?.add() },
  };
}

/** All that stands on the page, and `update`. */
function build(name, { refresh, home, may, wantAll }) {
  let summary = null;
  const doing = actions(name, () => (may.change() ? summary : null), refresh, home);
  const pill = h("span", { class: "pill" });
  const under = h("p", { class: "lede" });
  const top = tiles(),
    chart = chartPanel(name),
    best = bestPanel(),
    trying = tryingPanel(),
    flight = flightPanel(),
    events = eventsPanel();
  const arms = armsPanel({ retire: doing.retire, add: doing.add, wantAll, may });
  const buttons = doing.buttons();
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
      h("div", { class: "side" }, best.element, trying.element, flight.element, events.element),
    ),
  );

  function update({ insight, history, events: happened, flying }) {
    summary = insight.summary;
    pill.className = `pill is-${summary.state}`;
    say(pill, summary.state);
    if (!under.hasChildNodes()) under.append(h("span", {}), " · created ", since(summary.created));
    say(under.firstElementChild, facts(summary));
    buttons.element.hidden = !may.change();
    buttons.update(summary);
    top.update(insight);
    chart.update(history, insight);
    arms.update(insight);
    best.update(insight);
    trying.update(insight);
    flight.update(summary, flying);
    events.update(happened);
  }
  return { element, update, arms, toggle: doing.toggle, add: doing.add };
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
        h("legend", { class: "unseen" }, "The chart goes along"),
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
      "Ask for a decision, show its arms, and tell what it earned. This page follows by itself.",
    ),
    h("pre", { tabindex: "0", "aria-label": "Example in Python" }, h("code", {}, text)),
  );
}
