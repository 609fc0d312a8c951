// Rules about subsets (constraints): as sentences, and as fields of a form.

import { area, field, input, number } from "./dialogs.js";
import { button, h, icon, setText } from "./dom.js";
import { exact } from "./format.js";
import { costOf, lines, refuse } from "./settings_fields.js";

const KINDS = {
  "at-most": "At most",
  "at-least": "At least",
  "never-together": "Never together",
  "only-together": "Only together",
  always: "Always in",
  never: "Never in",
  budget: "Costs up to",
};
const FEWEST = { "never-together": 2, "only-together": 2 };
const SHOWN = 150; // arms that are offered at once
const FEW = 12; // arms that need no filter
const NAMED = 8; // arms of a rule that a sentence lists

/** A rule as a sentence: “At most 2 of Acme: kettle, mug”. */
export function sentence(rule) {
  const arms = rule.costs ? rule.costs.map(([arm, cost]) => `${arm} (${cost})`) : rule.arms;
  const more = arms.length > NAMED ? ` and ${exact(arms.length - NAMED)} more` : "";
  const listed = `${arms.slice(0, NAMED).join(", ")}${more}`;
  const number = rule.count ?? rule.most;
  const start = number === undefined ? KINDS[rule.rule] : `${KINDS[rule.rule]} ${number}`;
  if (rule.count === undefined) return `${start}${rule.name ? ` (${rule.name})` : ""}: ${listed}`;
  return `${start} of ${rule.name ? `${rule.name}: ` : ""}${listed}`;
}

/** The names of rules that a new arm can join. */
const groupsOf = (rules) => [...new Set(rules.filter(({ rule, name }) => name && rule !== "budget").map(({ name }) => name))];

/** Arms as chips to choose from. `chosen` is a Set, `changed()` is called after each choice. */
function chipChoices(label, chosen, changed = () => {}) {
  const find = h("input", { type: "search", placeholder: "Filter arms", "aria-label": "Filter arms", autocomplete: "off", on: { input: draw } });
  const list = h("div", { class: "chip-choices", role: "group", "aria-label": label });
  const note = h("span", { class: "hint" });
  let names = [];
  function draw() {
    const words = find.value.trim().toLowerCase();
    const found = names.filter((name) => chosen.has(name) || name.toLowerCase().includes(words));
    const shown = [...found].sort((a, b) => chosen.has(b) - chosen.has(a)).slice(0, SHOWN);
    list.replaceChildren(...shown.map(choice));
    find.hidden = names.length <= FEW;
    setText(note, names.length ? (found.length > SHOWN ? `${exact(found.length - SHOWN)} more: filter them.` : "") : "List the arms of the campaign first.");
  }
  const choice = (name) =>
    h(
      "label",
      { class: "chip-choice", title: name },
      h("input", {
        type: "checkbox",
        checked: chosen.has(name),
        on: {
          change: ({ target }) => {
            if (target.checked) chosen.add(name);
            else chosen.delete(name);
            changed();
          },
        },
      }),
      h("span", {}, name),
    );
  return {
    element: h("div", { class: "chip-field" }, find, list, note),
    offer(next) {
      names = next;
      for (const name of chosen) if (!names.includes(name)) chosen.delete(name);
      draw();
    },
  };
}

/** Rules that a new arm can join, as chips of a form; null if there are none. */
export function groupChoices(rules) {
  const groups = groupsOf(rules);
  if (!groups.length) return null;
  const chip = (name) => h("label", { class: "chip-choice", title: name }, h("input", { type: "checkbox", name: "groups", value: name }), h("span", {}, name));
  return h(
    "fieldset",
    { class: "field" },
    h("legend", {}, "Rules that it joins"),
    h("div", { class: "chip-choices" }, groups.map(chip)),
  );
}

/** The fields of a list of rules. `offer(names)` sets the arms to choose from, `read()` returns the rules. */
export function ruleFields(given) {
  const rules = [...given];
  const chosen = new Set();
  const list = h("ul", { class: "rule-list", "aria-label": "Rules" });
  const kind = h(
    "select",
    { name: "rule_kind", on: { change: show } },
    Object.entries(KINDS).map(([value, text]) => h("option", { value }, text)),
  );
  const count = number("rule_count", 1, { min: "0" });
  const title = input("rule_name", "", { maxlength: "200", placeholder: "Acme", on: { keydown: enter } });
  const costs = area("rule_costs", 4, [], { placeholder: "kettle 3.5\nmug 2", on: { input: note } });
  const arms = chipChoices("Arms of the rule", chosen, note);
  const counted = field("Number", count);
  const armsField = h("div", { class: "field" }, h("span", { class: "field-label" }, "Arms of the rule"), arms.element);
  const costField = field("Costs", costs, "One arm per line, followed by its cost. Other arms are free.");
  const wrong = h("p", { class: "wrong at-field", role: "alert", hidden: true });
  const add = button({ kind: "small", click: keep }, icon("plus"), "Add rule");

  function show() {
    counted.hidden = !["at-most", "at-least", "budget"].includes(kind.value);
    setText(counted.querySelector("label"), kind.value === "budget" ? "Budget" : "Number");
    armsField.hidden = kind.value === "budget";
    costField.hidden = kind.value !== "budget";
    note();
  }

  function note() {
    wrong.hidden = true;
  }

  function read() {
    const begun = kind.value === "budget" ? costs.value.trim() : chosen.size;
    if (begun) refuse("rule_kind", "Add the rule that is begun, or take its arms out.");
    return rules;
  }

  function redraw() {
    list.replaceChildren(...rules.map(line));
    list.hidden = !rules.length;
  }

  function line(rule, index) {
    const remove = () => {
      rules.splice(index, 1);
      redraw();
      kind.focus();
    };
    const text = sentence(rule);
    const away = button({ kind: "icon-only ghost", label: `Remove: ${text}`, click: remove }, icon("close"));
    return h("li", {}, h("span", {}, text), away);
  }

  function enter(event) {
    if (event.key !== "Enter") return;
    event.preventDefault();
    keep();
  }

  function keep() {
    try {
      rules.push(made());
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      setText(wrong, error.message);
      wrong.hidden = false;
      return;
    }
    chosen.clear();
    costs.value = title.value = "";
    arms.offer(offered);
    redraw();
    note();
  }

  /** The rule of the fields; RangeError if it is not complete. */
  function made() {
    const name = title.value.trim() ? { name: title.value.trim() } : {};
    const number = Number(count.value);
    if (!counted.hidden && (count.value === "" || !(number >= 0))) throw new RangeError("Enter a number of at least 0.");
    if (kind.value === "budget") return { rule: "budget", most: number, costs: lines(costs.value).map(priced), ...name };
    const fewest = FEWEST[kind.value] ?? 1;
    if (chosen.size < fewest) throw new RangeError(`Choose at least ${fewest === 1 ? "one arm" : "two arms"}.`);
    if (!counted.hidden && !Number.isInteger(number)) throw new RangeError("Enter a whole number.");
    const listed = offered.filter((each) => chosen.has(each));
    return { rule: kind.value, ...(counted.hidden ? {} : { count: number }), arms: listed, ...name };
  }

  function priced(line) {
    const found = costOf(line, offered);
    if (!found) throw new RangeError(`“${line}” is not an arm of the campaign and its cost.`);
    return found;
  }

  let offered = [];
  show();
  redraw();
  return {
    elements: [
      list,
      h(
        "div",
        { class: "rule-draft" },
        h("div", { class: "columns three" }, field("Rule", kind), counted, field("Group", title)),
        armsField,
        costField,
        wrong,
        add,
      ),
    ],
    read,
    offer(names) {
      offered = names;
      arms.offer(names);
      note();
    },
  };
}
