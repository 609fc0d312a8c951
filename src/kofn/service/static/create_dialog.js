// The dialog that creates a campaign.

import { create, policies } from "./api.js";
import { area, field, form, input, number, question } from "./dialogs.js";
import { h, radios, setText } from "./dom.js";
import { exact } from "./format.js";
import { ruleFields } from "./rules.js";
import * as fields from "./settings_fields.js";

const OF_POLICY = ["half_life"];
const SIZES = "thompson-sizes";

/** Open the dialog. `created(name)` is called when the campaign has been created. */
export function createDialog(created) {
  const name = input("name", "", { required: true, maxlength: "200", autofocus: true, placeholder: "front-page" });
  const arms = area("arms", 7, [], { required: true, placeholder: "kettle\nmug\ntray\n…", on: { input: updateCount } });
  const k = number("k", 5, { min: "1", step: "1", inputmode: "numeric", on: { input: updateCount } });
  const armCount = h("p", { class: "arm-count", role: "status" });
  const rules = ruleFields([]);

  function updateCount() {
    const { names, duplicate } = armsIn(arms.value);
    const size = Number(k.value);
    rules.offer(names);
    if (!names.length) setText(armCount, "No arms yet.");
    else if (duplicate) setText(armCount, `“${duplicate}” is listed twice.`);
    else if (size >= names.length) setText(armCount, tooFewArms(names.length, size));
    else setText(armCount, `${exact(names.length)} arms, ${exact(size)} per decision.`);
  }

  const directions = radios("direction", [["maximize", "Higher"], ["minimize", "Lower"]], "maximize");
  const ranged = { placeholder: "learned", on: { input: () => offer(rewards, "outside", low.value || high.value) } };
  const low = number("low", 0, ranged),
    high = number("high", 1, ranged);
  const rewards = fields.rewardsGroup(fields.DEFAULTS);
  const sizes = sizesFields();
  const attributes = attributesField();
  const policy = policyField(({ name, takes_context: takesContext, settings }) => {
    sizes.hidden = name !== SIZES;
    attributes.offer(takesContext);
    for (const each of OF_POLICY) offer(learning, each, settings.includes(each));
  });
  const seed = field("Seed", number("seed", "", { min: "0", step: "1", placeholder: "none" }), "For reproducible decisions.");
  const learning = fields.learningGroup(
    fields.DEFAULTS,
    h("div", { class: "columns" }, policy, seed),
    sizes,
    attributes.element,
  );
  updateCount();
  form({
    title: "New campaign",
    wide: true,
    submit: "Create campaign",
    intro:
      "Arms are the options to choose from. Each decision shows K of them, and you report a reward for the whole subset.",
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
        field("Lowest reward", low),
        field("Highest reward", high, "Both empty: the range is learned."),
        question("Better rewards are", "choices", directions),
      ),
      ...fields.silenceFields(fields.DEFAULTS, "silent"),
      h(
        "details",
        { class: "advanced" },
        h("summary", {}, "More options"),
        h(
          "div",
          { class: "advanced-body" },
          fields.readyGroup(fields.DEFAULTS),
          fields.controlGroup(fields.DEFAULTS, () => k.value),
          rewards,
          fields.metricsGroup(fields.DEFAULTS),
          learning,
          fields.rulesGroup(rules),
          fields.visitorsGroup(fields.DEFAULTS),
          h("p", { class: "hint" }, "Options other than policy, attributes and seed can be changed later."),
        ),
      ),
    ],
    async done(data) {
      const settings = read(data, rules);
      await fields.atField(() => create(settings));
      created(settings.name);
    },
  });
}

/** Show a field of a group, or hide it: then it is not sent. */
function offer(group, name, offered) {
  const input = group.querySelector(`[name=${name}]`);
  input.disabled = input.closest(".field").hidden = !offered;
}

/** The attributes of a context, for policies that take one. A field that is not offered is not sent. */
function attributesField() {
  const text = area("attributes", 3, [], { placeholder: "device: phone, desktop\ncountry", disabled: true });
  const hint =
    "One per line. Only the values after a colon have their own segments; all others share one. Empty: all names and values, as decisions have them.";
  const element = field("Attributes of visitors", text, hint);
  element.hidden = true;
  return { element, offer: (offered) => (element.hidden = text.disabled = !offered) };
}

/** The policies, those for practitioners first, with what the chosen one is for. Those that need a horizon are left out.
 * `changed(policy)` is called with the chosen one. */
function policyField(changed) {
  const select = h("select", { name: "policy", on: { change: explain } }, h("option", { value: "thompson" }, "thompson (default)"));
  const element = field("Policy", select, "Learns the effect of each arm. Right for nearly every campaign.");
  let known = [];
  function explain() {
    const chosen = known.find(({ name }) => name === select.value);
    if (!chosen) return;
    setText(element.querySelector(".hint"), chosen.description);
    changed(chosen);
  }
  policies()
    .then((all) => {
      known = all;
      const options = (some) => some.map(({ name }) => h("option", { value: name }, name));
      const others = all.filter((each) => each.name !== "thompson" && !each.needs_horizon);
      select.append(...options(others.filter((each) => each.offered)));
      select.append(h("optgroup", { label: "Research policies" }, options(others.filter((each) => !each.offered))));
      explain();
    })
    .catch(() => {}); // the default policy can be chosen without the list
  return element;
}

/** What the policy for arms that cost something needs; hidden while another one is chosen. */
function sizesFields() {
  return h(
    "div",
    { class: "columns", hidden: true },
    field("Fewest arms", number("fewest", 1, { min: "1", step: "1" }), "A decision shows this many to K arms."),
    field("Price of each arm", area("costs", 3), "What an arm costs: one number per line, in the order of the arms. Empty: rewards are net of costs."),
  );
}

/** The fewest arms of a decision. */
function fewestOf(text, k) {
  const fewest = Number(text("fewest") || k);
  if (!Number.isInteger(fewest) || fewest < 1 || fewest > k)
    fields.refuse("fewest", `The fewest arms must be a whole number from 1 to ${exact(k)}.`);
  return fewest;
}

/** What arms cost, as a setting; nothing if the field is empty. */
function costsOf(text, names) {
  const costs = fields.lines(text("costs")).map(Number);
  if (!costs.length) return {};
  if (costs.length !== names.length || !costs.every((each) => each >= 0))
    fields.refuse("costs", `Enter a cost of at least 0 for each of the ${exact(names.length)} arms, one per line.`);
  return { costs };
}

function armsIn(text) {
  const names = fields.lines(text);
  const seen = new Set();
  const duplicate = names.find((each) => seen.size === seen.add(each).size);
  return { names, duplicate };
}

/** Names of attributes with their values, null where all values are taken. */
function attributesIn(text) {
  const found = {};
  for (const line of fields.lines(text)) {
    const [name, ...rest] = line.split(":").map((each) => each.trim());
    const values = rest.join(":").split(",").map((each) => each.trim()).filter(Boolean);
    if (!name) fields.refuse("attributes", `“${line}” has no name before its colon.`);
    if (Object.hasOwn(found, name)) fields.refuse("attributes", `“${name}” is listed twice.`);
    found[name] = values.length ? values : null;
  }
  return found;
}

const tooFewArms = (arms, size) =>
  `There must be more arms than arms per decision; got ${exact(arms)} and ${exact(size)}.`;

/** The settings of the new campaign, or an ApiError for the first invalid field. */
function read(data, rules) {
  const text = (key) => String(data.get(key) ?? "").trim();
  const { names, duplicate } = armsIn(text("arms"));
  const k = Number(text("k"));
  const range = text("low") || text("high") ? [text("low"), text("high")].map((each) => (each ? Number(each) : NaN)) : null;
  if (!text("name")) fields.refuse("name", "The campaign needs a name.");
  if (!names.length) fields.refuse("arms", "List the arms, one per line.");
  if (duplicate) fields.refuse("arms", `“${duplicate}” is listed twice. Arm names must be unique.`);
  if (!Number.isInteger(k) || k < 1) fields.refuse("k", "Arms per decision must be a whole number of at least 1.");
  if (k >= names.length) fields.refuse("k", tooFewArms(names.length, k));
  if (range && !(range[0] < range[1]))
    fields.refuse("low", "Enter a lowest reward that is less than the highest, or leave both empty.");
  const offered = Object.keys(fields.DEFAULTS).filter((each) => range || each !== "outside");
  const given = fields.readSettings(data, new Set(offered), rules);
  const sizes = text("policy") === SIZES;
  const fewest = sizes ? fewestOf(text, k) : k;
  if (Array.isArray(given.control)) checkControl(given.control, names, fewest, k);
  const chosen = ([key, value]) => JSON.stringify(value) !== JSON.stringify(fields.DEFAULTS[key]);
  const options = Object.fromEntries(Object.entries(given).filter(chosen));
  const params = Object.fromEntries(OF_POLICY.filter((key) => key in options).map((key) => [key, options[key]]));
  for (const key of OF_POLICY) delete options[key];
  if (sizes) params.fewest = fewest;
  if (text("attributes")) params.attributes = attributesIn(text("attributes"));
  const settings = {
    name: text("name"),
    arms: names,
    k,
    reward_range: range,
    direction: text("direction"),
    policy: text("policy") || "thompson",
    params,
    ...options,
    ...(sizes ? costsOf(text, names) : {}),
  };
  if (text("seed")) settings.seed = Number(text("seed"));
  return settings;
}

function checkControl(control, names, fewest, k) {
  const other = control.find((each) => !names.includes(each));
  if (other) fields.refuse("control_arms", `“${other}” is not one of the arms.`);
  if (control.length < fewest || control.length > k) {
    const number = fewest < k ? `${fewest} to ${k}` : k;
    fields.refuse("control_arms", `The control needs ${number} arms; got ${control.length}.`);
  }
}
