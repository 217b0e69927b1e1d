// @ts-check
// The timeline: a row per level, per question, and per other source of steps, drawn on a canvas. It shows a part of the
// video, chosen by zooming and panning or on the map of the whole video below it. Data goes in, events come out.
import { fill, h, icon } from "../dom.js";
import { formatTime, levelName } from "../format.js";
import { t } from "../texts.js";
import { Scale } from "./scale.js";
import { stepAt } from "./steps.js";
import { drawMap, drawTimeline, readColours } from "./timeline_draw.js";
import { listenToMap, listenToTimeline } from "./timeline_input.js";

const ROW = { ruler: 22, level: 28, question: 18, extra: 20 }, GAP = 3;
const DESCRIBE_MS = 60;  // screen readers hear where a movement ends
const NEAR_PX = 5;  // pixels at which a boundary can be caught by a mouse
const NEAR_TOUCH_PX = 18;

export class Timeline {
  /** @type {Hierarchy} */ hierarchy = { duration_s: 0, levels: [] };
  /** @type {Entries} */ entries = new Map();
  /** @type {ExtraRow[]} */ extraRows = [];
  /** @type {VideoFile[]} */ files = [];
  /** @type {{ text: string, matches: Match[] }[]} */ questions = [];
  /** @type {Row[]} */ rows = [];
  /** @type {string | null} */ selectedId = null;
  /** @type {((entry: StepEntry) => boolean) | null} */ filter = null;
  /** @type {{ id: string, before: number, time: number } | null} */ drag = null;
  /** @type {StepEntry | null} */ pointed = null;
  time = 0;
  height = 0;
  scale = new Scale(0, 1);
  isDrawing = false;
  describing = 0;
  /** @type {unknown[]} what the map was drawn from */ mapKey = [];

  /** @param {HTMLElement} root @param {TimelineEvents} events */
  constructor(root, events) {
    this.root = Object.assign(root, { timeline: this });  // for tests and the console
    this.events = events;
    this.canvas = h("canvas", {});
    this.track = h("div", { class: "track", tabIndex: 0, role: "slider", "aria-valuemin": "0", "aria-label": t("timeline.label"), "aria-describedby": "timeline-keys" }, this.canvas);
    this.gutter = h("div", { class: "gutter" });
    this.map = h("canvas", { title: t("timeline.map") });
    this.mapFrame = h("i", { class: "map-frame" });
    this.mapCursor = h("i", { class: "map-cursor" });
    this.mapName = h("span", { class: "gutter-name", "aria-hidden": "true" }, t("timeline.whole"));
    root.append(this.gutter, this.track, this.mapName, h("div", { class: "map" }, this.map, this.mapFrame, this.mapCursor));
    this.clear();
    this.colours = readColours(root);
    listenToTimeline(this);
    listenToMap(this);
    new ResizeObserver(() => this.resize()).observe(this.track);
    const recolour = () => { this.colours = readColours(root); this.draw(); };
    addEventListener("themechange", recolour);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  }

  clear() {
    Object.assign(this, { selectedId: null, filter: null, drag: null, pointed: null, time: 0, questions: [] });
    this.show({ hierarchy: { duration_s: 0, levels: [] }, entries: new Map(), extraRows: [], files: [] });
  }

  /** Shows steps, and keeps what is selected. @param {{ hierarchy: Hierarchy, entries: Entries, extraRows: ExtraRow[], files: VideoFile[] }} data */
  show({ hierarchy, entries, extraRows, files }) {
    Object.assign(this, { hierarchy, entries, extraRows, files });
    this.root.hidden = !hierarchy.levels.length;
    if (hierarchy.duration_s !== this.scale.duration) this.scale = new Scale(hierarchy.duration_s, this.scale.width);
    if (this.selectedId && !entries.has(this.selectedId)) this.selectedId = null;
    this.layout();
  }

  /** @param {{ text: string, matches: Match[] }[]} questions the last one is the newest */
  showQuestions(questions) { this.questions = questions; this.layout(); }

  // Places the rows, and names them beside the canvas.
  layout() {
    this.rows = [];
    let y = 0;
    const add = (/** @type {Row["kind"]} */ kind, /** @type {any} */ rest = {}) => {
      this.rows.push({ kind, y, height: ROW[kind], ...rest });
      y += ROW[kind] + GAP;
    };
    add("ruler");
    this.hierarchy.levels.forEach((_, level) => add("level", { level }));
    for (const question of this.questions) add("question", { question });
    for (const extra of this.extraRows) add("extra", { extra });
    this.height = y;
    fill(this.gutter, ...this.rows.map(row => this.rowName(row)));
    this.track.style.height = `${y}px`;
    this.resize();
  }

  rowName(/** @type {Row} */ row) {
    const style = `top:${row.y}px;height:${row.height}px`;
    if (row.kind === "question") {
      const text = row.question?.text ?? "";
      const remove = h("button", { type: "button", class: "icon-button", "aria-label": t("question.remove", { text }) }, icon("close"));
      const choose = h("button", { type: "button", class: "question-name ellipsis", title: text }, text);
      remove.onclick = () => this.events.onRemoveQuestion(text);
      choose.onclick = () => this.events.onChooseQuestion(text);
      return h("span", { class: "gutter-name question", style }, choose, remove);
    }
    const name = row.kind === "level" ? levelName(row.level ?? 0, this.hierarchy.levels.length) : row.extra?.name ?? "";
    return h("span", { class: `gutter-name ellipsis ${row.kind}`, style, title: name, dataset: row.kind === "level" ? { level: row.level } : {} }, name);
  }

  resize() {
    const width = this.track.clientWidth;
    if (!width || !this.height) return;
    this.scale.width = width;
    for (const [canvas, height] of [[this.canvas, this.height], [this.map, 20]]) {
      const size = { width: Math.round(width * devicePixelRatio), height: Math.round(height * devicePixelRatio) };
      if (canvas.width === size.width && canvas.height === size.height) continue;  // setting it would clear the canvas
      Object.assign(canvas, size);
      canvas.style.height = `${height}px`;
    }
    this.draw();
  }

  // Draws before the next frame, once, however often it is called.
  draw() {
    if (this.isDrawing) return;
    this.isDrawing = true;
    requestAnimationFrame(() => {
      this.isDrawing = false;
      if (this.root.hidden) return;
      drawTimeline(this);
      drawMap(this);
      clearTimeout(this.describing);
      this.describing = setTimeout(() => this.describe(), DESCRIBE_MS);
    });
  }

  // What screen readers and tests learn about what is drawn.
  describe() {
    const { scale, track } = this, entry = this.selected ?? this.entryAt(this.hierarchy.levels.length - 1, this.time);
    Object.assign(track.dataset, { from: scale.from.toFixed(3), to: scale.to.toFixed(3), time: this.time.toFixed(3) });
    Object.assign(track, { ariaValueMax: String(Math.round(scale.duration)), ariaValueNow: String(Math.round(this.time)) });
    if (!entry) return;
    const { title, level, step } = entry, name = levelName(level, this.hierarchy.levels.length);
    const text = t("timeline.value", { title, level: name, start: formatTime(step.start_s), end: formatTime(step.end_s) });
    if (track.getAttribute("aria-valuetext") !== text) track.setAttribute("aria-valuetext", text);
  }

  get selected() { return this.selectedId === null ? undefined : this.entries.get(this.selectedId); }

  select(/** @type {string | null} */ id) {
    this.selectedId = id;
    if (this.selected) this.scale.reveal(this.selected.step.start_s);
    this.draw();
  }

  /** @param {((entry: StepEntry) => boolean) | null} filter steps that it refuses are dimmed */
  setFilter(filter) { this.filter = filter; this.draw(); }

  /** @param {number} time @param {boolean} follow whether the part that is shown moves with it */
  showTime(time, follow = true) {
    this.time = time;
    if (follow && !this.drag && time > this.scale.to) this.scale.show(time, time + this.scale.shown);
    else if (follow && !this.drag) this.scale.reveal(time);
    this.draw();
  }

  /** @param {number} factor @param {number} [x] */
  zoom(factor, x = this.scale.width / 2) { if (this.scale.zoom(factor, x)) this.draw(); }

  fit() { if (this.scale.fit()) this.draw(); }

  /** @param {number} level @param {number} time */
  entryAt(level, time) {
    const steps = this.hierarchy.levels[level]?.steps;
    return steps?.length ? this.entries.get(stepAt(steps, time).id) : undefined;
  }

  /** The row and the step at a place, and the step whose start can be moved there. @param {number} x @param {number} y @param {boolean} isTouch */
  hit(x, y, isTouch = false) {
    const row = this.rows.find(candidate => y >= candidate.y - 1 && y <= candidate.y + candidate.height + 1) ?? null;
    const time = this.scale.time(x);
    if (row?.kind !== "level") return { row, time, entry: undefined, boundary: undefined };
    const entry = this.entryAt(row.level ?? 0, time), near = isTouch ? NEAR_TOUCH_PX : NEAR_PX;
    const next = entry && this.entries.get(this.hierarchy.levels[entry.level].steps[entry.index + 1]?.id);
    const boundary = [entry, next].find(candidate => candidate && candidate.index > 0 && Math.abs(this.scale.x(candidate.step.start_s) - x) <= near);
    return { row, time, entry, boundary };
  }

  /** The box of a step on the page, for what is shown over it. @param {StepEntry} entry */
  boxOf(entry) {
    const row = this.rows.find(({ kind, level }) => kind === "level" && level === entry.level), track = this.track.getBoundingClientRect();
    const left = Math.max(0, this.scale.x(entry.step.start_s)), right = Math.min(this.scale.width, this.scale.x(entry.step.end_s));
    return new DOMRect(track.left + left, track.top + (row?.y ?? 0), Math.max(0, right - left), row?.height ?? 0);
  }
}
