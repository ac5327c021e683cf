// Polls while the page is visible, one request at a time, with a growing delay after errors.

const POLL_INTERVAL_MS = 2000; // milliseconds
const MAX_DELAY_MS = 30_000;

/**
 * Runs `step(signal)` now and again `every` milliseconds after it has ended, while the page is visible, until `signal`
 * aborts. Calls `reached()` after a successful step and `missed(error)` after a failed one; polling stops if `missed`
 * returns false. Returns a function that aborts the current step, whose response may be outdated, and starts the next.
 */
export function poll(step, { signal, reached, missed, every = POLL_INTERVAL_MS }) {
  let timer = null;
  let current = null;
  let failures = 0;

  async function turn() {
    clearTimeout(timer);
    if (signal.aborted || document.hidden || current) return;
    const mine = (current = new AbortController());
    const ends = AbortSignal.any([signal, mine.signal]);
    let wait = every;
    try {
      await step(ends);
      if (ends.aborted) return;
      failures = 0;
      reached();
    } catch (error) {
      if (ends.aborted) return;
      failures += 1;
      // About doubled, with a random part, so that pages do not retry at the same time.
      const longer = Math.min(every * 2 ** Math.min(failures, 10), MAX_DELAY_MS) * (0.75 + 0.5 * Math.random());
      wait = Math.max(longer, 1000 * (error.wait ?? 0));
      if (missed(error) === false) return;
    } finally {
      if (current === mine) current = null;
    }
    timer = setTimeout(turn, wait);
  }

  function again() {
    current?.abort();
    current = null;
    turn();
  }

  document.addEventListener("visibilitychange", turn, { signal });
  addEventListener("online", turn, { signal });
  signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
  turn();
  return again;
}
