// What can be done to a campaign from its page, and the buttons for it.

import * as api from "./api.js";
import { field, form, toast } from "./dialogs.js";
import { h, icon } from "./dom.js";
import { plural } from "./format.js";

/** What can be done to a campaign, from the page. */
export function actions(name, summary, refresh, home) {
  async function tried(work, said) {
    try {
      await work();
      toast(said);
    } catch (why) {
      if (!(why instanceof api.Problem)) throw why;
      if (why.status !== 401) toast(why.message, true);
    }
    refresh();
  }

  const toggle = () => {
    const { state } = summary() ?? {};
    if (state === "running") tried(() => api.act(name, "pause"), `${name} is paused`);
    if (state === "paused") tried(() => api.act(name, "resume"), `${name} runs again`);
  };

  const finish = () =>
    form({
      title: `Finish ${name}?`,
      submit: "Finish campaign",
      danger: true,
      intro:
        "It will decide no more, and cannot be resumed. Rewards that come late still count, and what was learned stays here.",
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
      intro: "It will not be shown again. What was learned of the others stays.",
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
      intro: "It starts unknown and is tried along with the others; what was learned of them stays.",
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
        if (!arm) throw new api.Problem(422, "The arm needs a name.");
        await api.addArm(name, arm);
        toast(`${arm} is added`);
        refresh();
      },
    });
  };

  const remove = () =>
    form({
      title: `Delete ${name}?`,
      submit: "Delete for good",
      danger: true,
      intro: `All of its ${plural(summary().plays, "play")} and all that was learned will be gone. Export it first if you may want it back.`,
      fields: [
        field(
          "Write the campaign's name",
          h("input", { name: "same", autocomplete: "off", spellcheck: "false", autofocus: true }),
        ),
      ],
      async done(data) {
        if (data.get("same") !== name) throw new api.Problem(422, `That is not the name: write ${name}.`);
        await api.remove(name);
        toast(`${name} is deleted`);
        home();
      },
    });

  const save = () =>
    tried(async () => {
      const link = h("a", { href: URL.createObjectURL(await api.exported(name)), download: `${name}.json` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    }, "Exported");

  return { toggle, retire, add, buttons: () => buttonRow({ toggle, finish, save, remove }) };
}

function buttonRow({ toggle, finish, save, remove }) {
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
      entry("download", "Export as JSON", save),
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
    // A button that goes away must not take the keyboard's place with it.
    if (focused && document.activeElement.hidden)
      [pause, resume, menu.firstElementChild].find((each) => !each.hidden).focus();
  }
  return { element, update };
}
