// @ts-check
// The folder report as a view of the page.
import { getJson } from "../api.js";
import { fill, h } from "../dom.js";
import { addressWith, momentAddress } from "../store.js";
import { t } from "../texts.js";
import { chosenChips, chosenFilters } from "./facets.js";
import { Report } from "./report.js";

const body = h("div", { class: "stack report" }), chosen = h("div", { class: "bar" }), back = h("a", { class: "button quiet" }, t("report.back"));
const waiting = h("p", { class: "empty", role: "status" }, t("report.waiting"));
const root = h("section", { id: "report", class: "stack", hidden: true, "aria-labelledby": "report-title" },
  h("div", { class: "bar" }, h("h1", { id: "report-title", class: "grow" }, t("report.title")), back), chosen, waiting, body);

/** @type {View} */
export const reportView = {
  root,
  async show(address, isCurrent) {
    const filters = { q: address.filter ?? "", ...chosenFilters(address) };
    document.title = `${t("report.title")} · hiero`;
    root.hidden = waiting.hidden = false;
    back.href = addressWith({ report: null });
    fill(chosen, ...chosenChips(chosenFilters(address)));
    fill(body);
    try {
      const data = await getJson(`report?${new URLSearchParams(filters)}`);
      if (!isCurrent()) return;
      new Report(data, (video, time) => video.id ? momentAddress(video.id, time) : null).draw(body);
      body.prepend(...data.errors.map((/** @type {string} */ error) => h("p", { class: "notice warn" }, error)));
    } finally { waiting.hidden = true; }
  },
  hide() { fill(body); },
};
