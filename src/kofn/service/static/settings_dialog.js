// The dialog that changes the settings of a campaign while it runs.

import { configure } from "./api.js";
import { field, form, number, toast } from "./dialogs.js";
import { hasHalfLife } from "./insight_facts.js";
import { ruleFields } from "./rules.js";
import * as fields from "./settings_fields.js";

/** Open the dialog with the field `focus`. `saved()` is called after the settings have been saved. */
export function settingsDialog(name, { settings, summary, arms }, saved, focus = null) {
  const forgets = hasHalfLife({ summary });
  const [low, high] = settings.reward_range;
  const names = Object.keys(fields.DEFAULTS).filter((each) => forgets || each !== "half_life");
  const rules = ruleFields(settings.constraints ?? []);
  const waits = settings.window !== null;
  const costly = summary.policy === "thompson-sizes"; // it learns net of costs
  const offered = arms.filter(({ retired }) => !retired).map((arm) => arm.name);
  rules.offer(offered);
  form({
    title: `Settings of ${name}`,
    wide: true,
    submit: "Save settings",
    intro: "They apply from the next decision on. What was learned is kept.",
    focus: focus === "half_life" && !forgets ? null : focus === "expire_after" && waits ? "window" : focus,
    fields: [
      fields.readyGroup(settings),
      fields.controlGroup(settings, () => summary.k),
      fields.rewardsGroup(
        settings,
        fields.pair(
          field("Lowest", number("low", low)),
          field("Highest", number("high", high), "The range can be widened only."),
        ),
        ...fields.silenceFields(settings, waits ? "silent" : "reported"),
      ),
      fields.metricsGroup(settings),
      forgets ? fields.learningGroup(settings) : null,
      costly ? fields.costsGroup(settings.costs) : null,
      fields.rulesGroup(rules),
      fields.visitorsGroup(settings),
    ],
    async done(data) {
      const given = fields.readSettings(data, new Set(names), rules);
      const range = ["low", "high"].map((each) => Number(data.get(each)));
      if (!(range[0] < range[1])) fields.refuse("high", "The lowest reward must be less than the highest.");
      const asked = { ...given, reward_range: range, ...(costly ? { costs: fields.readCosts(data, offered) } : {}) };
      const news = Object.entries(asked).filter(([key, value]) => !same(settings[key], value));
      if (news.length) Object.assign(settings, await fields.atField(() => configure(name, Object.fromEntries(news))));
      toast(news.length ? "Settings saved" : "Nothing was changed");
      saved();
    },
  });
}

/** Whether two values of a setting are the same. Arms have no order, and a share in a field has six digits. */
function same(a, b) {
  if (typeof a === "number" && typeof b === "number") return Math.abs(a - b) <= 1e-5 * Math.abs(a);
  if (Array.isArray(a) && Array.isArray(b)) return JSON.stringify(a.toSorted()) === JSON.stringify(b.toSorted());
  if (a && b && typeof a === "object") return JSON.stringify(Object.entries(a).toSorted()) === JSON.stringify(Object.entries(b).toSorted());
  return a === b;
}
