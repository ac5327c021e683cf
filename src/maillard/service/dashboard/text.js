// Formats numbers, times and names for the page.

const MAX_DECIMALS = 10;
const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const LENGTHS = [[1, "s"], [60, "min"], [3600, "h"], [86_400, "days"]];
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const seconds = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const year = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });
const formats = new Map();

/** A count: 12,345. */
export function count(n) {
  return whole.format(n);
}

/** A count and what is counted: "1 arm", "3 arms". */
export function counted(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** How often: "once", "3 times". */
export function times(n) {
  return n === 1 ? "once" : `${count(n)} times`;
}

/** A number with this many decimals and a typographic minus sign. */
export function number(value, decimals) {
  if (!Number.isFinite(value)) return "–";
  if (Math.abs(value) >= 1e9) return scientific(Math.log10(Math.abs(value)), value < 0);
  const places = Math.min(Math.max(decimals, 0), MAX_DECIMALS);
  if (!formats.has(places)) {
    const digits = { minimumFractionDigits: places, maximumFractionDigits: places, signDisplay: "negative" };
    formats.set(places, new Intl.NumberFormat("en", digits));
  }
  return formats.get(places).format(value).replace("-", "−");
}

/** A number without trailing digits. */
export function plain(value) {
  return Math.abs(value) >= 1e9 ? number(value, 0) : String(Number(value.toPrecision(12))).replace("-", "−");
}

/** The decimals that show two digits of the narrowest half-width, so that numbers below each other can be compared. */
export function decimalsFor(halves) {
  const least = Math.min(...halves.filter((half) => half > 0 && half < Infinity));
  return least < Infinity ? Math.min(Math.max(1 - Math.floor(Math.log10(least)), 0), MAX_DECIMALS) : 3;
}

/** A fraction or probability as a percentage. It shows 0% and 100% only for exactly 0 and 1. */
export function percent(fraction, log = null) {
  if (fraction === 0 && log === null) return "0%";
  if (fraction >= 1) return "100%";
  if (fraction >= 0.9995) return "> 99.9%";
  if (fraction >= 0.0095) return `${number(100 * fraction, 1)}%`;
  if (fraction >= 0.00001) return `${number(100 * fraction, 1 - Math.floor(Math.log10(100 * fraction)))}%`;
  return scientific(log === null ? Math.log10(fraction) : log / Math.LN10);
}

/** A policy as its user wrote it: one with segments is wrapped by the service. */
export function policyText(spec) {
  const [, inner] = spec.match(/^segmented:policy='([^']*)'$/) ?? [];
  return inner ? `${escapeName(inner)} in each segment` : escapeName(spec);
}

/** A confidence level: 95%, 98.33%, 99.995%. */
export function level(confidence) {
  return `${plain(Number((100 * confidence).toPrecision(confidence > 0.999 ? 6 : 4)))}%`;
}

/** A z-score with its sign. */
export function deviations(z) {
  if (z === null) return "–";
  const size = number(Math.abs(z), 1);
  return size === "0.0" ? size : (z < 0 ? "−" : "+") + size;
}

/** A numerical error in scientific notation. */
export function error(value) {
  return value === 0 ? "0" : scientific(Math.log10(Math.abs(value)), value < 0);
}

function scientific(log, negative = false) {
  let power = Math.floor(log);
  let first = (10 ** (log - power)).toFixed(1);
  if (first === "10.0") [first, power] = ["1.0", power + 1];
  const raised = [...String(Math.abs(power))].map((digit) => SUPERSCRIPTS[digit]).join("");
  return `${negative ? "−" : ""}${first} × 10${power < 0 ? "⁻" : ""}${raised}`;
}

/** An approximate duration: 64 s, 4.3 min, 11 h, 3 days. */
export function duration(length) {
  const [size, unit] = LENGTHS.findLast(([each]) => length >= 1.5 * each) ?? LENGTHS[0];
  const many = length / size;
  return `${plain(Number(many.toFixed(many < 10 ? 1 : 0)))} ${unit}`;
}

/** A time of day, with seconds if needed; with the date, unless it is today. */
export function moment(date, withSeconds = false) {
  const time = (withSeconds ? seconds : clock).format(date);
  return date.toDateString() === new Date().toDateString() ? time : `${day.format(date)}, ${time}`;
}

export const timeOfDay = (date, withSeconds) => (withSeconds ? seconds : clock).format(date);
export const shortDate = (date) => day.format(date);
export const fullDate = (date) => year.format(date);

// Control characters, and characters that change the direction of text.
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

/** A name that is safe to show: invisible and direction-changing characters are escaped. */
export function escapeName(name) {
  return name.replace(INVISIBLE, (sign) => `\\u${sign.codePointAt(0).toString(16).padStart(4, "0")}`);
}

/** A name in quotation marks. */
export function quoted(name) {
  // Isolated, so that a right-to-left name does not reorder the sentence.
  return `“\u2068${escapeName(name)}\u2069”`;
}

/** A message of the service as a sentence with a capital letter and a full stop. */
export function sentence(text) {
  const trimmed = text.trim();
  return trimmed && trimmed[0].toUpperCase() + trimmed.slice(1) + (/[.!?]$/.test(trimmed) ? "" : ".");
}
