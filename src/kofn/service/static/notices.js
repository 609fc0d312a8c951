// What must be seen first: the state of a campaign that is not running, and alarms.

import { capitalized } from "./api.js";
import { button, h, icon, setText, syncList } from "./dom.js";
import { exact } from "./format.js";
import { sameArms } from "./insight_facts.js";
import { chips, timeAgo } from "./side_panels.js";

/** What each state means for those who ask for decisions. */
const STATES = {
  paused: ["pause", "Paused", "It makes no decisions until it is resumed. Rewards still count."],
  shipped: ["flag", "Shipped", "Everyone gets these arms. Rewards are still counted; resume to learn again."],
  stopped: ["stop", "Stopped", "It makes no more decisions. Late rewards still count."],
  archived: ["archive", "Archived", "It is not in the list, and takes no decisions and no rewards. Its data is kept."],
};

/** The setting that the advice of an alarm names, and its button. */
const BUTTONS = {
  drift: ["half_life", "Set the half-life"],
  delay: ["expire_after", "Change how long it waits"],
  ratio: ["control", "See the control"],
  guardrail: ["guardrails", "See the guardrails"],
};

const TO_SEGMENTS = [
  "Each segment gets its own winner: see Segments. A new segment gets the winners predicted from similar segments.",
  "Rewards are still counted; resume to learn again.",
];

/** The notices, and `update(insight, data)`. `configure(field)` opens the settings. */
export function notices({ configure, may }) {
  const state = h("div", { class: "notice", role: "status", hidden: true });
  const alarms = h("ul", { class: "alarms", "aria-label": "Alarms" });
  const banner = h("section", { class: "alarm-banner", role: "alert", hidden: true }, alarms);
  const element = h("div", { class: "notices" }, banner, state);
  let shown = null;

  function showState({ summary, shipped }, events, segments) {
    const known = STATES[summary.state];
    state.hidden = !known;
    const differ = segments.some((each) => each.shipped && !sameArms(each.shipped, shipped));
    const now = `${summary.state} ${differ} ${(shipped ?? []).join("\n")}`;
    if (!known || now === shown) return;
    shown = now;
    const [sign, title, general] = known;
    const [lead, text] = differ ? TO_SEGMENTS : [null, general];
    const since = events.find(({ kind }) => kind === summary.state);
    state.className = `notice is-${summary.state}`;
    state.replaceChildren(
      h("span", { class: "notice-sign" }, icon(sign)),
      h(
        "div",
        { class: "notice-body" },
        h("p", {}, h("b", {}, title), since && [" ", h("span", { class: "quiet" }, timeAgo(since.at))]),
        lead && h("p", {}, lead),
        shipped && !differ && h("div", { class: "chips shipped-arms" }, chips(shipped, 40)),
        h("p", {}, text),
      ),
    );
  }

  function create({ kind }) {
    const [field, label] = BUTTONS[kind] ?? [];
    const to = field && button({ kind: "small", click: () => configure(field) }, label);
    return h(
      "li",
      { class: "alarm" },
      h("span", { class: "notice-sign" }, icon("warn")),
      h(
        "div",
        { class: "notice-body" },
        h("p", {}, h("b", { class: "seen" }), " ", h("span", { class: "since" })),
        h("p", { class: "advice" }),
      ),
      to,
    );
  }

  function fill(row, { kind, since, at, message, advice }) {
    const when = row.querySelector(".since");
    if (at && when.firstElementChild?.dateTime !== at) when.replaceChildren("since ", timeAgo(at));
    else if (!at) setText(when, since === null ? "" : `found after ${exact(since)} rewards`);
    setText(row.querySelector(".seen"), capitalized(message));
    setText(row.querySelector(".advice"), `${kind === "policy" ? capitalized(advice) : `What to do: ${advice}`}.`);
    const to = row.querySelector("button");
    if (to) to.hidden = !may.change();
  }

  return {
    element,
    update(insight, { events, segments }) {
      const raised = insight.alarms ?? [];
      banner.hidden = raised.length === 0;
      syncList(alarms, raised, { key: ({ kind, arm }) => `${kind} ${arm}`, create, update: fill });
      showState(insight, events, segments.segments);
    },
  };
}
