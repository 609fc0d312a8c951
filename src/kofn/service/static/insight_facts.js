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

/** Whether a decision settles when its window ends, and not with its first reward. */
export const hasWindow = ({ settings }) => (settings?.window ?? null) !== null;

/** What an improvement is called. It is a positive number in both directions. */
export const words = ({ summary }) =>
  summary.direction === "minimize"
    ? { earned: "Saved so far", ship: "Shipping is estimated to save", gain: "Saving from the average" }
    : { earned: "Earned so far", ship: "Shipping is estimated to earn", gain: "Gain over the average" };
