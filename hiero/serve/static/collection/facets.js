// @ts-check
// Facets: the folders, months, people and steps by which the collection can be narrowed. The address holds what is chosen.
import { fill, h, icon } from "../dom.js";
import { changeAddress } from "../store.js";
import { t } from "../texts.js";

export const FACETS = /** @type {const} */ (["folder", "month", "person", "step"]);
const NUM_SHOWN = 8;  // values of a facet before "more"
const month = new Intl.DateTimeFormat("en", { month: "long", year: "numeric", timeZone: "UTC" });

/** The filters in an address, as parameters of the server. @param {Address} address @returns {Record<string, string>} */
export function chosenFilters(address) {
  return Object.fromEntries(FACETS.filter(name => address[name]).map(name => [name, address[name]]));
}

/** @param {string} name @param {string} value */
export function facetLabel(name, value) {
  return name === "month" && /^\d{4}-\d\d$/.test(value) ? month.format(new Date(`${value}-01T00:00:00Z`)) : value;
}

// A facet is worth showing if it narrows the collection: if it has two values, or if one is chosen.
/** @param {Facets} facets @param {Address} chosen */
export const usefulFacets = (facets, chosen) => FACETS.filter(name => chosen[name] || (facets[name] ?? []).length > 1);

/** @param {Element} root @param {Facets} facets @param {Record<string, string>} chosen */
export function showFacets(root, facets, chosen) {
  const names = usefulFacets(facets, chosen);
  /** @type {HTMLElement} */ (root).hidden = !names.length;
  const isOpen = root.querySelector("details")?.open ?? matchMedia("(min-width: 821px)").matches;
  fill(root, h("details", { class: "facets", open: isOpen }, h("summary", { class: "button" }, icon("folder"), t("facets.title"),
    Object.keys(chosen).length ? h("span", { class: "badge accent" }, Object.keys(chosen).length) : null),
  ...names.map(name => facetGroup(name, facets[name] ?? [], chosen[name]))));
}

/** @param {typeof FACETS[number]} name @param {{ value: string, num: number }[]} values @param {string | undefined} chosen */
function facetGroup(name, values, chosen) {
  const sorted = name === "month" ? [...values].sort((a, b) => b.value.localeCompare(a.value)) : values;
  const rows = sorted.map(({ value, num }) => h("li", {}, h("button", {
    type: "button", class: "facet", "aria-pressed": String(value === chosen), dataset: { facet: name, value },
    onclick: () => changeAddress({ [name]: value === chosen ? null : value }),
  }, h("span", { class: "ellipsis" }, facetLabel(name, value)), h("span", { class: "number soft" }, num))));
  const more = rows.slice(NUM_SHOWN);
  return h("section", {}, h("h2", {}, t(`facet.${name}`)), h("ul", {}, ...rows.slice(0, NUM_SHOWN)),
    more.length ? h("details", { class: "more" }, h("summary", { class: "small" }, t("facets.more", { n: more.length })), h("ul", {}, ...more)) : null);
}

/** The chosen values as chips; a click on one removes it. @param {Record<string, string>} chosen */
export function chosenChips(chosen) {
  return Object.entries(chosen).map(([name, value]) => h("button", {
    type: "button", class: "chip", "aria-pressed": "true", "aria-label": t("facets.remove", { value: facetLabel(name, value) }), onclick: () => changeAddress({ [name]: null }),
  }, h("span", { class: "ellipsis" }, facetLabel(name, value)), icon("close")));
}
