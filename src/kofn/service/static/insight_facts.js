// What an insight says about itself.

const FORGET = ["thompson", "thompson-sizes"];
const ESTIMATE = [...FORGET, "thompson-guaranteed"];

/** Whether the policy has a half-life. */
export const hasHalfLife = ({ summary }) => FORGET.includes(summary.policy) || summary.takes_context;

/** Whether the policy estimates rewards and effects. */
export const estimates = ({ summary, value }) =>
  value !== null || ESTIMATE.includes(summary.policy) || summary.takes_context;

/** Whether the best subset is more than a guess: something was played, and the policy has learned from it. */
export const bestKnown = (insight) => insight.summary.rewards > 0 && (insight.value !== null || !estimates(insight));

/** Why there is no estimate. */
export function whyUnknown(insight) {
  if (!insight.summary.rewards) return "no rewards yet";
  return estimates(insight) ? "after a few more rewards" : "not estimated by this policy";
}

/** Whether two subsets are the same. */
export const sameArms = (a, b) => a.length === b.length && a.every((name) => b.includes(name));

/** Whether a decision settles when its window ends, and not with its first reward. */
export const hasWindow = ({ settings }) => (settings?.window ?? null) !== null;

/** What an improvement is called. It is a positive number in both directions. */
export const words = ({ summary }) =>
  summary.direction === "minimize"
    ? { earned: "Saved so far", ship: "Shipping is estimated to save", gain: "Saving from the average" }
    : { earned: "Earned so far", ship: "Shipping is estimated to earn", gain: "Gain over the average" };
