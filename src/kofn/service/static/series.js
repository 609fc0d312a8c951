// What the history says: the recent mean with its band, scales and their ticks. Pure functions.

const WINDOWS = 25;

/** Points with a reward, each with the mean of the rewards just before it and where that mean lies with 95%. */
export function recent(points, [least, most]) {
  const told = points.filter(({ rewards }) => rewards > 0);
  const all = told.reduce((sum, { rewards }) => sum + rewards, 0);
  const enough = Math.max(1, all / WINDOWS);
  const variance = spread(told);
  let first = 0,
    rewards = 0,
    total = 0;
  const found = told.map((point) => {
    rewards += point.rewards;
    total += point.rewards * point.mean;
    while (rewards - told[first].rewards >= enough) {
      rewards -= told[first].rewards;
      total -= told[first].rewards * told[first].mean;
      first += 1;
    }
    const mean = total / rewards;
    // Of rewards between two ends and with this mean, none can vary more: a few large batches would say otherwise.
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
  const sound = found.filter(({ full }) => full); // before that a mean of a few plays goes up and down
  return sound.length > 1 ? sound : found;
}

/** The variance of one reward, from differences of neighbours: a trend, such as learning, adds next to nothing to it. */
function spread(told) {
  let sum = 0;
  for (let i = 1; i < told.length; i += 1) {
    sum += (told[i].mean - told[i - 1].mean) ** 2 / (1 / told[i].rewards + 1 / told[i - 1].rewards);
  }
  return told.length > 1 ? sum / (told.length - 1) : 0;
}

/** A function from a range of values to a range of pixels. */
export function scale([from, to], [start, end]) {
  const by = to > from ? (end - start) / (to - from) : 0;
  return (value) => start + (value - from) * by;
}

/** Round values over a range, about so many. */
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
  1,
  2,
  5,
  10,
  15,
  30,
  MINUTE,
  2 * MINUTE,
  5 * MINUTE,
  10 * MINUTE,
  15 * MINUTE,
  30 * MINUTE,
  HOUR,
  2 * HOUR,
  3 * HOUR,
  6 * HOUR,
  12 * HOUR,
  DAY,
  2 * DAY,
  7 * DAY,
  14 * DAY,
  30 * DAY,
  60 * DAY,
  90 * DAY,
  365 * DAY,
];

/** Round times, as [milliseconds, text], in the reader's time zone. */
export function timeTicks([from, to], about) {
  const step = 1000 * (SPANS.find((seconds) => 1000 * seconds * about >= to - from) ?? SPANS.at(-1));
  const zone = new Date(to).getTimezoneOffset() * 60_000;
  return stepped(from - zone, to - zone, step).map((time) => [time + zone, clock(time + zone, step)]);
}

function clock(time, step) {
  const parts =
    step < 60_000
      ? { hour: "2-digit", minute: "2-digit", second: "2-digit" }
      : step < 1000 * DAY
        ? { hour: "2-digit", minute: "2-digit" }
        : { month: "short", day: "numeric" };
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
