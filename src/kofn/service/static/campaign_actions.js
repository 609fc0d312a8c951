// Actions on a campaign, with their dialogs and buttons.

import * as api from "./api.js";
import { field, form, input, toast } from "./dialogs.js";
import { button, h, icon } from "./dom.js";
import { plural } from "./format.js";
import { groupChoices } from "./rules.js";
import { settingsDialog } from "./settings_dialog.js";
import { shipDialog } from "./ship_dialog.js";

const FINAL = ["stopped", "archived"];

/** The actions on a campaign. `latest()` returns its latest insight, or null if it may not be changed; `segments()` its
 * segments. */
export function actions(name, latest, segments, refresh, home) {
  const state = () => latest()?.summary.state ?? "archived";

  async function attempt(work, message) {
    try {
      await work();
      toast(message);
    } catch (error) {
      if (!(error instanceof api.ApiError)) throw error;
      if (error.status !== 401) toast(error.message, true);
    }
    refresh();
  }

  const pause = () => attempt(() => api.act(name, "pause"), `${name} is paused: no decisions until you resume it`);
  const resume = () => attempt(() => api.act(name, "resume"), `${name} is resumed: it decides and learns`);
  const toggle = () => {
    if (state() === "running") pause();
    if (state() === "paused") resume();
  };
  const ship = () => !FINAL.includes(state()) && shipDialog(name, latest(), segments(), refresh);
  const configure = (focus) => !FINAL.includes(state()) && settingsDialog(name, latest(), refresh, focus);

  /** Ask, then do some work, which returns what to say. */
  const ask = (title, submit, intro, work, more = {}) =>
    form({
      title,
      submit,
      intro,
      danger: true,
      async done(data) {
        toast(await work(data));
        refresh();
      },
      ...more,
    });

  /** Ask, then enter a state from which there is no way back. */
  const end = (verb, past, intro) => () =>
    ask(`${api.capitalized(verb)} ${name}?`, `${api.capitalized(verb)} campaign`, intro, async () => {
      await api.act(name, verb);
      return `${name} is ${past}`;
    });
  const stop = end(
    "stop",
    "stopped",
    "It makes no more decisions, so whoever asks for one gets an error. It cannot be resumed. Late rewards still count.",
  );
  const archive = end(
    "archive",
    "archived",
    "It leaves the list, and takes no more decisions and rewards: whoever asks for a decision gets an error. It cannot be resumed. Its data is kept, and can be exported.",
  );

  const retire = (arm) => {
    const intro = "It is no longer shown. What was learned about the other arms is kept. You can bring it back later.";
    ask(`Retire ${arm}?`, "Retire arm", intro, async () => {
      await api.retireArm(name, arm);
      return `${arm} is retired`;
    });
  };

  const bringBack = (arm) => attempt(() => api.addArm(name, arm), `${arm} is back, and is explored again`);

  const add = () => {
    if (FINAL.includes(state())) return;
    const intro = "A new arm is explored along with the others. What was learned about them is kept.";
    const named = field("Name of the arm", input("arm", "", { required: true, maxlength: "200", autofocus: true }));
    const added = async (data) => {
      const arm = String(data.get("arm")).trim();
      if (!arm) throw new api.ApiError(422, "The arm needs a name.", "arm");
      await api.addArm(name, arm, data.getAll("groups").map(String));
      return `${arm} is added`;
    };
    const fields = [named, groupChoices(latest().settings?.constraints ?? [])];
    ask("Add an arm", "Add arm", intro, added, { danger: false, fields });
  };

  const remove = () =>
    form({
      title: `Delete ${name}?`,
      submit: "Delete campaign",
      danger: true,
      intro: `This deletes ${plural(latest().summary.plays, "play")} and everything that was learned. Export the campaign first if you may need it again.`,
      fields: [field("Type the campaign's name to confirm", input("confirmation", "", { autofocus: true }))],
      async done(data) {
        if (data.get("confirmation") !== name)
          throw new api.ApiError(422, `The name does not match: type ${name}.`, "confirmation");
        await api.remove(name);
        toast(`${name} is deleted`);
        home();
      },
    });

  const download = (load, file) => () =>
    attempt(async () => {
      const link = h("a", { href: URL.createObjectURL(await load(name)), download: file });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    }, `Saved as ${file}`);
  const exportJson = download(api.exported, `${name}.json`);
  const exportCsv = download(api.exportedDecisions, `${name}.csv`);

  const work = { pause, resume, ship, configure, stop, archive, exportJson, exportCsv, remove };
  return { toggle, ship, configure, retire, bringBack, add, buttons: () => buttonRow(work) };
}

function buttonRow({ pause, resume, ship, configure, stop, archive, exportJson, exportCsv, remove }) {
  const tool = (text, sign, click, key, title) =>
    button({ click, "aria-keyshortcuts": key, title: `${title} (${key})` }, icon(sign), text);
  const pauseButton = tool("Pause", "pause", pause, "p", "No decisions until it is resumed; rewards still count");
  const resumeButton = tool("Resume", "play", resume, "p", "Decide and learn again");
  const shipButton = tool("Ship…", "flag", ship, "s", "");
  const settingsButton = tool("Settings", "settings", () => configure(), "e", "Control, window, stop rule and more");
  const entry = (sign, text, line, click, bad) =>
    h(
      "button",
      {
        class: `menu-item ${bad ? "is-bad" : ""}`,
        type: "button",
        "aria-label": text,
        on: {
          click: () => {
            menu.open = false;
            click();
          },
        },
      },
      icon(sign),
      h("span", {}, text, h("span", { class: "menu-line" }, line)),
    );
  const stopEntry = entry("stop", "Stop…", "No more decisions, for good. Late rewards still count.", stop);
  const archiveEntry = entry("archive", "Archive…", "Leaves the list and takes nothing more. Its data is kept.", archive);
  const deleteEntry = entry("trash", "Delete…", "Removes it with all its data.", remove, true);
  const menu = h(
    "details",
    { class: "menu" },
    h("summary", { class: "button icon-only", "aria-label": "More actions", title: "More actions" }, icon("more")),
    h(
      "div",
      { class: "menu-body" },
      stopEntry,
      archiveEntry,
      entry("download", "Decisions as CSV", "A row per decision, for a spreadsheet or a notebook.", exportCsv),
      entry("download", "Export as JSON", "The campaign as a file, to keep or to import.", exportJson),
      deleteEntry,
    ),
  );
  menu.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      menu.open = false;
      menu.firstElementChild.focus();
    }
  });
  menu.addEventListener("focusout", (event) => {
    if (!menu.contains(event.relatedTarget)) menu.open = false;
  });
  const element = h("div", { class: "tools" }, resumeButton, shipButton, pauseButton, settingsButton, menu);

  /** Show what can be done in this state; only exports, if the campaign may not be changed. */
  function update({ summary: { state, takes_context: takesContext }, stop: rule }, mayChange) {
    const focused = element.contains(document.activeElement);
    const over = FINAL.includes(state) || !mayChange;
    pauseButton.hidden = over || state !== "running";
    resumeButton.hidden = over || (state !== "paused" && state !== "shipped");
    resumeButton.classList.toggle("primary", state === "paused");
    shipButton.hidden = over;
    shipButton.title = takesContext ? "Give each segment its best subset from now on (s)" : "Give everyone the same arms from now on (s)";
    shipButton.classList.toggle("primary", state === "running" && Boolean(rule?.ready));
    settingsButton.hidden = over;
    stopEntry.hidden = over;
    archiveEntry.hidden = state === "archived" || !mayChange;
    deleteEntry.hidden = !mayChange;
    // Keep the keyboard focus when the focused button disappears.
    if (focused && document.activeElement.hidden)
      [pauseButton, resumeButton, menu.firstElementChild].find((each) => !each.hidden).focus();
  }
  return { element, update };
}
