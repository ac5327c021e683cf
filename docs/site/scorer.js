/* How the search ranks its results: titles with the words of the query first, then guides and tutorials before other pages,
   names of the API after pages, and the pages that have nearly every word last. */
const SECTION_SCORES = { tutorials: 8, "how-to": 10, reference: 6, explanation: 2, api: -6, project: -30 };
const LAST = /^project\/changelog$/;
/* Lists, details, and guides for one library or machine, which mention much of what other pages explain. */
const LATE = /-appendix$|^index$|\/index$|\/(paper-notes|releasing|gpu)$|\/from-[a-z-]*$/;

/* The part, from 0 to 1, of the words of the query that are in a title; words with the same beginning are the same. */
function partInTitle(title) {
  const words = (text) => text.toLowerCase().match(/[\p{Letter}\p{Number}]+/gu) ?? [];
  const asked = words(new URLSearchParams(window.location.search).get("q") ?? "");
  const stem = (word) => word.slice(0, Math.max(3, word.length - 3));
  const found = asked.filter((word) => words(title).some((each) => each === word || (word.length > 3 && each.startsWith(stem(word)))));
  return asked.length ? found.length / asked.length : 0;
}

var Scorer = {
  score: ([page, title, anchor, description, score]) => {
    if (LAST.test(page)) return -1000;
    const section = SECTION_SCORES[page.split("/")[0]] ?? 0;
    const whole = anchor ? 0 : 3; // a page before its sections, if both match
    return Math.min(score, 20) + section + whole + 15 * partInTitle(title) - (LATE.test(page) ? 20 : 0);
  },
  objNameMatch: 3,
  objPartialMatch: 1,
  objPrio: { 0: 2, 1: 0, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
