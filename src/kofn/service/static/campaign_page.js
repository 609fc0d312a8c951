// The page of one campaign.

import * as api from "./api.js";
import { armDialog } from "./arm_dialog.js";
import { armsPanel } from "./arms_panel.js";
import { actions } from "./campaign_actions.js";
import { chartPanel } from "./chart_panel.js";
import { h, setText } from "./dom.js";
import { exact, short, withUnit } from "./format.js";
import { liftPanel, metricsPanel } from "./lift_panel.js";
import { throttled, watch } from "./live_updates.js";
import { notices } from "./notices.js";
import { segmentsPanel } from "./segments_panel.js";
import { bestPanel, eventsPanel, inFlightPanel, planPanel, rulesPanel, timeAgo } from "./side_panels.js";
import { skeleton, tiles } from "./summary_tiles.js";

const ARMS = 300; // arms loaded at first
const POINTS = 800; // of the history
const ESTIMATES = 400; // points of the estimates over time
const EVENTS = 40;
const DECISIONS = 4; // newest decisions in flight that are shown
const NO_SEGMENTS = { segments: [], attributes: [] };
const RELOAD_INTERVAL = 1000; // milliseconds between two reloads, at least

/** The page of a campaign. `stop()` ends its requests. */
export function campaignPage(name, { failed, state, home, may }) {
  const element = h("div", { class: "page" }, skeleton());
  const aborter = new AbortController();
  let parts = null,
    most = ARMS,
    estimates = [],
    segments = NO_SEGMENTS,
    learned = null,
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
      const last = `${insight.updates} ${events[0]?.number}`; // the rest changes only when it learns or is changed
      if (learned !== last) {
        [estimates, segments] = await Promise.all([
          insight.expected_loss === null && !insight.lift ? estimates : api.estimates(name, { points: ESTIMATES }, signal),
          insight.summary.takes_context ? api.segments(name, signal) : NO_SEGMENTS,
        ]);
        learned = last;
      }
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
      parts.update({ insight, history, events, decisions, estimates, segments });
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
    keys: {
      "/": () => parts?.arms.focus(),
      p: () => parts?.toggle(),
      a: () => parts?.add(),
      s: () => parts?.ship(),
      e: () => parts?.configure(),
    },
  };
}

/** The content of the page, and `update(data)`. */
function build(name, { refresh, home, may, loadAll }) {
  let latest = null,
    opened = null;
  const work = actions(name, () => (may.change() ? latest.insight : null), () => latest.segments.segments, refresh, home);
  const pill = h("span", { class: "pill" });
  const under = h("p", { class: "lede" });
  const top = [notices({ configure: work.configure, may }), tiles({ configure: work.configure, may })];
  const show = (arm) => {
    const history = () => api.estimates(name, { points: ESTIMATES, arm });
    opened = armDialog(arm, { history, retire: work.retire, bringBack: work.bringBack, may });
    opened.update(latest.insight);
  };
  const arms = armsPanel({ show, retire: work.retire, bringBack: work.bringBack, add: work.add, loadAll, may });
  const main = [chartPanel(name), segmentsPanel(), arms];
  const side = [bestPanel, rulesPanel, liftPanel, metricsPanel, planPanel, inFlightPanel, eventsPanel].map((panel) => panel());
  const elements = (parts) => parts.map((each) => each.element);
  const buttons = work.buttons();
  const element = h(
    "div",
    {},
    h(
      "div",
      { class: "page-head" },
      h("div", { class: "page-title" }, h("div", { class: "title-line" }, h("h1", { title: name }, name), pill), under),
      buttons.element,
    ),
    elements(top),
    h(
      "div",
      { class: "board" },
      h("div", { class: "side-main" }, elements(main)),
      h("div", { class: "side" }, elements(side)),
    ),
  );

  function update(data) {
    latest = data;
    const { insight } = data;
    const { summary } = insight;
    pill.className = `pill is-${summary.state}`;
    setText(pill, summary.state);
    if (!under.hasChildNodes()) under.append(h("span", {}), " · created ", timeAgo(summary.created));
    setText(under.firstElementChild, facts(insight));
    buttons.update(insight, may.change());
    for (const part of [...top, ...main, ...side]) part.update(insight, data);
    if (opened?.open()) opened.update(insight);
  }
  return { element, update, arms, toggle: work.toggle, add: work.add, ship: work.ship, configure: work.configure };
}

function facts({ summary: { k, arms, policy, rewards: some, reward_range: range, direction }, settings }) {
  const better = direction === "minimize" ? "lower is better" : "higher is better";
  const ends = withUnit(range.map(short).join(" to "), settings?.unit);
  const rewards = settings?.outside !== "widen" ? `reward ${ends}` : some ? `reward ${ends} so far` : "range is learned";
  const costs = Object.keys(settings?.costs ?? {}).length ? " · values are net of costs" : "";
  return `${k} of ${exact(arms)} arms · ${policy} · ${rewards}, ${better}${costs}`;
}
