// Live updates: the stream of server-sent events, or polling when the stream is not available.

import { stream } from "./api.js";

const POLL_INTERVAL = 3000; // milliseconds
const RETRY_STREAM_AFTER = 15_000; // milliseconds of polling before the stream is tried again
const MAX_REST = 30_000; // longest pause between two calls of throttled work, in milliseconds

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

/** Call `onChange` whenever the campaign (null: any) may have onChange, and `state` with "live" or "polling". Returns a
 * function that stops it. */
export function watch(name, { onChange, state }) {
  let current = new AbortController();

  async function listen({ signal }) {
    while (!signal.aborted) {
      try {
        await stream(
          name,
          signal,
          () => {
            state("live");
            onChange();
          },
          onChange,
        );
        continue; // a stream that ends normally is opened again
      } catch (error) {
        if (signal.aborted || error.status === 401 || error.status === 404) return;
      }
      state("polling");
      for (const end = Date.now() + RETRY_STREAM_AFTER; Date.now() < end && !signal.aborted;) {
        onChange();
        await wait(POLL_INTERVAL, signal);
      }
    }
  }

  // Browsers open at most six connections per host, so a hidden page closes its stream.
  function restart() {
    current.abort();
    if (document.hidden) return;
    current = new AbortController();
    listen(current);
  }

  document.addEventListener("visibilitychange", restart);
  restart();
  return () => {
    document.removeEventListener("visibilitychange", restart);
    current.abort();
  };
}

/** Throttle `work`: one call at a time, and a pause of at least `least` ms or ten times the duration of the last call,
 * so that a slow service is not overloaded. `now` skips the pause, after an action of the user. */
export function throttled(work, least) {
  let busy = false,
    pending = null,
    stopped = false,
    rest = null;

  async function run() {
    clearTimeout(rest);
    [busy, pending, rest] = [true, null, null];
    const start = performance.now();
    try {
      await work();
    } finally {
      const took = performance.now() - start;
      busy = false;
      if (pending === "now" && !stopped) run();
      else if (!stopped) rest = setTimeout(rested, Math.max(least, Math.min(10 * took, MAX_REST)));
    }
  }

  function rested() {
    rest = null;
    if (pending) run();
  }

  function call(how) {
    if (stopped) return;
    if (busy || (rest && how !== "now")) pending = pending === "now" ? pending : how;
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
