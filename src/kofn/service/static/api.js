// The service's API: the token, errors that people can read, and the stream of changes.

const TOKEN = "kofn-token";
let needed = () => {};

/** What to do when the service asks for a token. */
export const onTokenNeeded = (callback) => {
  needed = callback;
};
export const token = () => sessionStorage.getItem(TOKEN);
export const setToken = (value) => (value ? sessionStorage.setItem(TOKEN, value) : sessionStorage.removeItem(TOKEN));

/** An answer that is no success, in words. `status` is 0 when there was no answer. */
export class Problem extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function headers(more = {}) {
  return token() ? { ...more, Authorization: `Bearer ${token()}` } : more;
}

async function send(method, path, body, signal) {
  const options = {
    method,
    signal,
    headers: headers(body === undefined ? {} : { "Content-Type": "application/json" }),
  };
  if (body !== undefined) options.body = JSON.stringify(body);
  let answer;
  try {
    answer = await fetch(`api${path}`, options);
  } catch (why) {
    if (why.name === "AbortError") throw why;
    throw new Problem(0, "The service does not answer. Is kofn serve running?");
  }
  if (!answer.ok) throw await problem(answer);
  return answer;
}

async function problem(answer) {
  const said = await answer.json().catch(() => ({}));
  const wrong = new Problem(
    answer.status,
    sentence(words(said)) || `The service answered ${answer.status} ${answer.statusText}`,
  );
  if (answer.status === 401) needed(wrong);
  return wrong;
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function words({ detail, title, errors }) {
  const list = Array.isArray(detail) ? detail : errors;
  const fields = Array.isArray(list)
    ? list.map(({ loc = [], msg, message }) => [loc.at(-1), msg ?? message].filter(Boolean).join(": "))
    : [];
  return [typeof detail === "string" ? detail : title, ...fields].filter(Boolean).join("; ");
}

const json = async (method, path, body, signal) => {
  const answer = await send(method, path, body, signal);
  return answer.status === 204 ? null : answer.json();
};
const at = (name) => `/campaigns/${encodeURIComponent(name)}`;
const list = (name) => (answer) => (Array.isArray(answer) ? answer : answer[name]);

export const campaigns = (signal) => json("GET", "/campaigns", undefined, signal).then(list("campaigns"));
export const create = (wanted) => json("POST", "/campaigns", wanted);
export const session = () => json("GET", "/session");
export const policies = () => json("GET", "/policies").then(list("policies"));
/** What a campaign knows; of its arms at most so many, the best first. */
export const insight = (name, arms, signal) =>
  json("GET", `${at(name)}/insight${arms ? `?arms=${arms}` : ""}`, undefined, signal);
export const history = (name, points, signal) =>
  json("GET", `${at(name)}/history?points=${points}`, undefined, signal).then(list("points"));
export const events = (name, limit, signal) =>
  json("GET", `${at(name)}/events?limit=${limit}`, undefined, signal).then(list("events"));
export const openDecisions = (name, limit, signal) =>
  json("GET", `${at(name)}/decisions?open=true&limit=${limit}`, undefined, signal).then(list("decisions"));
export const act = (name, verb) => json("POST", `${at(name)}/${verb}`);
export const addArm = (name, arm) => json("POST", `${at(name)}/arms`, { name: arm });
export const retireArm = (name, arm) => json("DELETE", `${at(name)}/arms/${encodeURIComponent(arm)}`);
export const remove = (name) => json("DELETE", at(name));

/** All of a campaign as a file. */
export const exported = async (name) => (await send("GET", `${at(name)}/export`)).blob();

/** Call back for each message of the campaign's stream, or of all, until it ends. EventSource cannot send a token, fetch can. */
export async function stream(name, signal, opened, changed) {
  const answer = await send("GET", `${name ? at(name) : ""}/stream`, undefined, signal);
  opened();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const messages = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
    rest = messages.pop();
    if (messages.some((message) => /^data:/m.test(message))) changed();
  }
}
