// The dialog of one arm: its effect now and over time.

import { modal } from "./dialogs.js";
import { button, h, setText } from "./dom.js";
import { count, percent, signed, withUnit } from "./format.js";
import { lineChart, seriesOf } from "./line_chart.js";

/** Open the dialog. `history()` loads the estimates over time with the effects of the arm. Returns {update(insight),
 * open()}; `open()` is false after it was closed. */
export function armDialog(name, { history, retire, bringBack, may }) {
  const chart = lineChart({ label: "Effect", small: true });
  const facts = h("p", { class: "dialog-intro" });
  const none = h("p", { class: "quiet" });
  const act = (text, work) => button({ hidden: true, click: () => (dialog.close(), work(name)) }, text);
  const retireButton = act("Retire…", retire),
    backButton = act("Bring back", bringBack);
  const dialog = modal(
    name,
    "wide arm-dialog",
    h("div", { class: "arm-body" }, facts, none, chart.element),
    h("div", { class: "dialog-foot" }, retireButton, backButton),
  );
  let loaded = null; // the updates of the policy that the chart shows

  /** Draw the history, and load it again after the policy has learned. */
  async function draw({ updates, settings, expected_loss: loss }) {
    if (loaded === updates) return;
    loaded = updates;
    const estimates = loss === null ? [] : await history().catch(() => null);
    if (!estimates || loaded !== updates) return; // the page says that the service does not answer
    const series = seriesOf(estimates, ({ effects }) => ({ value: effects[name] }));
    chart.element.hidden = series.length < 2;
    none.hidden = series.length >= 2;
    setText(none, estimates.length > 1 ? "Its history is not kept: campaigns with more than 200 arms do not keep it." : "No history yet.");
    chart.update({ series, unit: settings?.unit ?? "" });
  }

  function update(insight) {
    const arm = insight.arms.find((each) => each.name === name);
    if (arm) setText(facts, factsOf(arm, insight));
    draw(insight);
    const { state } = insight.summary;
    const fixed = !may.change() || state === "stopped" || state === "archived";
    retireButton.hidden = fixed || !arm || arm.retired;
    backButton.hidden = fixed || !arm?.retired;
  }
  return { update, open: () => dialog.isConnected };
}

function factsOf(arm, { summary, settings }) {
  const range = summary.reward_range;
  const share = summary.rewards ? percent(Math.min(1, arm.plays / summary.rewards)) : "0%";
  const shown = `In ${share} of the plays (${count(arm.plays)}).`;
  if (arm.retired) return `Retired. ${shown}`;
  if (arm.effect === null) return shown;
  const effect = withUnit(signed(arm.effect, range), settings?.unit);
  return `${effect} per play compared with a borderline arm, 95% interval ${signed(arm.low, range)} to ${signed(arm.high, range)}. ${shown}`;
}
