// @ts-check
// The elements of the video view, and its buttons: editing, the zoom, the number of steps, and exporting.
import { h, icon } from "../dom.js";
import { toast } from "../shell.js";
import { addressWith, changeAddress } from "../store.js";
import { t } from "../texts.js";
import { createRecipeDialog } from "./recipe.js";
import { createConflictDialog } from "./saves.js";

/** @param {Commands} commands @param {Parameters<typeof createRecipeDialog>[0]} recipeEvents */
export function createLayout(commands, recipeEvents) {
  const parts = {
    name: h("h1", { id: "name" }),
    exportPlace: h("span", {}),
    reading: h("div", { id: "reading", class: "notice", role: "status", "aria-live": "polite", hidden: true }),
    player: h("video", { id: "player", controls: true, preload: "metadata", playsInline: true, tabIndex: 0 }),
    still: h("img", { id: "still", alt: "", hidden: true }),
    activities: h("div", { id: "threads", class: "filters", role: "group", "aria-label": t("activity.same") }),
    chapters: h("ol", { id: "chapters", class: "chapters" }),
    answers: h("div", { class: "answers stack" }),
    tabs: /** @type {Record<"chapters" | "answers", any>} */ ({}),
    editTools: createEditTools(commands),
    slider: createSlider(commands.recut),
    recipe: createRecipeDialog(recipeEvents),
    now: h("p", { id: "now", class: "number ellipsis" }),
    timeline: h("div", { id: "timeline", class: "timeline" }),
    saved: h("p", { id: "saved", class: "soft small", role: "status", "aria-live": "polite" }),
    history: h("details", { id: "history", class: "panel fold", hidden: true }),
    saves: h("ol", { id: "saves", class: "stack" }),
    same: h("section", { id: "same-section", class: "stack", hidden: true, "aria-labelledby": "same-title" }),
  };
  const root = h("section", { id: "one", class: "video-view", hidden: true, "aria-labelledby": "name" },
    createHead(parts, commands), parts.reading,
    h("div", { class: "stage" },
      h("div", { class: "screen" }, parts.player, parts.still),
      createSide(parts, commands.tab)),
    createTimelinePanel(parts, commands), createConflictDialog(), parts.recipe, parts.same, parts.history);
  parts.history.append(h("summary", {}, t("history.title")), parts.saves);
  return { root, ...parts };
}

/** @param {any} parts @param {{ link: () => void }} commands */
const createHead = (parts, commands) => h("div", { class: "video-head" },
  h("div", { class: "grow" }, parts.name),
  h("div", { class: "bar" },
    h("button", { id: "link", type: "button", class: "button", title: t("tools.link_hint"), onclick: commands.link }, icon("link"), h("span", { class: "label" }, t("tools.link"))), parts.exportPlace));

/** @param {any} parts @param {(name: "chapters" | "answers") => void} onTab */
function createSide(parts, onTab) {
  const tab = (/** @type {"chapters" | "answers"} */ name) => {
    const button = h("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`, "aria-selected": String(name === "chapters"), onclick: () => onTab(name) }, t(`tab.${name}`));
    button.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      event.stopPropagation();
      const other = name === "chapters" ? "answers" : "chapters";
      onTab(other);
      parts.tabs[other].focus();
    });
    return button;
  };
  parts.tabs = { chapters: tab("chapters"), answers: tab("answers") };
  return h("div", { class: "side panel" },
    h("div", { class: "tabs", role: "tablist", "aria-label": t("tab.label") }, parts.tabs.chapters, parts.tabs.answers),
    h("div", { id: "panel-chapters", class: "side-panel", role: "tabpanel", "aria-labelledby": "tab-chapters" }, parts.activities, parts.chapters),
    h("div", { id: "panel-answers", class: "side-panel", role: "tabpanel", "aria-labelledby": "tab-answers", hidden: true }, parts.answers));
}

/** @param {any} parts @param {Commands} commands */
const createTimelinePanel = (parts, commands) => h("div", { class: "panel timeline-panel" },
  h("div", { class: "timeline-head" }, parts.now, parts.editTools, h("span", { class: "grow" }), parts.slider, createZoomTools(commands)),
  parts.timeline,
  h("div", { class: "bar timeline-foot" }, h("p", { id: "timeline-keys", class: "soft small keys-only grow" }, t("timeline.keys")), parts.saved));

/** @param {Parameters<typeof icon>[0]} name @param {string} id @param {string} label @param {() => void} onclick @param {string} [key] @param {string} [text] */
const tool = (name, id, label, onclick, key = "", text = "") => h("button", { type: "button", id, class: `button ${text ? "" : "square"}`, title: key ? `${label} (${key})` : label, onclick },
  icon(name), text ? h("span", {}, text) : h("span", { class: "hidden" }, label));

const createEditTools = (/** @type {Commands} */ commands) => h("div", { id: "edit-tools", class: "bar", role: "group", "aria-label": t("tools.edit") },
  tool("pencil", "rename", t("tools.rename_hint"), commands.rename, "F2", t("tools.rename")),
  tool("split", "split", t("tools.split_hint"), commands.split, "S", t("tools.split")),
  tool("merge", "merge", t("tools.merge_hint"), commands.merge, "M", t("tools.merge")),
  h("button", { id: "earlier", type: "button", class: "button", title: t("tools.earlier_hint"), "aria-label": t("tools.earlier_hint"), onclick: commands.earlier }, t("tools.earlier")),
  h("button", { id: "later", type: "button", class: "button", title: t("tools.later_hint"), "aria-label": t("tools.later_hint"), onclick: commands.later }, t("tools.later")),
  tool("undo", "undo", t("tools.undo"), commands.undo, "Ctrl Z"),
  tool("redo", "redo", t("tools.redo"), commands.redo, "Ctrl Shift Z"),
  h("button", { id: "recipe", type: "button", class: "button", title: t("recipe.hint"), onclick: commands.recipe }, t("recipe.open")),
  h("button", { id: "revert", type: "button", class: "button quiet", hidden: true, onclick: commands.revert }, t("tools.revert")));

const createZoomTools = (/** @type {Commands} */ commands) => h("div", { class: "bar zoom", role: "group", "aria-label": t("tools.zoom") },
  tool("minus", "zoom-out", t("tools.zoom_out"), commands.zoomOut, "-"), tool("plus", "zoom-in", t("tools.zoom_in"), commands.zoomIn, "+"), tool("fit", "zoom-fit", t("tools.fit"), commands.fit, "0"));

/** @param {(k: number) => void} onChange called when the slider rests */
function createSlider(onChange) {
  const slider = h("input", { id: "k", type: "range", min: 1, max: 40, value: 8 }), output = h("output", { id: "k-now", class: "number" });
  let timer = 0;
  slider.oninput = () => { output.value = slider.value; clearTimeout(timer); timer = setTimeout(() => onChange(Number(slider.value)), 120); };
  return h("label", { class: "check slider", for: "k" }, h("span", {}, t("level.only"), " ", output), slider);
}

/** A button with a menu of formats. @param {(format: string) => string} urlOf @param {string[]} formats */
export function createExport(urlOf, formats) {
  const links = formats.map(name => h("a", { href: urlOf(name), download: "", dataset: { format: name } }, h("span", {}, FORMATS[name] ?? name), h("span", { class: "soft small" }, name)));
  const menu = h("div", { class: "items", popover: "auto", onclick: () => menu.hidePopover() }, ...links);
  const button = h("button", { type: "button", class: "button", popoverTargetElement: menu }, icon("download"), h("span", { class: "label" }, t("tools.export")), icon("down"));
  return h("div", { id: "export", class: "menu" }, button, menu);
}

/** @type {Record<string, string>} the names that people know formats by */
const FORMATS = { vtt: "WebVTT", srt: "SubRip", ffmetadata: "ffmpeg", youtube: "YouTube", otio: "OpenTimelineIO", edl: "EDL", elan: "ELAN", csv: "CSV", parquet: "Parquet",
  activitynet: "ActivityNet", labelstudio: "Label Studio", fiftyone: "FiftyOne" };

// Copies a link to a moment. Without access to the clipboard, the link is shown and in the address bar.
/** @param {number} time @param {(text: string) => void} notify */
export async function copyLink(time, notify) {
  changeAddress({ t: time.toFixed(1) }, true);
  const address = new URL(addressWith({}), location.href).href;
  try {
    await navigator.clipboard.writeText(address);
    notify(t("link.copied"));
    toast(t("link.copied"));
  } catch { notify(t("link.shown", { address })); }
}
