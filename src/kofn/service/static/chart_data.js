// Pure functions for the chart: the recent mean with its interval, scales and ticks.

const WINDOWS = 25; // the recent mean covers the last 1/25 of all rewards

/** The points with rewards, each with the mean of recent rewards and its 95% interval. */
export function recent(points, [least, most]) {
  const rewarded = points.filter(({ rewards }) => rewards > 0);
  const all = rewarded.reduce((sum, { rewards }) => sum + rewards, 0);
  const enough = Math.max(1, all / WINDOWS);
  const variance = rewardVariance(rewarded);
  let first = 0,
    rewards = 0,
    total = 0;
  const found = rewarded.map((point) => {
    rewards += point.rewards;
    total += point.rewards * point.mean;
    while (rewards - rewarded[first].rewards >= enough) {
      rewards -= rewarded[first].rewards;
      total -= rewarded[first].rewards * rewarded[first].mean;
      first += 1;
    }
    const mean = total / rewards;
    // No rewards in this range with this mean have a larger variance; the estimate from a few large batches may.
    const widest = Math.max(0, (mean - least) * (most - mean));
    const error = 1.96 * Math.sqrt(Math.min(variance, widest) / rewards);
    return {
      ...point,
      time: (Date.parse(point.at) + Date.parse(point.until)) / 2,
      recent: mean,
      low: mean - error,
      high: mean + error,
      full: point.total_rewards >= enough,
    };
  });
  const stable = found.filter(({ full }) => full); // earlier points average too few plays
  return stable.length > 1 ? stable : found;
}

/** The variance of one reward, estimated from differences of neighbours, on which a trend has little influence. */
function rewardVariance(rewarded) {
  let sum = 0;
  for (let i = 1; i < rewarded.length; i += 1) {
    sum += (rewarded[i].mean - rewarded[i - 1].mean) ** 2 / (1 / rewarded[i].rewards + 1 / rewarded[i - 1].rewards);
  }
  return rewarded.length > 1 ? sum / (rewarded.length - 1) : 0;
}

/** The linear function from a range of values to a range of pixels. */
export function scale([from, to], [start, end]) {
  const by = to > from ? (end - start) / (to - from) : 0;
  return (value) => start + (value - from) * by;
}

/** About `about` round values in a range. */
export function ticks([from, to], about) {
  const rough = (to - from) / about;
  if (!(rough > 0)) return [from];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((by) => by * power).find((size) => size >= 0.7 * rough);
  return stepped(from, to, step);
}

function stepped(from, to, step) {
  const found = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + step * 1e-9; i += 1) found.push(i * step);
  return found;
}

const MINUTE = 60,
  HOUR = 3600,
  DAY = 86_400;
const SPANS = [
  ...[1, 2, 5, 10, 15, 30],
  ...[1, 2, 5, 10, 15, 30].map((each) => each * MINUTE),
  ...[1, 2, 3, 6, 12].map((each) => each * HOUR),
  ...[1, 2, 7, 14, 30, 60, 90, 365].map((each) => each * DAY),
];

/** Round times in the local time zone, as [milliseconds, text]. */
export function timeTicks([from, to], about) {
  const step = 1000 * (SPANS.find((seconds) => 1000 * seconds * about >= to - from) ?? SPANS.at(-1));
  const zone = new Date(to).getTimezoneOffset() * 60_000;
  return stepped(from - zone, to - zone, step).map((time) => [time + zone, clock(time + zone, step)]);
}

function clock(time, step) {
  const day = { month: "short", day: "numeric" },
    minute = { hour: "2-digit", minute: "2-digit" };
  const at = new Date(time);
  const midnight = step >= 1000 * HOUR && at.getHours() === 0 && at.getMinutes() === 0;
  const parts = step >= 1000 * DAY || midnight ? day : step < 60_000 ? { ...minute, second: "2-digit" } : minute;
  return new Intl.DateTimeFormat("en", { ...parts, hourCycle: "h23" }).format(time);
}

/** The index of the value nearest to this one, in a sorted list. */
export function nearest(sorted, value) {
  let low = 0,
    high = sorted.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle;
    else high = middle;
  }
  return value - sorted[low] < sorted[high] - value ? low : high;
}
