// News without reloading: the stream of server-sent events, and polling where it does not get through.

import { stream } from "./api.js";

const POLL = 3000;
const RETRY = 15_000;
const SLOWEST = 30_000;

const wait = (ms, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });

/** Call `changed` whenever the campaign (null: any) may have changed, `state` with "live" or "polling". Gives what stops it. */
export function watch(name, { changed, state }) {
  let current = new AbortController();

  async function listen({ signal }) {
    while (!signal.aborted) {
      try {
        await stream(
          name,
          signal,
          () => {
            state("live");
            changed();
          },
          changed,
        );
        continue; // a stream that ends in good order is opened again
      } catch (why) {
        if (signal.aborted || why.status === 401 || why.status === 404) return;
      }
      state("polling");
      for (const end = Date.now() + RETRY; Date.now() < end && !signal.aborted;) {
        changed();
        await wait(POLL, signal);
      }
    }
  }

  // A browser opens six connections to a host: a page that nobody sees holds none.
  function seen() {
    current.abort();
    if (document.hidden) return;
    current = new AbortController();
    listen(current);
  }

  document.addEventListener("visibilitychange", seen);
  seen();
  return () => {
    document.removeEventListener("visibilitychange", seen);
    current.abort();
  };
}

/** Calls of `work`, one at a time and none sooner after the last than `least` ms or ten times what it took: a slow
 * service is spared. `now` does not wait for that, for the user did something and wants to see it. */
export function paced(work, least) {
  let busy = false,
    wanted = null,
    stopped = false,
    rest = null;

  async function run() {
    clearTimeout(rest);
    [busy, wanted, rest] = [true, null, null];
    const start = performance.now();
    try {
      await work();
    } finally {
      const took = performance.now() - start;
      busy = false;
      if (wanted === "now" && !stopped) run();
      else if (!stopped) rest = setTimeout(rested, Math.max(least, Math.min(10 * took, SLOWEST)));
    }
  }

  function rested() {
    rest = null;
    if (wanted) run();
  }

  function call(how) {
    if (stopped) return;
    if (busy || (rest && how !== "now")) wanted = wanted === "now" ? wanted : how;
    else run();
  }

  const soon = () => call("soon");
  soon.now = () => call("now");
  soon.stop = () => {
    stopped = true;
    clearTimeout(rest);
  };
  return soon;
}
