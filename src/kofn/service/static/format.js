// Formatting of numbers and times.

const whole = new Intl.NumberFormat("en");

/** 1,204; compact from 100,000 on: 1.2M. */
export function count(value) {
  if (value === null || value === undefined) return "–";
  if (Math.abs(value) < 100_000) return whole.format(value);
  return new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 }).format(value);
}

export const exact = (value) => whole.format(value);

/** Decimal places that resolve a thousandth of the reward range. */
export function digits([low, high]) {
  const span = high - low;
  return Math.max(0, Math.min(6, 3 - Math.floor(Math.log10(span) + 1e-9)));
}

export function reward(value, range) {
  if (value === null || value === undefined) return "–";
  const places = digits(range);
  const text = new Intl.NumberFormat("en", { minimumFractionDigits: places, maximumFractionDigits: places }).format(
    value,
  );
  return text.replace(/^-/, "−");
}

/** A difference with its sign. */
export function signed(value, range) {
  if (value === null || value === undefined) return "–";
  return (value > 0 ? "+" : "") + reward(value, range);
}

/** A share in percent. Values close to 0 and 1 are never rounded to 0% and 100%. */
export function percent(share, places = 0) {
  if (share === null || share === undefined) return "–";
  if (places && share > 0.999 && share < 1) return ">99.9%";
  if (share > 0 && share < 0.005) return "<1%";
  const value = 100 * share;
  return `${value.toFixed(places && value > 99 ? places : 0)}%`;
}

const four = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });

/** Four significant digits: 27.04, 1,200. */
export const short = (value) => four.format(value).replace(/^-/, "−");

const three = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

/** Three significant digits of a metric, whose range is not known: 0.0945, 2.31. */
export const metric = (value) => three.format(value).replace(/^-/, "−");

/** `metric`, with the sign of positive numbers too. */
export const signedMetric = (value) => (value > 0 ? "+" : "") + metric(value);

const two = new Intl.NumberFormat("en", { maximumSignificantDigits: 2 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 2 });

/** Two significant digits, whatever the size: 0.0043, 1.2, 460, 1.3M. */
export function rough(value) {
  if (value === null || value === undefined) return "–";
  return (Math.abs(value) < 100_000 ? two : compact).format(value || 0).replace(/^-/, "−");
}

/** `rough`, with the sign of positive numbers too. */
export const signedRough = (value) => (value > 0 ? "+" : "") + rough(value);

/** The smallest loss that is told apart from none: a millionth of the reward range. */
export const leastLoss = ([low, high]) => (high - low) / 1e6;

/** A loss per play; `bound` if it is the largest that is possible. */
export function loss(value, range, bound) {
  if (value === null || value === undefined) return "–";
  if (value < leastLoss(range)) return `< ${rough(leastLoss(range))}`;
  return bound ? `≤ ${roughUp(value)}` : rough(value);
}

/** `rough`, rounded up: for "at most". */
function roughUp(value) {
  if (!value) return rough(value);
  const step = 10 ** (Math.floor(Math.log10(Math.abs(value)) + 1e-9) - 1);
  return rough(Math.ceil(value / step - 1e-9) * step);
}

/** A number with its unit, if it has one. */
export const withUnit = (text, unit) => (unit ? `${text} ${unit}` : text);

/** What a number per play is in a month at this traffic, or null if the traffic is not known. */
export function perMonth(value, playsPerMonth, unit) {
  if (value === null || value === undefined || !playsPerMonth) return null;
  const total = value * playsPerMonth;
  const text = Math.abs(total) < 0.01 ? "less than 0.01" : `about ${rough(total)}`;
  return `${withUnit(text, unit)} per month`;
}

/** A relative change with its sign: +12%, −3.4%. */
export function relative(share) {
  const size = Math.abs(100 * share);
  return `${share > 0 ? "+" : share < 0 ? "−" : ""}${size.toFixed(size < 10 ? 1 : 0)}%`;
}

const STEPS = [
  [60, 1, "s"],
  [3600, 60, "min"],
  [86_400, 3600, "h"],
  [Infinity, 86_400, "d"],
];

/** 12 s, 4 min, 3 h, 9 d. */
export function span(seconds) {
  const size = Math.max(0, seconds);
  const [, unit, name] = STEPS.find(([below]) => size < below);
  return `${Math.floor(size / unit)} ${name}`;
}

export function ago(at) {
  const seconds = (Date.now() - new Date(at)) / 1000;
  return seconds < 5 ? "just now" : `${span(seconds)} ago`;
}

export function ahead(at) {
  const seconds = (new Date(at) - Date.now()) / 1000;
  return seconds < 1 ? "now" : `in ${span(seconds)}`;
}

const UNITS = { s: 1, m: 60, h: 3600, d: 86_400 };

/** Seconds as the text of a setting: 45s, 30m, 12h, 7d; empty for null. */
export function duration(seconds) {
  if (seconds === null) return "";
  const unit = Object.keys(UNITS).findLast((each) => seconds % UNITS[each] === 0) ?? "s";
  return `${seconds / UNITS[unit]}${unit}`;
}

/** The seconds of such a text; another text as it is, so that the service says what it accepts. */
export function seconds(text) {
  const [, size, unit] = /^(\d+\.?\d*) *([smhd])$/.exec(text) ?? [];
  return unit ? size * UNITS[unit] : text;
}

const full = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "medium" });
export const moment = (at) => full.format(new Date(at));

/** The attributes of a segment with their values; none if no value is known. */
export const segmentPairs = (context) =>
  Object.values(context).every((value) => value === "(missing)") ? [] : Object.entries(context);

/** The segment of a context: "country de, device phone". */
export const segmentName = (context) =>
  segmentPairs(context)
    .map(([name, value]) => `${name} ${value}`)
    .join(", ") || "other visitors";

/** A number and its noun: plural(2, "arm") is "2 arms". */
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
