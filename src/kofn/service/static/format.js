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

const full = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "medium" });
export const moment = (at) => full.format(new Date(at));

/** A number and its noun: plural(2, "arm") is "2 arms". */
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
