// The timeline: rows are levels, colours are threads. Hovering shows a thumbnail, a click seeks, arrow keys move.
import { thumbnailUrl } from "../api.js";
import { $ } from "../dom.js";
import { formatTime, levelName, stepTitle, threadColour } from "../format.js";
import { createElement } from "../legacy.js";

const NUM_TICKS = 6;  // ticks of the time axis after 0
const TOOLTIP_MARGIN = 8;  // pixels between the tooltip and the step or the edge of the window

export class Timeline {
  constructor(root, { onSeek, onSelect }) {
    this.root = root; this.onSeek = onSeek; this.onSelect = onSelect;
    this.clear();
    root.addEventListener("keydown", event => this.onKey(event));
  }

  // show() keeps selectedId, matches and extraRows, because it is called after every edit.
  clear() {
    this.selectedId = null; this.matches = []; this.extraRows = []; this.files = [];
    this.root.replaceChildren();
  }

  show(hierarchy, { video, pictures }) {
    this.hierarchy = hierarchy; this.video = video; this.pictures = pictures; this.duration = hierarchy.duration_s;
    this.buttons = new Map(); this.byId = new Map();
    this.root.replaceChildren();
    hierarchy.levels.forEach(({ steps }, level) => {
      const row = createElement("div", { className: "row", role: "group", "aria-label": levelName(level, hierarchy.levels.length) });
      steps.forEach((step, index) => {
        const button = this.stepButton(step, stepTitle(step.label, index + 1));
        button.tabIndex = -1;
        button.addEventListener("click", () => { this.select(step.id); this.onSeek(step.start_s); });
        this.buttons.set(step.id, button);
        this.byId.set(step.id, { step, level, index });
        row.append(button);
      });
      this.root.append(row);
    });
    this.matchRow = createElement("div", { className: "hits", "aria-hidden": "true" });
    this.root.append(this.matchRow);
    for (const { name, steps, className } of this.extraRows) this.appendExtraRow(name, steps, className);
    const axis = createElement("div", { className: "axis", "aria-hidden": "true" });
    for (let i = 0; i <= NUM_TICKS; i++) axis.append(createElement("span", { textContent: formatTime(this.duration * i / NUM_TICKS), style: `left:${100 * i / NUM_TICKS}%` }));
    this.cursor = createElement("div", { className: "cursor" });
    this.root.append(axis, this.cursor);
    // Boundaries between files.
    for (const { name, start_s } of (this.files ?? []).slice(1)) {
      this.root.append(createElement("div", { className: "boundary", title: `${name} starts here`, style: `left:${100 * start_s / this.duration}%` }));
    }
    this.showMatches(this.matches);
    if (this.byId.has(this.selectedId)) this.select(this.selectedId);
    else { this.selectedId = null; this.buttons.get(this.firstStep.id).tabIndex = 0; }  // the Tab key must reach one step
  }

  get firstStep() { return this.hierarchy.levels.at(-1).steps[0]; }

  stepButton(step, text) {
    const button = createElement("button", { type: "button", textContent: text });
    button.style.left = `${100 * step.start_s / this.duration}%`;
    button.style.width = `${100 * (step.end_s - step.start_s) / this.duration}%`;
    button.style.background = threadColour(step.thread ?? 0);
    button.setAttribute("aria-label", `${text}, ${formatTime(step.start_s)} to ${formatTime(step.end_s)}`);
    for (const [enter, leave] of [["mouseenter", "mouseleave"], ["focus", "blur"]]) {
      button.addEventListener(enter, () => this.showTooltip(button, step, text));
      button.addEventListener(leave, () => { $("tip").hidden = true; });
    }
    return button;
  }

  // Adds a row of annotated steps, of speech, or of another model. Its steps cannot be selected.
  appendExtraRow(name, steps, className = "") {
    this.root.append(createElement("div", { className: "row-name", textContent: name }));
    const row = createElement("div", { className: `row extra ${className}`, role: "group", "aria-label": name });
    steps.forEach((step, index) => {
      const button = this.stepButton(step, stepTitle(step.label || step.text, index + 1));
      button.tabIndex = index ? -1 : 0;
      button.addEventListener("click", () => this.onSeek(step.start_s));
      row.append(button);
    });
    row.addEventListener("keydown", event => {  // moves within the row
      const next = { ArrowRight: event.target.nextElementSibling, ArrowLeft: event.target.previousElementSibling }[event.key];
      if (!["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown"].includes(event.key)) return;
      event.preventDefault(); event.stopPropagation();
      if (next) { event.target.tabIndex = -1; next.tabIndex = 0; next.focus(); }
    });
    this.root.append(row);
  }

  showTooltip(button, step, text) {
    const tooltip = $("tip"), box = button.getBoundingClientRect();
    tooltip.replaceChildren();
    if (this.pictures) tooltip.append(createElement("img", { alt: "", src: thumbnailUrl(this.video, (step.start_s + step.end_s) / 2), width: 226 }));
    tooltip.append(createElement("strong", { textContent: text }), createElement("div", { textContent: `${formatTime(step.start_s)} – ${formatTime(step.end_s)}` }));
    tooltip.hidden = false;  // comes first because hidden elements have no size
    const middle = (Math.max(box.left, 0) + Math.min(box.right, innerWidth)) / 2;
    const left = Math.min(innerWidth - tooltip.offsetWidth - TOOLTIP_MARGIN, middle - tooltip.offsetWidth / 2);
    tooltip.style.left = `${Math.max(TOOLTIP_MARGIN, left) + scrollX}px`;
    tooltip.style.top = `${box.top + scrollY - tooltip.offsetHeight - TOOLTIP_MARGIN}px`;
  }

  select(id, focus = false) {
    for (const [other, button] of this.buttons) { button.classList.toggle("chosen", other === id); button.tabIndex = other === id ? 0 : -1; }
    this.selectedId = id;
    if (focus) this.buttons.get(id).focus();
    this.onSelect(this.byId.get(id).step);
  }

  // Dims the other threads of a level. null shows all.
  highlightThread(thread, level) {
    for (const [id, button] of this.buttons) {
      const entry = this.byId.get(id);
      button.classList.toggle("dim", thread !== null && entry.level === level && entry.step.thread !== thread);
    }
  }

  onKey(event) {
    const stepsOf = level => this.hierarchy.levels[level]?.steps;
    const { step, level, index } = this.byId.get(this.selectedId) ?? this.byId.get(this.firstStep.id);
    let next = null;
    if (event.key === "ArrowRight") next = stepsOf(level)[index + 1];
    else if (event.key === "ArrowLeft") next = stepsOf(level)[index - 1];
    else if (event.key === "ArrowUp") next = this.byId.get(step.parent)?.step;
    else if (event.key === "ArrowDown") next = stepsOf(level + 1)?.find(child => child.parent === step.id);
    else if (event.key === "Home") next = stepsOf(level)[0];
    else if (event.key === "End") next = stepsOf(level).at(-1);
    else return;
    event.preventDefault();
    if (next) { this.select(next.id, true); this.onSeek(next.start_s); }
  }

  // Marks the matches of a query. The best one is opaque.
  showMatches(matches) {
    this.matches = matches;
    this.matchRow?.replaceChildren(...matches.map(({ start_s, end_s, probability }, rank) => createElement("i", {
      style: `left:${100 * start_s / this.duration}%;width:${100 * (end_s - start_s) / this.duration}%;opacity:${rank === 0 ? 1 : 0.35 + 0.4 * probability}`,
    })));
  }

  showTime(time) { if (this.cursor) this.cursor.style.left = `${100 * Math.min(1, time / this.duration)}%`; }
}
