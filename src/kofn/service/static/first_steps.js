// Programs that decide and report what came of it, for the address at which the page is open, in three languages.

import { token } from "./api.js";
import { toast } from "./dialogs.js";
import { button, h, icon, segmented, setText } from "./dom.js";

const ARMS = ["kettle", "mug", "tray", "pan", "lamp"];
const WINDOW = "30m"; // of a campaign that the program creates
const MASK = "kofn_…"; // shown in place of the token

/** The URL of the service, which may have a path under a proxy. */
const service = () => location.origin + location.pathname.replace(/\/[^/]*$/, "");

/** JSON in one line with blanks, which is Python too. */
const json = (value) =>
  JSON.stringify(value, null, 1).replace(/(?<=[[{])\n */g, "").replace(/\n *(?=[\]}])/g, "").replace(/\n */g, " ");
/** A text between single quotes of a shell. */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** What is reported: [route, item without its id, Python, what it is]. With a window, only what happens. */
const reports = (value, hasWindow) =>
  hasWindow
    ? [
        ["events", { value, event: "order-17" }, `add(decision.id, ${value}, event="order-17")`, "an order"],
        ["records", { name: "returns", value: 1 }, 'record(decision.id, "returns", 1)', "it came back"],
      ]
    : [["rewards", { reward: value }, `reward(decision.id, ${value})`, "zeros, too"]];

const curl = ({ url, name, context, create, secret, reported }) => [
  secret && `export KOFN_TOKEN=${secret}`,
  `post() { curl -sS "${url}/api/campaigns$1" -H 'Content-Type: application/json' \\`,
  `  ${secret ? '-H "Authorization: Bearer $KOFN_TOKEN" ' : ""}-d "$2"; echo; }`,
  create && `post "" ${quoted(json({ name, arms: ARMS, k: 2, window: WINDOW }))}`,
  `decision=$(post /${encodeURIComponent(name)}/decisions ${quoted(json(context ? { context } : {}))})`,
  `echo "$decision"  # show its arms`,
  `id=$(echo "$decision" | sed 's/.*"id":"\\([^"]*\\)".*/\\1/')`,
  ...reported.map(([route, item, , what]) => {
    const body = quoted(json({ [route]: [{ id: "ID", ...item }] })).replace("ID", "'$id'");
    return `post /${encodeURIComponent(name)}/${route} ${body}  # ${what}`;
  }),
];

const python = ({ url, name, context, create, secret, reported }) => [
  "import kofn\n",
  `client = kofn.Client("${url}"${secret ? `, token="${secret}"` : ""})`,
  create
    ? `campaign = client.create("${name}", ${json(ARMS)}, k=2, window="${WINDOW}")`
    : `campaign = client.campaign(${JSON.stringify(name)})`,
  `decision = campaign.decide(${context ? `context=${json(context)}` : ""})`,
  "print(decision.arms)  # show these",
  ...reported.map(([, , call, what]) => `print(campaign.${call})  # ${what}`),
];

const javascript = ({ url, name, context, create, secret, reported }) => [
  `const url = "${url}/api/campaigns";`,
  `const headers = { "Content-Type": "application/json"${secret ? `, Authorization: "Bearer ${secret}"` : ""} };`,
  "const post = async (path, body) =>",
  `  (await fetch(url + path, { method: "POST", headers, body: JSON.stringify(body) })).json();\n`,
  create && `await post("", ${json({ name, arms: ARMS, k: 2, window: WINDOW })});`,
  `const { decisions: [decision] } = await post("/${encodeURIComponent(name)}/decisions", ${json(context ? { context } : {})});`,
  "console.log(decision.arms); // show these",
  ...reported.map(([route, item, , what]) => {
    const body = json({ [route]: [{ id: "ID", ...item }] }).replace('"ID"', "decision.id");
    return `console.log(await post("/${encodeURIComponent(name)}/${route}", ${body})); // ${what}`;
  }),
];

const LANGUAGES = { curl, Python: python, JavaScript: javascript };

/** The programs, in tabs, with a button that copies one. They create the campaign first if `create`, and decide for a
 * `context` if there is one. With a window they report only what happens. */
export function firstSteps({ name, value = 1, context = null, create = false, hasWindow = true }) {
  let write = curl;
  const text = (secret) =>
    write({ url: service(), name, context, create, secret: token() && secret, reported: reports(value, hasWindow) })
      .filter(Boolean)
      .join("\n");
  const code = h("code", {}, text(MASK));
  const choose = (language) => {
    write = LANGUAGES[language];
    setText(code, text(MASK));
  };
  const copy = async () => {
    await copied(text(token()));
    toast(token() ? "Copied, with the token of this tab" : "Copied");
  };
  const languages = Object.keys(LANGUAGES).map((each) => [each, each]);
  return h(
    "div",
    { class: "first-steps" },
    h(
      "div",
      { class: "first-head" },
      segmented("Language", "language", languages, choose),
      button({ kind: "small", click: copy }, icon("copy"), "Copy"),
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
