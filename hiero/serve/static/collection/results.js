// @ts-check
// Search across videos: moments grouped by video, the best first.
import { getJson, sendJson } from "../api.js";
import { fill, h, icon } from "../dom.js";
import { percent } from "../format.js";
import { withErrors } from "../shell.js";
import { store } from "../store.js";
import { t } from "../texts.js";
import { momentCard } from "./cards.js";

const NUM_HITS = 40;
const NUM_GUESSES = 12;

const title = h("h1", { id: "results-title" }), status = h("p", { id: "results-status", class: "soft small", role: "status", "aria-live": "polite" });
const groups = h("div", { id: "hits", class: "groups cards" });
const unread = h("div", { id: "unsearched", class: "notice", hidden: true });
const nothing = h("div", { id: "nothing", class: "empty", hidden: true });
const root = h("section", { id: "results", class: "stack", hidden: true, "aria-labelledby": "results-title" }, h("div", {}, title, status), unread, nothing, groups);

/** @type {View} */
export const resultsView = {
  root,
  async show({ q }, isCurrent) {
    /** @type {Hit[]} */
    const hits = await getJson(`search?${new URLSearchParams({ q, n: String(NUM_HITS) })}`);
    if (!isCurrent()) return;
    document.title = `${q} · hiero`;
    root.hidden = false;
    const likely = hits.filter(store.isLikely);
    title.textContent = t(likely.length ? "results.title" : "results.nothing", { text: q });
    showHits(likely, q);
    nothing.hidden = likely.length > 0;
    if (!likely.length) showNothing(hits, q);
    const { unread: n } = await getJson("videos?n=1");
    if (isCurrent()) showUnread(n);
  },
  hide() { fill(groups); },
};

/** @param {Hit[]} hits @param {string} q @param {"results.count" | "results.guessed"} text */
function showHits(hits, q, text = "results.count") {
  const byVideo = groupByVideo(hits);
  status.textContent = hits.length ? t(text, { moments: t("count.moments", { n: hits.length }), videos: t("count.videos", { n: byVideo.length }) }) : "";
  fill(groups, ...byVideo.map(({ video, hits: moments }) => h("section", { class: "group", "aria-label": video },
    h("div", { class: "bar" },
      h("h2", {}, moments[0].id ? h("a", { href: `#${new URLSearchParams({ v: moments[0].id, q })}` }, video) : video),
      h("span", { class: "badge accent number" }, t("results.best", { percent: percent(moments[0].probability) })),
      h("span", { class: "soft small" }, t("count.moments", { n: moments.length }))),
    h("ol", { class: "cards moments" }, ...moments.map(hit => momentCard(hit, q))))));
}

/** Says how many videos cannot be found yet, and offers to process them. @param {number} n */
function showUnread(n) {
  unread.hidden = !n;
  const button = h("button", { type: "button", class: "button", hidden: !store.canEdit, onclick: () => withErrors(async () => { await sendJson("POST", "read"); location.hash = ""; }) }, t("collection.read_all", { n }));
  fill(unread, h("p", { class: "grow" }, t("results.unread", { n })), button);
}

/** @param {Hit[]} hits @param {string} q */
function showNothing(hits, q) {
  const button = hits.length ? h("button", { id: "hits-all", type: "button", class: "button", onclick: () => { nothing.hidden = true; showHits(hits.slice(0, NUM_GUESSES), q, "results.guessed"); groups.querySelector("a")?.focus(); } }, t("answers.show_guesses")) : null;
  fill(nothing, icon("search"), h("p", {}, t("results.advice")), button);
}

/** Videos in the order of their best moments, which come first in each. @param {Hit[]} hits */
export function groupByVideo(hits) {
  const sorted = [...hits].sort((a, b) => b.probability - a.probability);
  return [...Map.groupBy(sorted, hit => hit.video)].map(([video, moments]) => ({ video, hits: moments }));
}
