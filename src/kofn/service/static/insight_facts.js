// What an insight says about itself.

/** Whether the policy estimates rewards and effects. thompson does, and has a guarantee that can be set; so does a
 * policy that takes a context. */
export const estimates = ({ settings, summary, value }) =>
  value !== null || (settings?.guarantee ?? null) !== null || summary.takes_context;

/** Whether the best subset is more than a guess: something was played, and the policy has learned from it. */
export const bestKnown = (insight) => insight.summary.rewards > 0 && (insight.value !== null || !estimates(insight));

/** Why there is no estimate. */
export function whyUnknown(insight) {
  if (!insight.summary.rewards) return "no rewards yet";
  return estimates(insight) ? "after a few more rewards" : "not estimated by this policy";
}

/** Whether two subsets are the same. */
export const sameArms = (a, b) => a.length === b.length && a.every((name) => b.includes(name));

/** A change of the reward and its limits, with its signs: with direction="minimize", an improvement is negative. */
export const inReward = ({ summary }, value, low, high) =>
  summary.direction === "minimize" ? { value: -value, low: negative(high), high: negative(low) } : { value, low, high };

const negative = (value) => (value === null || value === undefined ? value : -value);
