// @ts-check
// The page. The address (#v=…&t=…&q=…) decides what is shown, and every action changes the address.
import { getJson } from "./api.js";
import { elsewhereView } from "./collection/elsewhere.js";
import { reportView } from "./collection/report_view.js";
import { resultsView } from "./collection/results.js";
import { collectionView } from "./collection/view.js";
import { $, fill, h, icon } from "./dom.js";
import { hideError, onSignInNeeded, showSignIn, showUser, withErrors } from "./shell.js";
import { changeAddress, readAddress, store } from "./store.js";
import { t } from "./texts.js";
import { videoView } from "./video/view.js";

/** @type {View[]} */
const VIEWS = [collectionView, resultsView, reportView, elsewhereView, videoView];

/** @param {Address} address @returns {View} */
function chooseView({ v, q, all, report, same }) {
  if (report) return reportView;
  if (v && same && store.server?.corpus) return elsewhereView;
  if (q && (all || !v) && store.server?.corpus) return resultsView;
  return v ? videoView : collectionView;
}

export async function showView() {
  const number = ++store.view, isCurrent = () => number === store.view, address = readAddress();
  await withErrors(async () => {
    if (!store.me || !store.server) {
      const [me, server] = await Promise.all([getJson("me"), getJson("server")]);
      Object.assign(store, { me, server });
      showUser(me);
    }
    if (!isCurrent()) return;
    const chosen = chooseView(address);
    showSearch(address);
    for (const view of VIEWS) if (view !== chosen) { view.root.hidden = true; view.hide(); }
    await chosen.show(address, isCurrent);
  });
}

function showSearch(/** @type {Address} */ { v, q, all }) {
  $("where-label").hidden = !store.server?.corpus || !v;
  $("query").value = q ?? "";
  $("everywhere").checked = Boolean(all) || !v;
}

function buildFrame() {
  $("skip").textContent = t("app.skip");
  $("theme").append(icon("theme"), h("span", { class: "hidden" }, t("app.theme")));
  $("theme").title = t("app.theme");
  $("error-close").append(icon("close"), h("span", { class: "hidden" }, t("app.close")));
  fill($("search"),
    h("div", { class: "search-box" }, icon("search"), h("label", { class: "hidden", for: "query" }, t("search.label")),
      h("input", { id: "query", type: "search", maxLength: 500, autocomplete: "off", placeholder: t("search.placeholder"), list: "suggestions" }),
      h("datalist", { id: "suggestions" })),
    h("label", { class: "check", id: "where-label", hidden: true }, h("input", { type: "checkbox", id: "everywhere" }), t("search.everywhere")));
  $("main").append(...VIEWS.map(view => view.root));
}

function toggleTheme() {
  const { dataset } = document.documentElement;
  const isDark = dataset.theme ? dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  dataset.theme = isDark ? "light" : "dark";
  try { localStorage.setItem("theme", dataset.theme); } catch { /* private windows */ }
  dispatchEvent(new Event("themechange"));
}

function submitSearch(/** @type {Event} */ event) {
  event.preventDefault();
  const isEverywhere = $("everywhere").checked && store.server?.corpus;
  changeAddress({ report: null, same: null, q: $("query").value.trim() || null, all: isEverywhere && readAddress().v ? "1" : null, ...(isEverywhere ? {} : { t: null }) });
}

buildFrame();
onSignInNeeded(() => {
  store.me = store.server = null;
  for (const view of VIEWS) { view.root.hidden = true; view.hide(); }
  showSignIn(showView);
});
try { const theme = localStorage.getItem("theme"); if (theme) document.documentElement.dataset.theme = theme; } catch { /* private windows */ }
$("theme").onclick = toggleTheme;
$("error-close").onclick = hideError;
$("search").onsubmit = submitSearch;
// These two are handled here because the part of the address after # is the state of the page.
$("skip").onclick = (/** @type {Event} */ event) => { event.preventDefault(); $("main").focus(); };
$("home").onclick = (/** @type {Event} */ event) => { event.preventDefault(); location.hash = ""; };
document.addEventListener("keydown", event => {
  const target = /** @type {Element} */ (event.target);
  if (event.key !== "/" || event.ctrlKey || event.metaKey || target.closest("input, select, textarea")) return;
  event.preventDefault();
  $("query").focus();
});
addEventListener("hashchange", showView);
showView();
