// Actions on a campaign, with their dialogs and buttons.

import * as api from "./api.js";
import { field, form, toast } from "./dialogs.js";
import { h, icon } from "./dom.js";
import { plural } from "./format.js";

/** The actions on a campaign. `summary()` returns its latest summary, or null if it may not be changed. */
export function actions(name, summary, refresh, home) {
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

  const toggle = () => {
    const { state } = summary() ?? {};
    if (state === "running") attempt(() => api.act(name, "pause"), `${name} is paused`);
    if (state === "paused") attempt(() => api.act(name, "resume"), `${name} is resumed`);
  };

  const finish = () =>
    form({
      title: `Finish ${name}?`,
      submit: "Finish campaign",
      danger: true,
      intro:
        "It makes no more decisions and cannot be resumed. Late rewards still count, and everything learned is kept.",
      async done() {
        await api.act(name, "finish");
        toast(`${name} is finished`);
        refresh();
      },
    });

  const retire = (arm) =>
    form({
      title: `Retire ${arm}?`,
      submit: "Retire arm",
      danger: true,
      intro: "It is no longer shown. What was learned about the other arms is kept.",
      async done() {
        await api.retireArm(name, arm);
        toast(`${arm} is retired`);
        refresh();
      },
    });

  const add = () => {
    if ((summary()?.state ?? "finished") === "finished") return;
    form({
      title: "Add an arm",
      submit: "Add arm",
      intro: "A new arm is explored along with the others. What was learned about them is kept.",
      fields: [
        field(
          "Name of the arm",
          h("input", {
            name: "arm",
            required: true,
            maxlength: "200",
            autocomplete: "off",
            spellcheck: "false",
            autofocus: true,
          }),
        ),
      ],
      async done(data) {
        const arm = String(data.get("arm")).trim();
        if (!arm) throw new api.ApiError(422, "The arm needs a name.");
        await api.addArm(name, arm);
        toast(`${arm} is added`);
        refresh();
      },
    });
  };

  const remove = () =>
    form({
      title: `Delete ${name}?`,
      submit: "Delete campaign",
      danger: true,
      intro: `This deletes ${plural(summary().plays, "play")} and everything that was learned. Export the campaign first if you may need it again.`,
      fields: [
        field(
          "Type the campaign's name to confirm",
          h("input", { name: "confirmation", autocomplete: "off", spellcheck: "false", autofocus: true }),
        ),
      ],
      async done(data) {
        if (data.get("confirmation") !== name) throw new api.ApiError(422, `The name does not match: type ${name}.`);
        await api.remove(name);
        toast(`${name} is deleted`);
        home();
      },
    });

  const exportJson = () =>
    attempt(async () => {
      const link = h("a", { href: URL.createObjectURL(await api.exported(name)), download: `${name}.json` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    }, "Exported");

  return { toggle, retire, add, buttons: () => buttonRow({ toggle, finish, exportJson, remove }) };
}

function buttonRow({ toggle, finish, exportJson, remove }) {
  const pause = h(
    "button",
    { class: "button", type: "button", "aria-keyshortcuts": "p", title: "Pause (p)", on: { click: toggle } },
    icon("pause"),
    "Pause",
  );
  const resume = h(
    "button",
    { class: "button primary", type: "button", "aria-keyshortcuts": "p", title: "Resume (p)", on: { click: toggle } },
    icon("play"),
    "Resume",
  );
  const end = h("button", { class: "button", type: "button", on: { click: finish } }, icon("flag"), "Finish");
  const entry = (sign, text, work, bad) =>
    h(
      "button",
      {
        class: `menu-item ${bad ? "is-bad" : ""}`,
        type: "button",
        on: {
          click: () => {
            menu.open = false;
            work();
          },
        },
      },
      icon(sign),
      text,
    );
  const menu = h(
    "details",
    { class: "menu" },
    h("summary", { class: "button icon-only", "aria-label": "More actions", title: "More actions" }, icon("more")),
    h(
      "div",
      { class: "menu-body" },
      entry("download", "Export as JSON", exportJson),
      entry("trash", "Delete…", remove, true),
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
  const element = h("div", { class: "tools" }, pause, resume, end, menu);

  function update({ state }) {
    const focused = element.contains(document.activeElement);
    pause.hidden = state !== "running";
    resume.hidden = state !== "paused";
    end.hidden = state === "finished";
    // Keep the keyboard focus when the focused button disappears.
    if (focused && document.activeElement.hidden)
      [pause, resume, menu.firstElementChild].find((each) => !each.hidden).focus();
  }
  return { element, update };
}
