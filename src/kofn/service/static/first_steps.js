// Programs that decide and report a reward, for the address at which the page is open, in three languages.

import { token } from "./api.js";
import { toast } from "./dialogs.js";
import { h, icon, setText } from "./dom.js";

const ARMS = ["kettle", "mug", "tray", "pan", "lamp"];
const MASK = "kofn_…"; // shown in place of the token
let groups = 0;

/** The URL of the service, which may have a path under a proxy. */
const service = () => location.origin + location.pathname.replace(/\/[^/]*$/, "");

/** A context as JSON with blanks, which is Python too. */
const written = (context) =>
  `{${Object.entries(context)
    .map((pair) => pair.map((text) => JSON.stringify(text)).join(": "))
    .join(", ")}}`;
/** A text between single quotes of a shell. */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

const curl = ({ url, name, value, context, create, secret }) => [
  secret && `export KOFN_TOKEN=${secret}`,
  `post() { curl -sS "${url}/api/campaigns$1" -H 'Content-Type: application/json' \\`,
  `  ${secret ? '-H "Authorization: Bearer $KOFN_TOKEN" ' : ""}-d "$2"; echo; }`,
  create && `post "" '{"name": "${name}", "arms": ${JSON.stringify(ARMS).replaceAll(",", ", ")}, "k": 2}'`,
  `decision=$(post /${encodeURIComponent(name)}/decisions ${quoted(context ? `{"context": ${written(context)}}` : "{}")})`,
  `echo "$decision"  # show its arms`,
  `id=$(echo "$decision" | sed 's/.*"id":"\\([^"]*\\)".*/\\1/')`,
  `post /${encodeURIComponent(name)}/rewards '{"rewards": [{"id": "'$id'", "reward": ${value}}]}'`,
];

const python = ({ url, name, value, context, create, secret }) => [
  "import kofn\n",
  `client = kofn.Client("${url}"${secret ? `, token="${secret}"` : ""})`,
  create
    ? `campaign = client.create("${name}", ${JSON.stringify(ARMS).replaceAll(",", ", ")}, k=2)`
    : `campaign = client.campaign(${JSON.stringify(name)})`,
  `decision = campaign.decide(${context ? `context=${written(context)}` : ""})`,
  "print(decision.arms)  # show these",
  `print(campaign.reward(decision.id, ${value}))`,
];

const javascript = ({ url, name, value, context, create, secret }) => [
  `const url = "${url}/api/campaigns";`,
  `const headers = { "Content-Type": "application/json"${secret ? `, Authorization: "Bearer ${secret}"` : ""} };`,
  "const post = async (path, body) =>",
  `  (await fetch(url + path, { method: "POST", headers, body: JSON.stringify(body) })).json();\n`,
  create && `await post("", { name: "${name}", arms: ${JSON.stringify(ARMS).replaceAll(",", ", ")}, k: 2 });`,
  `const { decisions: [decision] } = await post("/${encodeURIComponent(name)}/decisions", ${context ? `{ context: ${written(context)} }` : "{}"});`,
  "console.log(decision.arms); // show these",
  `console.log(await post("/${encodeURIComponent(name)}/rewards", { rewards: [{ id: decision.id, reward: ${value} }] }));`,
];

const LANGUAGES = [
  ["curl", curl],
  ["Python", python],
  ["JavaScript", javascript],
];

/** The programs, in tabs, with a button that copies one. They create the campaign first if `create`, and decide for a
 * `context` if there is one. */
export function firstSteps({ name, value = 1, context = null, create = false }) {
  groups += 1;
  let write = curl;
  const text = (secret) =>
    write({ url: service(), name, value, context, create, secret: token() && secret })
      .filter(Boolean)
      .join("\n");
  const code = h("code", {}, text(MASK));
  const choose = (next) => {
    write = next;
    setText(code, text(MASK));
  };
  const tab = ([label, program], i) =>
    h(
      "label",
      {},
      h("input", {
        type: "radio",
        name: `language-${groups}`,
        value: label,
        checked: i === 0,
        on: { change: () => choose(program) },
      }),
      h("span", {}, label),
    );
  const copy = async () => {
    await copied(text(token()));
    toast(token() ? "Copied, with the token of this tab" : "Copied");
  };
  return h(
    "div",
    { class: "first-steps" },
    h(
      "div",
      { class: "first-head" },
      h("fieldset", { class: "segments" }, h("legend", { class: "unseen" }, "Language"), LANGUAGES.map(tab)),
      h("button", { class: "button small", type: "button", on: { click: copy } }, icon("copy"), "Copy"),
    ),
    h("pre", { tabindex: "0", "aria-label": "Program" }, code),
    token() &&
      h(
        "p",
        { class: "hint" },
        "Copy fills in the token of this tab. Later, use one that can only decide and reward: ",
        h("code", {}, "kofn token create app --scope decide"),
      ),
  );
}

/** Copy a text. Without https, browsers offer the old command only. */
async function copied(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = h("textarea", { class: "unseen", value: text });
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
