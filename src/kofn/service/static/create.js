// The dialog that makes a campaign.

import { create, policies, Problem } from "./api.js";
import { field, form } from "./dialogs.js";
import { h, say } from "./dom.js";
import { exact } from "./format.js";

const DAY = 86_400;

/** Ask for what a campaign needs; `made(name)` when it is there. */
export function createDialog(made) {
  const name = h("input", {
    name: "name",
    required: true,
    maxlength: "200",
    autocomplete: "off",
    spellcheck: "false",
    autofocus: true,
    placeholder: "front-page",
  });
  const arms = h("textarea", {
    name: "arms",
    rows: "7",
    required: true,
    spellcheck: "false",
    placeholder: "kettle\nmug\ntray\n…",
    on: { input: tell },
  });
  const k = h("input", {
    name: "k",
    type: "number",
    min: "1",
    step: "1",
    value: "5",
    inputmode: "numeric",
    on: { input: tell },
  });
  const number = (title, value) =>
    h("input", { name: title, type: "number", step: "any", value, inputmode: "decimal" });
  const told = h("p", { class: "told-count", role: "status" });

  function tell() {
    const { names, twice } = armsIn(arms.value);
    const places = Number(k.value);
    if (!names.length) say(told, "No arms yet.");
    else if (twice) say(told, `“${twice}” stands there twice.`);
    else if (places >= names.length)
      say(told, `${exact(names.length)} arms for ${exact(places)} places: there must be more arms than places.`);
    else say(told, `${exact(names.length)} arms for ${exact(places)} places.`);
  }

  const choice = (value, text, checked) =>
    h(
      "label",
      { class: "choice" },
      h("input", { type: "radio", name: "direction", value, checked }),
      h("span", {}, text),
    );
  const policy = h("select", { name: "policy" }, h("option", { value: "thompson" }, "thompson"));
  policies()
    .then((all) => fillPolicies(policy, all))
    .catch(() => {}); // the default is there without them
  tell();
  form({
    title: "New campaign",
    wide: true,
    submit: "Create campaign",
    intro:
      "Arms are what you choose from, places are how many you show at a time. One reward comes back for the whole set.",
    fields: [
      h(
        "div",
        { class: "columns" },
        field("Name", name, "Letters and digits; it becomes part of the address."),
        field("Places", k, "K: how many arms are shown together."),
      ),
      field("Arms", arms, "One on each line. They can be added and retired later."),
      told,
      h(
        "div",
        { class: "columns three" },
        field("Lowest reward", number("low", "0")),
        field("Highest reward", number("high", "1")),
        h(
          "fieldset",
          { class: "field" },
          h("legend", {}, "Better is"),
          h("div", { class: "choices" }, choice("maximize", "Higher", true), choice("minimize", "Lower", false)),
        ),
      ),
      h(
        "details",
        { class: "advanced" },
        h("summary", {}, "More settings"),
        h(
          "div",
          { class: "columns three" },
          field("Policy", policy, "The default learns fastest."),
          field(
            "Expire after, days",
            h("input", { name: "expire", type: "number", min: "0", step: "any", value: "7" }),
            "Then a decision is wanted again.",
          ),
          field(
            "Seed",
            h("input", { name: "seed", type: "number", min: "0", step: "1", placeholder: "none" }),
            "For the same draws again.",
          ),
        ),
      ),
    ],
    async done(data) {
      const wanted = read(data);
      await create(wanted);
      made(wanted.name);
    },
  });
}

function fillPolicies(select, all) {
  const free = all.filter(({ needs_horizon: bound, name }) => !bound && name !== "thompson");
  select.append(...free.map(({ name, says }) => h("option", { value: name, title: says }, name)));
}

function armsIn(text) {
  const names = text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
  const seen = new Set();
  const twice = names.find((each) => seen.size === seen.add(each).size);
  return { names, twice };
}

function refuse(name, message) {
  const why = new Problem(422, message);
  why.field = name;
  throw why;
}

/** What the API wants of the fields, or what is wrong with them, in words. */
function read(data) {
  const text = (key) => String(data.get(key) ?? "").trim();
  const { names, twice } = armsIn(text("arms"));
  const k = Number(text("k"));
  const range = [Number(text("low")), Number(text("high"))];
  if (!text("name")) refuse("name", "The campaign needs a name.");
  if (!names.length) refuse("arms", "There are no arms yet: write one on each line.");
  if (twice) refuse("arms", `“${twice}” stands there twice: each arm has a name of its own.`);
  if (!Number.isInteger(k) || k < 1) refuse("k", "Places are a whole number, 1 or more.");
  if (k >= names.length)
    refuse("k", `There are ${exact(names.length)} arms for ${exact(k)} places: there must be more arms than places.`);
  if (!(range[0] < range[1])) refuse("low", "The lowest reward must be below the highest.");
  const wanted = {
    name: text("name"),
    arms: names,
    k,
    reward_range: range,
    direction: text("direction"),
    policy: text("policy") || "thompson",
  };
  if (text("expire")) wanted.expire_after = DAY * Number(text("expire"));
  if (text("seed")) wanted.seed = Number(text("seed"));
  return wanted;
}
