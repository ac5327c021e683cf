// Polls while the page is visible, one request at a time, with a growing delay after errors.

const POLL_INTERVAL_MS = 2000; // milliseconds
const SLOWEST = 30_000;

/**
 * Runs `step(signal)` now and every two seconds after it has ended, while the page is seen, until `signal` aborts.
 * `reached()` is told of each that ends well, `missed(error)` of each that does not; where that returns false, it is
 * the last.
 * Returns a function that begins the next step at once and gives up the one under way, whose answer may be old.
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
      const longer = Math.min(every * 2 ** Math.min(failures, 10), SLOWEST) * (0.75 + 0.5 * Math.random());
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
