// The dialog that ships a campaign: everyone gets the same arms from now on, or each segment its own.

import { ApiError, ship } from "./api.js";
import { area, check, field, form, toast } from "./dialogs.js";
import { h } from "./dom.js";
import { exact, loss as lossText, perMonth, segmentName, withUnit } from "./format.js";
import { bestKnown } from "./insight_facts.js";
import { figures, OVER, worth } from "./lift_panel.js";
import { lines } from "./settings_fields.js";
import { chips } from "./side_panels.js";

const SEGMENTS = 6; // that are listed

/** Open the dialog. `done()` is called after the campaign has been shipped. */
export function shipDialog(name, insight, segments, done) {
  const { summary, settings } = insight;
  const numbers = figures(OVER);
  if (settings?.control) numbers.update(worth(insight));
  const best = bestKnown(insight) ? insight.best : [];
  const who = segments.length > 0 ? "Each segment gets its own best subset" : "Everyone gets the same arms";
  const other = area("arms", Math.min(8, summary.k + 1), [], { placeholder: `${summary.k} arms, one per line` });
  form({
    title: `Ship ${name}?`,
    submit: "Ship",
    intro: `${who} from now on. Rewards are still counted, and Resume goes back to learning.`,
    fields: [
      segments.length > 0 && ofSegments(segments),
      segments.length > 0 && h("p", {}, "A new segment gets the winners predicted from similar segments, and keeps them."),
      segments.length === 0 &&
        best.length > 0 &&
        h("div", { class: "ship-arms" }, h("p", {}, "Everyone gets the best subset:"), h("div", { class: "chips" }, chips(best, 40))),
      h("p", { class: "ship-loss" }, verdict(insight)),
      settings?.control && numbers.element,
      h(
        "details",
        { class: "advanced", open: !best.length },
        h("summary", {}, "Other options"),
        h(
          "div",
          { class: "advanced-body" },
          field(segments.length > 0 ? "Give everyone these arms instead" : "Ship these arms instead", other, `Exactly ${summary.k}.`),
          check(
            "Decide without the database",
            "unstored",
            false,
            "Decisions are stored together with their rewards. They are faster, and Resume takes effect after a second.",
          ),
        ),
      ),
    ].filter(Boolean),
    async done(data) {
      const arms = lines(String(data.get("arms")));
      if (!arms.length && !best.length) throw new ApiError(422, "No subset is known to be good yet: list the arms to ship.", "arms");
      try {
        const chosen = arms.length ? arms : segments.length ? null : best; // null: each segment gets its best subset
        await ship(name, { arms: chosen, store: !data.has("unstored") });
      } catch (error) {
        if (error instanceof ApiError && arms.length) error.field = "arms";
        throw error;
      }
      toast(`${name} is shipped: ${segments.length && !arms.length ? "each segment gets its own best subset" : "everyone gets the same arms"}`);
      done();
    },
  });
}

/** What the largest segments get. */
function ofSegments(segments) {
  const row = ({ context, best }) =>
    h("li", {}, h("span", { class: "for-whom" }, segmentName(context)), h("div", { class: "chips" }, chips(best, 8)));
  const rest = segments.length - SEGMENTS;
  return h(
    "div",
    { class: "ship-arms" },
    h("ul", { class: "ship-segments" }, segments.slice(0, SEGMENTS).map(row)),
    rest > 0 && h("p", { class: "hint" }, `And ${exact(rest)} smaller segments, each its own: see Segments.`),
  );
}

function verdict(insight) {
  const { stop, expected_loss: expected, settings, plays_per_month: traffic, summary } = insight;
  const loss = stop?.bound ?? expected;
  if (!bestKnown(insight)) return "Too little has been played: no subset is known to be good yet.";
  if (loss === null) return "The policy does not estimate what this may lose.";
  const unit = settings?.unit ?? "";
  const month = perMonth(loss, traffic, unit);
  const number = lossText(loss, summary.reward_range, Boolean(stop));
  const text = withUnit(number.replace("≤", "at most").replace("<", "below"), unit);
  const size = `The expected loss is ${text} per play${month ? `, ${month}` : ""}.`;
  if (!stop) return size;
  return stop.ready ? `Ready. ${size}` : `Not ready by the stop rule. ${size}`;
}
