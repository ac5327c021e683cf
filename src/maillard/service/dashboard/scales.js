// Axes: marks at round numbers and times, and the position of a value on an axis.

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86_400;
const STEPS = [
  1, 2, 5, 10, 15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE,
  HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 90 * DAY, 365 * DAY,
];

/** An axis for these values that starts and ends at a mark: {low, high, marks, decimals}. */
export function axis(values, most, [least, greatest] = [-Infinity, Infinity]) {
  let low = Math.min(...values);
  let high = Math.max(...values);
  if (!(low < high)) {
    const room = Math.abs(low) * 0.1 || 0.5;
    [low, high] = [Math.max(low - room, least), Math.min(high + room, greatest)];
    if (!(low < high)) [low, high] = [low - room, high + room];
  }
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((each) => each * power >= rough * (1 - 1e-9));
  const first = Math.floor(low / step + 1e-9);
  const last = Math.ceil(high / step - 1e-9);
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const marks = Array.from({ length: last - first + 1 }, (_, index) => Number(((first + index) * step).toPrecision(12)));
  return { low: marks[0], high: marks.at(-1), marks, decimals };
}

/** Round times between two times, in seconds since 1970: {marks, step}. */
export function moments(from, to, most) {
  const years = STEPS.at(-1) * Math.ceil((to - from) / STEPS.at(-1) / most);
  const step = STEPS.find((each) => (to - from) / each <= most) ?? years;
  // Hours and days are round in the local time zone.
  const zone = step >= HOUR ? new Date(1000 * from).getTimezoneOffset() * MINUTE : 0;
  const marks = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to; at += step) marks.push(at);
  return { marks, step };
}

/** The position of a value on an axis, from 0 to 1. */
export function place(value, { low, high }) {
  return Math.min(Math.max((value - low) / (high - low), 0), 1);
}
