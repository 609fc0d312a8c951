// The settings of a campaign as fields of a form, and back. A setting with a single field has the
// same name here as in the API.

import { ApiError } from "./api.js";
import { area, check, field, input, number, question } from "./dialogs.js";
import { h, radios } from "./dom.js";
import { duration, seconds } from "./format.js";

/** The settings of a new campaign. */
export const DEFAULTS = {
  control: null,
  control_share: 0.1,
  sticky: null,
  outside: "refuse",
  stop_when: null,
  ship_when_ready: false,
  breaker: false,
  unit: "",
  window: null,
  silence: 0,
  expire_after: 7 * 86_400,
  metric_window: null,
  guardrails: [],
  half_life: null,
  constraints: [],
};

const WINDOW = 1800; // that is offered, in seconds
const TIMES = "Such as 45s, 30m, 12h or 7d.";
const CONTROLS = [["none", "No control"], ["arms", "Fixed arms, such as today's page"], ["uniform", "Random arms"]];
const OUTSIDE = [["refuse", "Refused"], ["clip", "Clipped and counted"], ["widen", "Taken: the range grows"]];

const select = (name, chosen, options, more = {}) => {
  const option = ([value, text]) => h("option", { value, selected: value === chosen }, text);
  return h("select", { name, ...more }, options.map(option));
};

const group = (title, ...inside) => h("section", { class: "settings-group" }, h("h3", {}, title), ...inside);
export const pair = (...two) => h("div", { class: "columns even" }, two);

/** The groups of fields that the dialogs share. */
export const readyGroup = (settings) => group("Ready to ship", pair(stopField(settings), shipField(settings)));
export const controlGroup = (settings, size) => group("Control", ...controlFields(settings, size), breakerField(settings));
export const rewardsGroup = (settings, ...first) => group("Rewards", ...first, pair(unitField(settings), outsideField(settings)));
export const metricsGroup = (settings) =>
  group("Metrics beside the reward", guardrailFields(settings), pair(metricWindowField(settings)));
export const learningGroup = (settings, ...first) =>
  group("Learning", ...first, pair(halfLifeField(settings)));
export const rulesGroup = (rules) =>
  group("Rules", h("p", { class: "hint" }, "Every decision obeys them, such as at most 2 products of a brand."), ...rules.elements);
export const costsGroup = (costs) =>
  group(
    "Costs",
    field(
      "Price of each arm",
      area("costs", 4, Object.entries(costs ?? {}).map(([arm, cost]) => `${arm} ${cost}`), { placeholder: "kettle 3.5\nmug 2" }),
      "One arm per line, followed by its cost. Other arms are free. All values of the campaign are net of costs.",
    ),
  );
export const visitorsGroup = (settings) => group("Visitors", pair(stickyField(settings)));

/** What the control gets, and its share. `size()` returns K. */
function controlFields({ control, control_share: share }, size) {
  const kind = Array.isArray(control) ? "arms" : (control ?? "none");
  const arms = area("control_arms", Math.min(Math.max(4, size()), 10), kind === "arms" ? control : []);
  const part = number("control_share", +(100 * share).toPrecision(6), { min: "0", max: "100" });
  const listed = field("Arms of the control", arms, "One per line, as many as a decision has.");
  const shared = field("Share of decisions (%)", part);
  const choice = select("control", kind, CONTROLS, { on: { change: show } });
  function show() {
    listed.hidden = choice.value !== "arms";
    shared.hidden = choice.value === "none";
    arms.placeholder = `${size()} arms`;
  }
  show();
  const gets = field("Control gets", choice, "A share of the decisions, to measure what learning is worth.");
  return [h("div", { class: "columns" }, gets, shared), listed];
}

const stopField = ({ stop_when: rule }) =>
  field(
    "Stop rule",
    input("stop_when", rule, { placeholder: "loss<0.01" }),
    "The largest loss per play of shipping at which the campaign is ready. Empty: none.",
  );
const unitField = ({ unit }) =>
  field("Unit of the reward", input("unit", unit, { maxlength: "20", placeholder: "EUR" }));
const halfLifeField = ({ half_life: plays }) =>
  field(
    "Half-life (plays)",
    number("half_life", plays, { min: "1", step: "1", placeholder: "none", inputmode: "numeric" }),
    "After this many plays a reward counts half. For rewards that change.",
  );
const shipField = ({ ship_when_ready: ship }) =>
  check("Ship when ready", "ship_when_ready", ship, "Ships the best subset by itself when the stop rule holds.");
const breakerField = ({ breaker }) =>
  check("Breaker", "breaker", breaker, "Ships the control when learning certainly loses against it.");
const stickyField = ({ sticky }) =>
  field(
    "A visitor keeps the arms for",
    input("sticky", duration(sticky), { placeholder: "not kept" }),
    "Such as 30d. For decisions that are asked for with a key.",
  );
const outsideField = ({ outside }) =>
  field("Rewards outside the range are", select("outside", outside, OUTSIDE));
const metricWindowField = ({ metric_window: window }) =>
  field("Metrics settle after", input("metric_window", duration(window), { placeholder: "as rewards" }), TIMES);

/** What happens to a decision about which nothing is reported: it settles with its window, or expires. */
export function silenceFields({ window, silence, expire_after: expiry }, chosen) {
  const waits = pair(
    field("Wait for", input("window", duration(window ?? WINDOW)), `Then a decision settles. ${TIMES}`),
    field("Then count it as a reward of", number("silence", silence)),
  );
  const expires = pair(field("Forget a decision without a reward after", input("expire_after", duration(expiry)), TIMES));
  const show = (value) => {
    waits.hidden = value !== "silent";
    expires.hidden = value !== "reported";
  };
  const choices = [
    ["silent", "Nothing is reported: only orders or clicks are"],
    ["reported", "A zero is reported: every decision gets a reward"],
  ];
  show(chosen);
  return [question("What if a visitor does nothing?", "options", radios("silent", choices, chosen, show)), waits, expires];
}

/** A field for each guardrail, and an empty one. */
function guardrailFields({ guardrails }) {
  const one = (text) => input("guardrails", text, { placeholder: "returns<=+2%", "aria-label": "Guardrail" });
  const list = h("div", { class: "settings-group", on: { input: grow } }, guardrails.map(one));
  function grow() {
    if (list.lastElementChild?.value !== "") list.append(one(""));
  }
  grow();
  const hint = "Raises an alarm when a metric has certainly changed more than that from the control. It is not optimised.";
  return h("div", { class: "field" }, h("span", { class: "field-label" }, "Guardrails"), list, h("span", { class: "hint" }, hint));
}

/** The non-empty lines of a text. */
export const lines = (text) =>
  text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);

/** Refuse a field of the form. */
export function refuse(name, message) {
  throw new ApiError(422, message, name);
}

/** The settings that a form has, those that are not in it left out. An ApiError for an invalid field. */
export function readSettings(data, form, rules) {
  const has = (name) => Boolean(form.has(name));
  const text = (name) => String(data.get(name) ?? "").trim();
  const found = {};
  const take = (name, value) => {
    if (has(name)) found[name] = value();
  };
  const time = (name) => seconds(text(name)) || null;
  take("control", () => control(data, text));
  if (found.control) take("control_share", () => share(text("control_share")));
  take("sticky", () => time("sticky"));
  take("outside", () => text("outside"));
  take("stop_when", () => stopRule(text("stop_when")));
  take("unit", () => text("unit"));
  take("half_life", () => (text("half_life") ? Number(text("half_life")) : null));
  const silent = text("silent") === "silent";
  take("window", () => (silent ? time("window") ?? refuse("window", "Enter how long to wait, such as 30m.") : null));
  take("silence", () => Number(text("silence")));
  take("expire_after", () => time("expire_after") ?? refuse("expire_after", "Enter how long to wait, such as 7d."));
  take("metric_window", () => time("metric_window"));
  take("guardrails", () => data.getAll("guardrails").map((each) => each.trim()).filter(Boolean));
  take("constraints", rules.read);
  for (const name of ["ship_when_ready", "breaker"]) take(name, () => data.has(name));
  return found;
}

/** What arms cost, by name. */
export function readCosts(data, names) {
  const read = (line) => costOf(line, names) ?? refuse("costs", `“${line}” is not an arm of the campaign and its cost.`);
  return Object.fromEntries(lines(String(data.get("costs") ?? "")).map(read));
}

/** The arm and the cost of a line of text; null if it does not have both. */
export function costOf(line, names) {
  const [, arm, text] = line.trim().match(/^(.*?)[\s:=]+([^\s:=]+)$/) ?? [];
  const cost = Number(text); // small ones are shown as 1e-7
  return names.includes(arm) && cost >= 0 && cost < Infinity ? [arm, cost] : null;
}

function control(data, text) {
  const kind = text("control");
  if (kind !== "arms") return kind === "none" ? null : kind;
  const arms = lines(text("control_arms"));
  return arms.length ? arms : refuse("control_arms", "List the arms of the control, one per line.");
}

function share(text) {
  const value = Number(text) / 100;
  if (!(value > 0 && value < 1)) refuse("control_share", "The share must be above 0 and below 100.");
  return value;
}

/** The rule; a number alone is the largest loss. */
const stopRule = (text) => (text && Number.isFinite(Number(text)) ? `loss<${text}` : text || null);

/** Words of errors of the service, and the field that they are about. The first match applies. */
const WORDS = [
  [/does not take half_life/, "half_life"],
  [/attribute/i, "attributes"],
  [/costs?\b/i, "costs"],
  [/guardrail/i, "guardrails"],
  [/metric_window/i, "metric_window"],
  [/silence/i, "silence"],
  [/window/i, "window"],
  [/policy|too many subsets/i, "policy"],
  [/stop rule|stop_when/i, "stop_when"],
  [/\brules?\b|constraints/i, "rule_kind"],
  [/breaker/i, "control"],
  [/control_share/i, "control_share"],
  [/control|subset|there is no arm|listed twice/i, "control_arms"],
  [/range/i, "high"],
  [/half.life/i, "half_life"],
  [/sticky/i, "sticky"],
  [/unit/i, "unit"],
  [/expire_after/i, "expire_after"],
  [/already exists|name/i, "name"],
];

/** Run a call; an error of the service gets the field that it is about. */
export async function atField(call) {
  try {
    return await call();
  } catch (error) {
    if (error instanceof ApiError && error.status < 500) {
      const aliases = { reward_range: "high", control: "control_arms", constraints: "rule_kind" };
      error.field = aliases[error.field] ?? error.field ?? WORDS.find(([words]) => words.test(error.message))?.[1] ?? null;
    }
    throw error;
  }
}
