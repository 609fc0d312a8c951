// kofn.js: shows K of the items of a web page, and reports clicks, orders and metrics.
//
//   <script async src="https://kofn.example.com/kofn.js" data-campaign="front-page" data-token="kofn_..."></script>
//
// Or `kofn.show({campaign, token, ...})`. For a policy that takes a context, data-context='{"device": "phone"}' or
// `context: {device: "phone"}` says for whom. The campaign needs a window: nothing is reported about a visitor who does
// nothing. Items are the elements with data-arm="NAME OF THE ARM". Those without the
// attribute `hidden` are what the page shows by itself; if the service does not answer in time, nothing changes.
// A classic script, not a module: a module of another origin would need CORS for the script itself.
(() => {
  "use strict";

  const DEFAULTS = {
    items: "[data-arm]", // selector of the items
    timeout: 800, // milliseconds until the page shows its own items
    click: 1, // reward of a click on an item; null: clicks are not reported
    retries: 5, // of a report that could not be sent
  };
  const script = document.currentScript;
  const home = new URL(".", (script && script.src) || location.href).href;
  let latest = null; // what the page shows

  /** Read an entry of localStorage, which may be blocked. */
  function load(name) {
    try {
      return localStorage.getItem(name);
    } catch {
      return null;
    }
  }

  function store(name, value) {
    try {
      if (value === null) localStorage.removeItem(name);
      else localStorage.setItem(name, value);
    } catch {
      // blocked: the visitor is a new one on each page
    }
  }

  /** Return the visitor's key: random, made at the first visit. The same key gets the same arms. */
  function visitor() {
    const known = load("kofn-visitor");
    if (known) return known;
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    const made = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
    store("kofn-visitor", made);
    return made;
  }

  function post(options, route, body, more) {
    const campaign = encodeURIComponent(options.campaign);
    return fetch(new URL(`api/campaigns/${campaign}/${route}`, options.url), {
      method: "POST",
      headers: { Authorization: `Bearer ${options.token}`, "Content-Type": "application/json" },
      body: JSON.stringify(body),
      credentials: "omit",
      ...more,
    });
  }

  async function problem(answer) {
    const body = await answer.json().catch(() => ({}));
    return `status ${answer.status}: ${body.detail || "no details"}`;
  }

  async function decide(options) {
    const limit = new AbortController();
    const timer = setTimeout(() => limit.abort(), options.timeout);
    try {
      const { key, metadata, context } = options;
      const body = { key, metadata, context: typeof context === "string" ? JSON.parse(context) : context };
      const answer = await post(options, "decisions", body, { signal: limit.signal });
      if (!answer.ok) throw new Error(await problem(answer));
      return (await answer.json()).decisions[0];
    } catch (error) {
      if (limit.signal.aborted) throw new Error(`no answer within ${options.timeout} ms`);
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Send one item, also while the page is being left. Repeating it is harmless: the service counts it once. */
  async function send(options, route, item) {
    for (let retry = 0; ; retry++) {
      let why = "";
      try {
        const answer = await post(options, route, { [route]: [item] }, { keepalive: true });
        if (answer.ok) {
          const { forgotten, late } = await answer.json();
          return forgotten + late === 0;
        }
        why = await problem(answer);
        if (answer.status < 500 && answer.status !== 429) retry = options.retries;
      } catch (error) {
        why = error.message;
      }
      if (retry >= options.retries) {
        console.warn(`kofn: ${JSON.stringify(item)} was not recorded: ${why}`);
        return false;
      }
      await new Promise((done) => setTimeout(done, 1000 * 2 ** retry));
    }
  }

  function parsed() {
    if (document.readyState !== "loading") return null;
    return new Promise((done) => document.addEventListener("DOMContentLoaded", done, { once: true }));
  }

  /** Call a function while the items cannot be seen or clicked: they are about to change. */
  async function concealed(items, work) {
    const before = items.map((item) => item.style.visibility);
    for (const item of items) item.style.visibility = "hidden";
    try {
      return await work();
    } finally {
      items.forEach((item, index) => (item.style.visibility = before[index]));
    }
  }

  async function choose(options, items) {
    const decision = await decide(options);
    const there = new Set(items.map((item) => item.dataset.arm));
    const missing = decision.arms.filter((arm) => !there.has(arm));
    if (missing.length) throw new Error(`no item has data-arm="${missing[0]}"`);
    for (const item of items) item.hidden = !decision.arms.includes(item.dataset.arm);
    return decision;
  }

  /** Report clicks on the items of a decision as its reward. */
  function follow(options, { id, arms }) {
    const clicked = (event) => {
      const item = event.target.closest?.(options.items);
      if (item && arms.includes(item.dataset.arm) && event.button !== 2)
        send(options, "rewards", { id, reward: options.click });
    };
    document.addEventListener("click", clicked, true);
    document.addEventListener("auxclick", clicked, true); // the middle button opens a tab
  }

  /** Show K of the items. Returns the decision {id, arms}, or null if the page shows its own items. It never throws. */
  async function show(given) {
    const options = { ...DEFAULTS, url: home, ...given };
    const place = `kofn-decision-${options.campaign}`;
    latest = null;
    store(place, null);
    try {
      options.key = options.key || visitor();
      await parsed();
      const items = [...document.querySelectorAll(options.items)];
      const decision = await concealed(items, () => choose(options, items));
      store(place, decision.id);
      if (options.click !== null) follow(options, decision);
      latest = { options, id: decision.id };
      return { id: decision.id, arms: decision.arms };
    } catch (error) {
      console.warn(`kofn: the page shows its own items: ${error.message}`);
      return null;
    }
  }

  /**
   * Report something about what this page shows. With {campaign, token}, report it on a later page, such as a receipt,
   * for what the visitor was shown last. Returns whether it was recorded.
   */
  async function report(given, route, item) {
    const options = given ? { ...DEFAULTS, url: home, ...given } : latest?.options;
    const id = given ? load(`kofn-decision-${given.campaign}`) : latest?.id;
    return id ? send(options, route, { id, ...item }) : false;
  }

  /** Fix the reward: the first one counts. */
  const reward = (value, given) => report(given, "rewards", { reward: value });
  /** Add to the reward, if the campaign has a window. The same event, such as the number of an order, counts once. */
  const add = (value, event, given) => report(given, "events", { value, event });
  /** Record a metric beside the reward, once. */
  const record = (name, value, given) => report(given, "records", { name, value });

  /** Return the options that the attributes of the script have: data-timeout="500", data-click="none". */
  function attributes(data) {
    const options = { ...data };
    for (const name of ["timeout", "click", "retries"]) {
      if (name in data) options[name] = data[name] === "none" ? null : Number(data[name]);
    }
    return options;
  }

  window.kofn = { show, reward, add, record };
  if (script && script.dataset.campaign) window.kofn.shown = show(attributes(script.dataset));
})();
