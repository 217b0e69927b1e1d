// @ts-check
// The selected step in other videos.
import { getJson, thumbnailUrl } from "../api.js";
import { fill, h } from "../dom.js";
import { formatSpan, percent, stepTitle } from "../format.js";
import { addressWith, store } from "../store.js";
import { t } from "../texts.js";

const NUM_SIMILAR = 8;

/**
 * @param {HTMLElement} root
 * @param {{ video: import("./types.js").Video, entry: import("./types.js").StepEntry }} chosen
 * @param {() => boolean} isCurrent
 */
export async function showSame(root, { video, entry }, isCurrent) {
  const middle = (entry.step.start_s + entry.step.end_s) / 2;
  try {
    const { hits } = await getJson(`search/like?video=${encodeURIComponent(video.name)}&t=${middle.toFixed(1)}&n=${NUM_SIMILAR}&level=${entry.level}`);
    if (!isCurrent()) return;
    const likely = hits.filter((/** @type {any} */ hit) => hit.probability >= (store.server?.search_threshold ?? 0));
    root.hidden = !likely.length;
    const sideBySide = h("a", { id: "side-by-side", class: "button", href: addressWith({ t: middle.toFixed(1), same: String(entry.level), q: null }) }, t("elsewhere.open"));
    fill(root, h("div", { class: "bar" }, h("h2", { id: "same-title", class: "grow" }, t("same.title")), sideBySide), h("ol", { id: "same", class: "same-cards" }, ...likely.map(createHit)));
  } catch { root.hidden = true; }  // for example if the video has been removed from the corpus
}

/** @param {any} hit */
const createHit = hit => h("li", {}, h("a", { class: "card", href: hit.id ? `#${new URLSearchParams({ v: hit.id, t: hit.start_s.toFixed(1) })}` : "#" },
  h("div", { class: "picture" }, hit.pictures ? h("img", { src: thumbnailUrl(hit.id, (hit.start_s + hit.end_s) / 2), alt: "", loading: "lazy" }) : null),
  h("div", { class: "card-text" }, h("strong", { class: "ellipsis" }, stepTitle(hit.label, /\d+$/.exec(hit.step)?.[0] ?? hit.step)),
    h("span", { class: "soft small" }, `${hit.video} · ${formatSpan(hit)} · ${percent(hit.probability)}`))));
