// @ts-check
// The selected step in other videos.
import { getJson } from "../api.js";
import { momentCard } from "../collection/cards.js";
import { fill, h } from "../dom.js";
import { addressWith, store } from "../store.js";
import { t } from "../texts.js";

const NUM_SIMILAR = 8;

/** @param {HTMLElement} root @param {{ video: Video, entry: StepEntry }} chosen @param {() => boolean} isCurrent */
export async function showSame(root, { video, entry }, isCurrent) {
  const middle = ((entry.step.start_s + entry.step.end_s) / 2).toFixed(1), level = String(entry.level);
  try {
    const { hits } = await getJson(`search/like?${new URLSearchParams({ video: video.name, t: middle, n: String(NUM_SIMILAR), level })}`);
    if (!isCurrent()) return;
    const likely = hits.filter(store.isLikely);
    root.hidden = !likely.length;
    const sideBySide = h("a", { id: "side-by-side", class: "button", href: addressWith({ t: middle, same: level, q: null }) }, t("elsewhere.open"));
    fill(root, h("div", { class: "bar" }, h("h2", { id: "same-title", class: "grow" }, t("same.title")), sideBySide),
      h("ol", { id: "same", class: "cards moments" }, ...likely.map((/** @type {Hit} */ hit) => momentCard(hit, "", true))));
  } catch { root.hidden = true; }  // for example if the video has been removed from the corpus
}
