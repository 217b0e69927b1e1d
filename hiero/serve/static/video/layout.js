// @ts-check
// The elements of the video view.
import { h, icon } from "../dom.js";
import { t } from "../texts.js";
import { createConflictDialog } from "./saves.js";
import { createEditTools, createSlider, createZoomTools } from "./toolbar.js";

/** @param {import("./toolbar.js").Commands & { link: () => void, recut: (k: number) => void, tab: (name: "chapters" | "answers") => void }} commands */
export function createLayout(commands) {
  const parts = {
    name: h("h1", { id: "name" }),
    editing: h("p", { id: "editing", class: "soft small", role: "status", "aria-live": "polite" }),
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
    now: h("p", { id: "now", class: "number ellipsis" }),
    timeline: h("div", { id: "timeline", class: "timeline" }),
    saved: h("p", { id: "saved", class: "soft small", role: "status", "aria-live": "polite" }),
    matrix: h("canvas", { id: "matrix", tabIndex: 0, role: "img", "aria-label": t("matrix.label") }),
    sees: h("details", { id: "sees", class: "panel fold" }),
    history: h("details", { id: "history", class: "panel fold", hidden: true }),
    saves: h("ol", { id: "saves", class: "stack" }),
    same: h("section", { id: "same-section", class: "stack", hidden: true, "aria-labelledby": "same-title" }),
  };
  const root = h("section", { id: "one", class: "video-view", hidden: true, "aria-labelledby": "name" },
    createHead(parts, commands), parts.reading,
    h("div", { class: "stage" },
      h("div", { class: "screen" }, parts.player, parts.still),
      createSide(parts, commands.tab)),
    createTimelinePanel(parts, commands), createConflictDialog(), parts.same, parts.sees, parts.history);
  parts.sees.append(h("summary", {}, t("matrix.title")), h("p", { class: "soft" }, t("matrix.hint")), parts.matrix);
  parts.history.append(h("summary", {}, t("history.title")), parts.saves);
  return { root, ...parts };
}

/** @param {any} parts @param {{ link: () => void }} commands */
const createHead = (parts, commands) => h("div", { class: "video-head" },
  h("div", { class: "grow" }, parts.name, parts.editing),
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

/** @param {any} parts @param {import("./toolbar.js").Commands} commands */
const createTimelinePanel = (parts, commands) => h("div", { class: "panel timeline-panel" },
  h("div", { class: "timeline-head" }, parts.now, parts.editTools, h("span", { class: "grow" }), parts.slider, createZoomTools(commands)),
  parts.timeline,
  h("div", { class: "bar timeline-foot" }, h("p", { id: "timeline-keys", class: "soft small keys-only grow" }, t("timeline.keys")), parts.saved));
