// Calls of the HTTP API: the token, requests, errors and the stream of changes.

const TOKEN = "kofn-token";
let tokenNeeded = () => {};

/** Set the function that is called when the service requires a token. */
export const onTokenNeeded = (callback) => {
  tokenNeeded = callback;
};
export const token = () => sessionStorage.getItem(TOKEN);
export const setToken = (value) => (value ? sessionStorage.setItem(TOKEN, value) : sessionStorage.removeItem(TOKEN));

/** An error response. `status` is 0 when there was no response; `field` names the invalid field, if it is known. */
export class ApiError extends Error {
  constructor(status, message, field = null) {
    super(message);
    this.status = status;
    this.field = field;
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
  let response;
  try {
    response = await fetch(`api${path}`, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The service does not respond. Is kofn serve running?");
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

async function errorOf(response) {
  const { detail, errors } = await response.json().catch(() => ({}));
  const [wrong] = errors ?? []; // its `where` is such as body.control_share
  const message = wrong?.message ?? detail ?? `The service returned status ${response.status} ${response.statusText}`;
  const error = new ApiError(response.status, capitalized(message), wrong?.where.split(".")[1]);
  if (response.status === 401) tokenNeeded(error);
  return error;
}

/** The text with its first letter in upper case. */
export const capitalized = (text) => text.charAt(0).toUpperCase() + text.slice(1);

const json = async (method, path, body, signal) => {
  const response = await send(method, path, body, signal);
  return response.status === 204 ? null : response.json();
};
/** The path of a campaign. No other name may be in a path: a browser turns `x/arms/..` into `x`. Called in async
 * functions only, so that its error is a rejected promise. */
function at(name) {
  if (/^\.*$|[/\\]/.test(name)) throw new ApiError(404, `No campaign can have the name '${name}'.`);
  return `/campaigns/${encodeURIComponent(name)}`;
}
const list = (name) => (body) => body[name];

/** A page of the campaigns whose names contain `q`, in `state` ("" for any): {campaigns, count, states}. */
export const campaigns = ({ q, state, offset, limit }, signal) => {
  const query = new URLSearchParams({ limit, offset });
  if (q) query.set("q", q);
  if (state) query.set("state", state);
  return json("GET", `/campaigns?${query}`, undefined, signal);
};
export const create = (settings) => json("POST", "/campaigns", settings);
export const session = () => json("GET", "/session");
export const policies = () => json("GET", "/policies").then(list("policies"));
/** What a campaign has learned, with its best `arms` arms; all arms if `arms` is null. */
export const insight = async (name, arms, signal) =>
  json("GET", `${at(name)}/insight${arms ? `?arms=${arms}` : ""}`, undefined, signal);
export const history = async (name, points, signal) =>
  json("GET", `${at(name)}/history?points=${points}`, undefined, signal).then(list("points"));
/** What was known over time, in at most `points` points; with the effects of `arm`, if it is given. */
export const estimates = async (name, { points, arm }, signal) => {
  const query = new URLSearchParams({ points });
  if (arm !== undefined) query.set("arm", arm);
  return json("GET", `${at(name)}/estimates?${query}`, undefined, signal).then(list("estimates"));
};
/** What is best for each segment, and which attributes matter: {segments, attributes}. */
export const segments = async (name, signal) => json("GET", `${at(name)}/segments`, undefined, signal);
export const events = async (name, limit, signal) =>
  json("GET", `${at(name)}/events?limit=${limit}`, undefined, signal).then(list("events"));
export const openDecisions = async (name, limit, signal) =>
  json("GET", `${at(name)}/decisions?open=true&limit=${limit}`, undefined, signal).then(list("decisions"));
export const act = async (name, verb) => json("POST", `${at(name)}/${verb}`);
export const ship = async (name, shipment) => json("POST", `${at(name)}/ship`, shipment);
export const configure = async (name, settings) => json("PATCH", `${at(name)}/settings`, settings);
export const addArm = async (name, arm, groups = []) => json("POST", `${at(name)}/arms`, { name: arm, groups });
export const retireArm = async (name, arm) => json("POST", `${at(name)}/arms/retire`, { name: arm });
export const remove = async (name) => json("DELETE", at(name));

/** An exported campaign as a file. */
export const exported = async (name) => (await send("GET", `${at(name)}/export`)).blob();
/** Its decisions as a file, a row each. */
export const exportedDecisions = async (name) => (await send("GET", `${at(name)}/decisions/export?format=csv`)).blob();

/** Follow the stream of one campaign, or of all, until it ends. Uses fetch, because EventSource cannot send a token. */
export async function stream(name, signal, opened, onChange) {
  const response = await send("GET", `${name ? at(name) : ""}/stream`, undefined, signal);
  opened();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const messages = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
    rest = messages.pop();
    if (messages.some((message) => /^data:/m.test(message))) onChange();
  }
}
