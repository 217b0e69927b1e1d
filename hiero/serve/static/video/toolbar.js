// @ts-check
// The buttons of the video view: editing above the timeline, the zoom, the number of steps, and exporting.
import { h, icon } from "../dom.js";
import { toast } from "../shell.js";
import { addressWith, changeAddress } from "../store.js";
import { t } from "../texts.js";

/** @typedef {Record<"rename" | "split" | "merge" | "earlier" | "later" | "undo" | "redo" | "revert" | "zoomIn" | "zoomOut" | "fit", () => void>} Commands */

/**
 * @param {Parameters<typeof icon>[0]} name @param {string} id @param {string} label @param {() => void} onclick @param {string} [key]
 * @param {string} [text]
 */
const tool = (name, id, label, onclick, key = "", text = "") => h("button", { type: "button", id, class: `button ${text ? "" : "square"}`, title: key ? `${label} (${key})` : label, onclick },
  icon(name), text ? h("span", {}, text) : h("span", { class: "hidden" }, label));

/** Buttons for the selected step. @param {Commands} commands */
export const createEditTools = commands => h("div", { id: "edit-tools", class: "bar", role: "group", "aria-label": t("tools.edit") },
  tool("pencil", "rename", t("tools.rename_hint"), commands.rename, "F2", t("tools.rename")),
  tool("split", "split", t("tools.split_hint"), commands.split, "S", t("tools.split")),
  tool("merge", "merge", t("tools.merge_hint"), commands.merge, "M", t("tools.merge")),
  h("button", { id: "earlier", type: "button", class: "button", title: t("tools.earlier_hint"), "aria-label": t("tools.earlier_hint"), onclick: commands.earlier }, t("tools.earlier")),
  h("button", { id: "later", type: "button", class: "button", title: t("tools.later_hint"), "aria-label": t("tools.later_hint"), onclick: commands.later }, t("tools.later")),
  tool("undo", "undo", t("tools.undo"), commands.undo, "Ctrl Z"),
  tool("redo", "redo", t("tools.redo"), commands.redo, "Ctrl Shift Z"),
  h("button", { id: "revert", type: "button", class: "button quiet", hidden: true, onclick: commands.revert }, t("tools.revert")));

/** @param {Commands} commands */
export const createZoomTools = commands => h("div", { class: "bar zoom", role: "group", "aria-label": t("tools.zoom") },
  tool("minus", "zoom-out", t("tools.zoom_out"), commands.zoomOut, "-"), tool("plus", "zoom-in", t("tools.zoom_in"), commands.zoomIn, "+"), tool("fit", "zoom-fit", t("tools.fit"), commands.fit, "0"));

/** @param {(k: number) => void} onChange called when the slider rests */
export function createSlider(onChange) {
  const slider = h("input", { id: "k", type: "range", min: 1, max: 40, value: 8 }), output = h("output", { id: "k-now", class: "number" });
  let timer = 0;
  slider.oninput = () => { output.value = slider.value; clearTimeout(timer); timer = setTimeout(() => onChange(Number(slider.value)), 120); };
  return h("label", { class: "check slider", for: "k" }, h("span", {}, t("level.only"), " ", output), slider);
}

/** A button with a menu of formats. @param {(format: string) => string} urlOf @param {string[]} formats */
export function createExport(urlOf, formats) {
  const items = formats.map(name => h("a", { href: urlOf(name), download: "", dataset: { format: name } }, h("span", {}, formatName(name)), h("span", { class: "soft small" }, name)));
  const menu = h("details", { id: "export", class: "menu" }, h("summary", { class: "button" }, icon("download"), h("span", { class: "label" }, t("tools.export")), icon("down")),
    h("div", { class: "items" }, ...items));
  menu.addEventListener("click", (/** @type {MouseEvent} */ event) => { if (/** @type {Element} */ (event.target).closest("a")) menu.open = false; });
  menu.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") { menu.open = false; menu.querySelector("summary").focus(); }
    const direction = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!direction || !menu.open) return;
    event.preventDefault();
    event.stopPropagation();
    items[Math.max(0, items.indexOf(/** @type {any} */ (document.activeElement)) + direction)]?.focus();
  });
  document.addEventListener("pointerdown", event => { if (!menu.contains(/** @type {Node} */ (event.target))) menu.open = false; });
  return menu;
}

const FORMATS = { vtt: "WebVTT", srt: "SubRip", ffmetadata: "ffmpeg", youtube: "YouTube", otio: "OpenTimelineIO", edl: "EDL", elan: "ELAN", csv: "CSV", parquet: "Parquet",
  activitynet: "ActivityNet", labelstudio: "Label Studio", fiftyone: "FiftyOne", cvat: "CVAT", via: "VIA", coco: "COCO" };

/** The name that people know a format by. @param {string} name */
const formatName = name => /** @type {Record<string, string>} */ (FORMATS)[name] ?? name;

/**
 * Copies a link to a moment. Without access to the clipboard, the link is shown and in the address bar.
 * @param {number} time @param {(text: string) => void} notify
 */
export async function copyLink(time, notify) {
  changeAddress({ t: time.toFixed(1) }, true);
  const address = new URL(addressWith({}), location.href).href;
  try {
    await navigator.clipboard.writeText(address);
    notify(t("link.copied"));
    toast(t("link.copied"));
  } catch { notify(t("link.shown", { address })); }
}
