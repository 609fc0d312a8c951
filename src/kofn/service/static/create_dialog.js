// The dialog that creates a campaign.

import { ApiError, create, policies } from "./api.js";
import { field, form } from "./dialogs.js";
import { h, setText } from "./dom.js";
import { exact } from "./format.js";

const DAY = 86_400;

/** Open the dialog. `created(name)` is called when the campaign has been created. */
export function createDialog(created) {
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
    on: { input: updateCount },
  });
  const k = h("input", {
    name: "k",
    type: "number",
    min: "1",
    step: "1",
    value: "5",
    inputmode: "numeric",
    on: { input: updateCount },
  });
  const number = (title, value) =>
    h("input", { name: title, type: "number", step: "any", value, inputmode: "decimal" });
  const armCount = h("p", { class: "arm-count", role: "status" });

  function updateCount() {
    const { names, duplicate } = armsIn(arms.value);
    const size = Number(k.value);
    if (!names.length) setText(armCount, "No arms yet.");
    else if (duplicate) setText(armCount, `“${duplicate}” is listed twice.`);
    else if (size >= names.length)
      setText(armCount, tooFewArms(names.length, size));
    else setText(armCount, `${exact(names.length)} arms, ${exact(size)} per decision.`);
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
    .catch(() => {}); // the default policy can be chosen without the list
  updateCount();
  form({
    title: "New campaign",
    wide: true,
    submit: "Create campaign",
    intro:
      "Arms are the options to choose from. Each decision shows K of them, and you report one reward for the whole subset.",
    fields: [
      h(
        "div",
        { class: "columns" },
        field("Name", name, "Letters and digits. It becomes part of the URL."),
        field("Arms per decision", k, "K: how many arms are shown together."),
      ),
      field("Arms", arms, "One per line. You can add and retire arms later."),
      armCount,
      h(
        "div",
        { class: "columns three" },
        field("Lowest reward", number("low", "0")),
        field("Highest reward", number("high", "1")),
        h(
          "fieldset",
          { class: "field" },
          h("legend", {}, "Better rewards are"),
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
          field("Policy", policy, "thompson is the default."),
          field(
            "Expire after (days)",
            h("input", { name: "expire", type: "number", min: "0", step: "any", value: "7" }),
            "Then a decision without a reward is planned again.",
          ),
          field(
            "Seed",
            h("input", { name: "seed", type: "number", min: "0", step: "1", placeholder: "none" }),
            "For reproducible decisions.",
          ),
        ),
      ),
    ],
    async done(data) {
      const settings = read(data);
      await create(settings);
      created(settings.name);
    },
  });
}

function fillPolicies(select, all) {
  const free = all.filter(({ needs_horizon: bound, name }) => !bound && name !== "thompson");
  select.append(...free.map(({ name, description }) => h("option", { value: name, title: description }, name)));
}

function armsIn(text) {
  const names = text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
  const seen = new Set();
  const duplicate = names.find((each) => seen.size === seen.add(each).size);
  return { names, duplicate };
}

const tooFewArms = (arms, size) =>
  `There must be more arms than arms per decision; got ${exact(arms)} and ${exact(size)}.`;

function refuse(name, message) {
  const error = new ApiError(422, message);
  error.field = name;
  throw error;
}

/** The settings of the new campaign, or an ApiError for the first invalid field. */
function read(data) {
  const text = (key) => String(data.get(key) ?? "").trim();
  const { names, duplicate } = armsIn(text("arms"));
  const k = Number(text("k"));
  const range = [Number(text("low")), Number(text("high"))];
  if (!text("name")) refuse("name", "The campaign needs a name.");
  if (!names.length) refuse("arms", "List the arms, one per line.");
  if (duplicate) refuse("arms", `“${duplicate}” is listed twice. Arm names must be unique.`);
  if (!Number.isInteger(k) || k < 1) refuse("k", "Arms per decision must be a whole number of at least 1.");
  if (k >= names.length)
    refuse("k", tooFewArms(names.length, k));
  if (!(range[0] < range[1])) refuse("low", "The lowest reward must be less than the highest.");
  const settings = {
    name: text("name"),
    arms: names,
    k,
    reward_range: range,
    direction: text("direction"),
    policy: text("policy") || "thompson",
  };
  if (text("expire")) settings.expire_after = DAY * Number(text("expire"));
  if (text("seed")) settings.seed = Number(text("seed"));
  return settings;
}
