// The multi-level timeline: nested rows are levels, colours are threads. Hover shows, click seeks, arrow keys move.
import { $, clock, colour, element, pictureOf } from "./api.js";

export class Timeline {
  constructor(root, { onSeek, onChoose }) {
    this.root = root; this.onSeek = onSeek; this.onChoose = onChoose;
    this.chosen = null; this.hits = []; this.extras = []; this.pictures = null;
    root.addEventListener("keydown", event => this.key(event));
  }

  show(steps, { video, pictures }) {
    this.steps = steps; this.video = video; this.pictures = pictures; this.length = steps.duration_s;
    this.buttons = new Map(); this.byId = new Map();
    this.root.replaceChildren();
    steps.levels.forEach(({ steps: level }, number) => {
      const row = element("div", { className: "row", role: "group", "aria-label": `Level ${number + 1} of ${steps.levels.length}` });
      level.forEach((step, place) => {
        const button = this.span(step, step.label || `step ${step.id}`);
        button.tabIndex = -1;
        button.addEventListener("click", () => { this.choose(step.id); this.onSeek(step.start_s); });
        this.buttons.set(step.id, button);
        this.byId.set(step.id, { step, number, place });
        row.append(button);
      });
      this.root.append(row);
    });
    this.hitRow = element("div", { className: "hits", "aria-hidden": "true" });
    this.root.append(this.hitRow);
    for (const { name, steps: spans } of this.extras) this.extraRow(name, spans);
    const axis = element("div", { className: "axis", "aria-hidden": "true" });
    for (let i = 0; i <= 6; i++) axis.append(element("span", { textContent: clock(this.length * i / 6), style: `left:${100 * i / 6}%` }));
    this.cursor = element("div", { className: "cursor" });
    this.root.append(axis, this.cursor);
    this.mark(this.hits);
    if (this.byId.has(this.chosen)) this.choose(this.chosen); else { this.chosen = null; this.first().tabIndex = 0; }
  }

  first() { return this.buttons.get(this.steps.levels.at(-1).steps[0].id); }

  span(step, text) {
    const button = element("button", { type: "button", textContent: text });
    button.style.left = `${100 * step.start_s / this.length}%`;
    button.style.width = `${100 * (step.end_s - step.start_s) / this.length}%`;
    button.style.background = colour(step.thread ?? 0);
    button.setAttribute("aria-label", `${text}, ${clock(step.start_s)} to ${clock(step.end_s)}`);
    for (const [on, off] of [["mouseenter", "mouseleave"], ["focus", "blur"]]) {
      button.addEventListener(on, () => this.tip(button, step, text));
      button.addEventListener(off, () => { $("tip").hidden = true; });
    }
    return button;
  }

  extraRow(name, spans) {
    this.root.append(element("div", { className: "row-name", textContent: name }));
    const row = element("div", { className: "row extra", role: "group", "aria-label": name });
    spans.forEach((step, place) => {
      const button = this.span(step, step.label || step.text || `step ${step.id ?? ""}`);
      button.tabIndex = place ? -1 : 0;
      button.addEventListener("click", () => this.onSeek(step.start_s));
      row.append(button);
    });
    row.addEventListener("keydown", event => {  // within the row; one stop for Tab
      const next = { ArrowRight: event.target.nextElementSibling, ArrowLeft: event.target.previousElementSibling }[event.key];
      if (!["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown"].includes(event.key)) return;
      event.preventDefault(); event.stopPropagation();
      if (next) { event.target.tabIndex = -1; next.tabIndex = 0; next.focus(); }
    });
    this.root.append(row);
  }

  tip(button, step, text) {
    const tip = $("tip"), box = button.getBoundingClientRect();
    tip.replaceChildren();
    if (this.pictures) tip.append(element("img", { alt: "", src: pictureOf(this.video, (step.start_s + step.end_s) / 2), width: 226 }));
    tip.append(element("strong", { textContent: text }), element("div", { textContent: `${clock(step.start_s)} – ${clock(step.end_s)}` }));
    tip.hidden = false;
    const middle = (Math.max(box.left, 0) + Math.min(box.right, innerWidth)) / 2;
    tip.style.left = `${Math.max(8, Math.min(innerWidth - tip.offsetWidth - 8, middle - tip.offsetWidth / 2)) + scrollX}px`;
    tip.style.top = `${box.top + scrollY - tip.offsetHeight - 8}px`;
  }

  choose(id, focus = false) {
    for (const [other, button] of this.buttons) { button.classList.toggle("chosen", other === id); button.tabIndex = other === id ? 0 : -1; }
    this.chosen = id;
    if (focus) this.buttons.get(id).focus();
    this.onChoose(this.byId.get(id).step);
  }

  thread(number, level) {
    for (const [id, button] of this.buttons) {
      const { step, number: own } = this.byId.get(id);
      button.classList.toggle("dim", number !== null && own === level && step.thread !== number);
    }
  }

  key(event) {
    const level = steps => this.steps.levels[steps]?.steps;
    const here = this.byId.get(this.chosen) ?? this.byId.get(this.steps.levels.at(-1).steps[0].id);
    let next = null;
    if (event.key === "ArrowRight") next = level(here.number)[here.place + 1];
    else if (event.key === "ArrowLeft") next = level(here.number)[here.place - 1];
    else if (event.key === "ArrowUp") next = this.byId.get(here.step.parent)?.step;
    else if (event.key === "ArrowDown") next = level(here.number + 1)?.find(step => step.parent === here.step.id);
    else if (event.key === "Home") next = level(here.number)[0];
    else if (event.key === "End") next = level(here.number).at(-1);
    else return;
    event.preventDefault();
    if (next) { this.choose(next.id, true); this.onSeek(next.start_s); }
  }

  mark(matches) {
    this.hits = matches;
    this.hitRow?.replaceChildren(...matches.map(({ start_s, end_s, score }, i) => element("i", {
      style: `left:${100 * start_s / this.length}%;width:${100 * (end_s - start_s) / this.length}%;opacity:${i === 0 ? 1 : 0.35 + 0.4 * score}`,
    })));
  }

  at(time) { if (this.cursor) this.cursor.style.left = `${100 * Math.min(1, time / this.length)}%`; }
}
