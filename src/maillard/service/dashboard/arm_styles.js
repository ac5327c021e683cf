// The colours of arms, the same in the table, the chart and the verdict.

const COLOURS = 10;
const DASHES = [null, "6 3", "2 2.5", "8 3 2 3", "10 3", "8 3 2 3 2 3", "4 2.5"];
// An arm with one of these names gets this colour, so that “green” is not drawn in orange.
const NAMED = { blue: 0, orange: 1, green: 2, purple: 3, red: 5, teal: 6, pink: 7, brown: 8, violet: 9 };

/** For each arm: a colour class, and dashes when the colours repeat. The others get the rest of the colours in their order. */
export function stylesOf(arms) {
  const named = new Map();
  for (const arm of arms) {
    const place = NAMED[arm.toLowerCase()];
    if (place !== undefined && ![...named.values()].includes(place)) named.set(arm, place);
  }
  const taken = new Set(named.values());
  let next = 0;
  const free = () => {
    while (taken.has(next)) next += 1;
    next += 1;
    return next - 1;
  };
  return arms.map((arm) => styleAt(named.get(arm) ?? free()));
}

function styleAt(place) {
  return { colour: `colour-${place % COLOURS}`, dashes: DASHES[Math.floor(place / COLOURS) % DASHES.length] };
}
