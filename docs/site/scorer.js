/* How the search ranks its results. The weights are those of Sphinx; the changelog comes last, since it has nearly every word. */
var Scorer = {
  score: ([page, title, anchor, description, score]) => score - (page === "project/changelog" ? 1000 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
