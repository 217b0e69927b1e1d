// Search across videos.
import { getJson, thumbnailUrl } from "../api.js";
import { $, h } from "../dom.js";
import { formatTime, percent, stepTitle } from "../format.js";
import { createCard } from "../legacy.js";
import { store } from "../store.js";

const root = h("section", { id: "results", hidden: true, "aria-labelledby": "results-title" },
  h("h1", { id: "results-title" }), h("ol", { id: "hits", class: "cards" }), h("button", { id: "hits-all", type: "button", class: "button", hidden: true }, "Show the best guesses"));
document.getElementById("main").append(root);
const state = { get view() { return store.view; }, get server() { return store.server; } };

export const resultsView = { root, show: ({ q }) => showResults(q, store.view), hide() {} };

async function showResults(q, view) {
  const hits = await getJson(`search?q=${encodeURIComponent(q)}`);
  if (view !== state.view) return;
  document.title = `${q} · hiero`;
  $("results").hidden = false;
  const likely = hits.filter(isLikely);
  $("results-title").textContent = likely.length ? `Results for “${q}” in all videos` : `“${q}” is probably not in these videos`;
  showLikely("hits", likely, hits, shown => $("hits").replaceChildren(...shown.map(hit => createHitCard(hit, q))));
}

// Shows the likely results, and a button that shows all of them if there are no likely ones.
function showLikely(id, likely, all, show) {
  const button = $(`${id}-all`);
  button.hidden = likely.length > 0 || !all.length;
  button.onclick = () => { button.hidden = true; show(all); };
  show(likely);
}

const isLikely = hit => hit.probability >= state.server.search_threshold;

const createHitCard = (hit, q) => createCard(
  hit.id ? `#${new URLSearchParams({ v: hit.id, t: hit.start_s.toFixed(1), ...(q ? { q } : {}) })}` : "#",
  hit.pictures ? thumbnailUrl(hit.id, (hit.start_s + hit.end_s) / 2) : null, stepTitle(hit.label, /\d+$/.exec(hit.step)?.[0] ?? hit.step),
  `${hit.video} · ${formatTime(hit.start_s)} – ${formatTime(hit.end_s)} · ${percent(hit.probability)}${hit.rests_on ? ` · ${hit.rests_on}` : ""}${hit.quote ? ` · “${hit.quote}”` : ""}`);

