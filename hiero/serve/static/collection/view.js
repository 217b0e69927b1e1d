// @ts-check
// The collection: cards of all videos, search with facets, reading, learning and adding.
import { getJson, sendJson } from "../api.js";
import { fill, h, icon } from "../dom.js";
import { toast, withErrors } from "../shell.js";
import { addressWith, changeAddress, readAddress, store } from "../store.js";
import { t } from "../texts.js";
import { Adding } from "./add.js";
import { videoCard } from "./cards.js";
import { chosenChips, chosenFilters, showFacets } from "./facets.js";
import { JobPanel, LEARNING, learnedNotice } from "./progress.js";

const NUM_LISTED = 60;  // videos per page
const TYPING_DELAY_MS = 200;
const SORT = /** @type {const} */ (["added", "name", "date", "length", "steps", "state"]);
const DESCENDING = new Set(["date", "length", "steps", "state"]);

const state = {
  /** @type {ListedVideo[]} */ videos: [],
  total: 0,
  unread: 0,
  request: 0,  // number of the last request; earlier responses are ignored
};

const adding = new Adding(() => { load(); jobs.load(); });
const jobs = new JobPanel(render, () => { load(); showLearned(); });
const root = h("section", { id: "list", class: "collection", hidden: true, "aria-labelledby": "list-title" },
  h("div", { id: "collection-head", class: "collection-head" },
    h("div", { class: "bar" }, h("h1", { id: "list-title" }, t("collection.title")), h("span", { id: "list-status", class: "soft small", role: "status", "aria-live": "polite" })),
    h("div", { class: "bar end" },
      h("button", { id: "learn", type: "button", class: "button", title: t("learn.explain"), hidden: true, onclick: (/** @type {any} */ { target }) => { target.closest("button").disabled = true; start("learn"); } }, icon("pencil"), t("learn.button")),
      h("button", { id: "read-all", type: "button", class: "button", hidden: true, onclick: () => start(`read?${new URLSearchParams(filters())}`) }),
      h("a", { id: "compare", class: "button", hidden: true }, icon("film"), t("collection.compare")), adding.folderButton, adding.button)),
  adding.root, jobs.root, h("div", { id: "learned-place" }), h("div", { id: "welcome-place" }),
  h("div", { id: "collection-body", class: "collection-body" },
    h("aside", { id: "facets", "aria-label": t("facets.title"), hidden: true }),
    h("div", { class: "stack" },
      h("div", { class: "bar tools", role: "search", "aria-label": t("collection.tools") },
        h("label", { class: "hidden", for: "filter" }, t("collection.filter")),
        h("input", { id: "filter", class: "field grow", type: "search", maxLength: 200, autocomplete: "off", placeholder: t("collection.filter") }),
        h("label", { class: "bar small" }, h("span", { class: "soft sort-name" }, t("collection.sort")),
          h("select", { id: "sort", class: "field", "aria-label": t("collection.sort") }, ...SORT.map(value => h("option", { value }, t(`sort.${value}`)))))),
      h("div", { id: "chosen", class: "bar" }),
      h("ul", { id: "videos", class: "cards" }),
      h("p", { id: "no-videos", class: "empty", hidden: true }),
      h("p", { class: "center" }, h("button", { id: "more", type: "button", class: "button", hidden: true, onclick: () => load(state.videos.length) }, t("collection.more"))))));

/** @type {View} */
export const collectionView = {
  root,
  async show({ q, filter }, isCurrent) {
    document.title = "hiero";
    adding.show();
    find("#filter").value = filter ?? (store.server?.corpus ? "" : q) ?? "";
    await load();
    if (!isCurrent()) return;
    root.hidden = false;
    // A single video is opened directly, unless others can be added.
    const isOnly = state.total === 1 && !store.server?.corpus && !store.server?.uploads && !find("#filter").value;
    if (isOnly) { changeAddress({ v: state.videos[0].id }); return; }
    await Promise.all([jobs.show(), showLearned()]);
  },
  hide() { jobs.hide(); },
};

/** @param {string} selector @returns {any} */
function find(selector) { return root.querySelector(selector); }

const filters = () => ({ q: find("#filter").value.trim(), ...chosenFilters(readAddress()) });

/** Loads a page. The first one replaces the list. */
async function load(offset = 0) {
  const request = ++state.request, sort = find("#sort").value;
  const query = new URLSearchParams({ ...filters(), sort, descending: String(DESCENDING.has(sort)), offset: String(offset), n: String(NUM_LISTED) });
  await withErrors(async () => {
    const { total, unread, videos, facets } = await getJson(`videos?${query}`);
    if (request !== state.request) return;
    Object.assign(state, { total, unread, videos: offset ? [...state.videos, ...videos] : videos });
    showFacets(find("#facets"), facets, chosenFilters(readAddress()));
    render();
  });
}

function render() {
  const { q, ...chosen } = filters(), { videos, total, unread } = state;
  const isEmpty = !total && !q && !Object.keys(chosen).length;
  fill(find("#welcome-place"), isEmpty ? adding.welcome() : null);
  find("#collection-head").hidden = find("#collection-body").hidden = isEmpty;
  fill(find("#chosen"), ...chosenChips(chosen));
  find("#list-status").textContent = q ? t("collection.matching", { shown: videos.length, videos: t("count.videos", { n: total }), text: q })
    : t("collection.showing", { shown: videos.length, videos: t("count.videos", { n: total }) });
  find("#more").hidden = videos.length >= total;
  find("#no-videos").hidden = total > 0;
  find("#no-videos").textContent = q ? t("collection.none_matching", { text: q }) : t("collection.none");
  fill(find("#read-all"), icon("play"), t("collection.read_all", { n: unread }));
  find("#read-all").hidden = !store.canEdit || !unread || unread <= jobs.jobs.size;
  find("#compare").hidden = total - unread < 2;
  find("#compare").href = addressWith({ report: "1", q: null, filter: q });
  find("#learn").hidden = !store.canEdit || !store.server?.words || !videos.some(video => video.edited);
  find("#learn").disabled = jobs.jobs.has(LEARNING);
  showCards();
}

/** Draws the cards, keeping those that have not changed, so that the focus and pictures stay. */
function showCards() {
  const list = find("#videos"), old = new Map([...list.children].map(card => [card.dataset.id, card]));
  const cards = state.videos.map(video => {
    const job = jobs.jobs.get(video.id), known = old.get(video.id), key = JSON.stringify([video, job]);
    if (known?.dataset.key === key) return known;
    const card = videoCard(video, job, store.canEdit ? () => start(`videos/${video.id}/read`) : null);
    card.dataset.key = key;
    return card;
  });
  const focused = /** @type {HTMLElement | null} */ (document.activeElement)?.closest("#videos li")?.getAttribute("data-id");
  list.replaceChildren(...cards);
  if (focused && !list.contains(document.activeElement)) list.querySelector(`[data-id="${focused}"] a`)?.focus();
}

/** Starts jobs, and shows them. @param {string} path */
async function start(path) {
  await withErrors(async () => {
    const { started } = await sendJson("POST", path);
    if (started !== undefined) toast(t("collection.started", { n: started }));
  });
  await jobs.load();
}

async function showLearned() {
  if (!store.server?.words) return;
  await withErrors(async () => fill(find("#learned-place"), learnedNotice(await getJson("learn"))));
}

let typing = 0;
find("#filter").addEventListener("input", () => {
  clearTimeout(typing);
  typing = window.setTimeout(() => { changeAddress({ filter: find("#filter").value.trim() || null }, true); load(); }, TYPING_DELAY_MS);
});
find("#sort").addEventListener("change", () => load());
