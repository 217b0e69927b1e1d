// @ts-check
// A report of one video as a single file. It plays the video if that is in the same folder, lists the chapters, and
// answers prepared questions without a server. It uses the components of the video view.
import { fill, h, icon } from "../dom.js";
import { formatSpan, formatTime } from "../format.js";
import { t } from "../texts.js";
import { Answers } from "../video/answers.js";
import { Chapters } from "../video/chapters.js";
import { Player } from "../video/player.js";
import { indexSteps, mergeSpeech, stepAt } from "../video/steps.js";
import { Timeline } from "../video/timeline.js";
import { drawSquares } from "./similarity.js";

/**
 * @typedef {import("../video/types.js").Step & { words: [string, number][], picture?: string | null }} ReportStep
 * @typedef {{ name: string, model: string, duration_s: number, levels: ReportStep[][], questions: import("../video/types.js").Answer[],
 *   speech: import("../video/types.js").Utterance[], matrix: { size: number, values: string },
 *   files: { name: string, places: string[], start_s: number, duration_s: number }[] }} ReportData
 */

const MIN_MATCH = 0.25;  // share of the words of a question that a label must have
const MIN_LENGTH = 3;  // letters of a word that is looked for
const NUM_ANSWERS = 6;

/** The words of a text without endings, so that "cutting" finds "cut", and without short words. @param {string} text */
export const stems = text => text.split(/[^\p{L}\p{N}]+/u).filter(word => word.length >= MIN_LENGTH).map(word => word.toLowerCase().normalize("NFKD").replace(/(ing|es|s|ed)$/, ""));

/**
 * The share of asked words that a text has.
 * @param {string[]} asked @param {string[]} words
 */
const shareOf = (asked, words) => asked.filter(word => words.some(other => other.startsWith(word))).length / Math.max(1, asked.length);

/**
 * An answer without the video itself: a prepared one, or the steps whose likely names or speech have the words.
 * @param {ReportData} data @param {string} text
 * @returns {import("../video/types.js").Answer}
 */
export function answer(data, text) {
  const prepared = data.questions.find(({ query }) => query.toLowerCase() === text.trim().toLowerCase());
  if (prepared) return prepared;
  const asked = stems(text), matches = [];
  for (const step of data.levels.at(-1) ?? []) {
    let probability = 0, quote;
    for (const [label, score] of step.words) probability = Math.max(probability, shareOf(asked, stems(label)) * score);
    if (step.label) probability = Math.max(probability, shareOf(asked, stems(step.label)) * (step.probability ?? 1));
    for (const said of data.speech) {
      const middle = (said.start_s + said.end_s) / 2, share = shareOf(asked, stems(said.text));
      if (middle >= step.start_s && middle < step.end_s && share > probability) { probability = share; quote = said.text; }
    }
    if (probability > MIN_MATCH) matches.push({ start_s: step.start_s, end_s: step.end_s, probability, ...(quote ? { quote, rests_on: "speech" } : {}) });
  }
  matches.sort((a, b) => b.probability - a.probability);
  return { query: text, present: matches.length > 0, probability: matches[0]?.probability ?? 0, matches: matches.slice(0, NUM_ANSWERS) };
}

/** A player of files beside the page. A file is looked for where the video was, and then next to the page. */
class LocalPlayer extends Player {
  attempt = 0;

  /** @param {number} part @param {number} time @param {boolean} resume */
  openPart(part, time, resume) {
    Object.assign(this, { part, target: time, resume });
    const { places } = /** @type {any} */ (this.files[part]);
    this.element.src = places[Math.min(this.attempt, places.length - 1)];
    this.element.load();
  }

  /** Tries the next place. Returns whether there is one. */
  retry() {
    const { places } = /** @type {any} */ (this.files[this.part] ?? { places: [] });
    if (++this.attempt >= places.length) return false;
    this.openPart(this.part, this.target ?? 0, this.resume);
    return true;
  }

  /** @param {{ start_s: number, end_s: number }} span */
  clip({ start_s, end_s }) {
    const { part, inFile } = this.locate(start_s);
    return this.element.hidden ? null : { src: this.element.src.split("#")[0], start_s: inFile, end_s: inFile + end_s - start_s, part };
  }
}

export class VideoReport {
  /** @param {ReportData} data @param {HTMLElement} root */
  constructor(data, root) {
    this.data = data;
    this.root = root;
    this.time = 0;
    this.hierarchy = { duration_s: data.duration_s, levels: data.levels.map(steps => ({ steps })) };
    this.entries = indexSteps(this.hierarchy);
    this.finest = data.levels.at(-1) ?? [];
    this.screen = h("video", { id: "player", controls: true, preload: "metadata", playsInline: true, tabIndex: 0 });
    this.still = h("img", { id: "still", alt: "", hidden: true });
    this.now = h("p", { id: "now", class: "number ellipsis" });
    this.missing = h("p", { id: "missing", class: "notice", hidden: true }, t("offline.missing", { name: data.files[0]?.name ?? "" }));
    this.query = h("input", { id: "query", type: "search", maxLength: 500, autocomplete: "off", placeholder: t("offline.placeholder") });
    const parts = { chapters: h("ol", { id: "chapters", class: "chapters" }), answers: h("div", { class: "answers stack" }), timeline: h("div", { id: "timeline", class: "timeline" }) };
    this.panels = { answers: h("div", { class: "side-panel", hidden: true }, this.backButton(), parts.answers), chapters: h("div", { class: "side-panel" }, parts.chapters) };
    fill(root, this.head(), this.missing,
      h("section", { class: "video-view" }, h("div", { class: "stage" }, h("div", { class: "screen" }, this.screen, this.still), h("div", { class: "side panel" }, this.panels.answers, this.panels.chapters)),
        h("div", { class: "panel timeline-panel" }, h("div", { class: "timeline-head" }, this.now), parts.timeline), this.similarity()));
    this.createComponents(parts);
    this.open();
  }

  head() {
    const { data } = this, form = h("form", { id: "search", role: "search" },
      h("div", { class: "search-box" }, icon("search"), h("label", { class: "hidden", for: "query" }, t("search.label")), this.query));
    form.onsubmit = (/** @type {Event} */ event) => { event.preventDefault(); this.ask(this.query.value.trim()); };
    const about = [formatTime(data.duration_s), t("count.steps", { n: this.finest.length }), t("offline.model", { model: data.model })].join(" · ");
    return h("div", { class: "stack" }, h("div", { class: "video-head" }, h("div", { class: "grow" }, h("h1", { id: "name" }, data.name), h("p", { id: "about", class: "soft small" }, about)), form),
      data.questions.length ? h("div", { id: "questions", class: "bar" }, h("span", { class: "soft small" }, t("offline.ask")), ...data.questions.map(({ query }) => h("button", { type: "button", class: "chip", onclick: () => this.ask(query) }, icon("search"), query))) : null);
  }

  backButton() { return h("button", { id: "back", type: "button", class: "button quiet", onclick: () => this.ask("") }, t("offline.chapters")); }

  similarity() {
    const canvas = h("canvas", { id: "matrix", role: "img", "aria-label": t("matrix.label") });
    const details = h("details", { id: "sees", class: "panel fold" }, h("summary", {}, t("matrix.title")), h("p", { class: "soft" }, t("offline.sees_text")), canvas);
    details.addEventListener("toggle", () => drawSquares(canvas, this.data.matrix, this.finest, this.data.duration_s));
    return details;
  }

  /** @param {Record<"chapters" | "answers" | "timeline", HTMLElement>} parts */
  createComponents(parts) {
    const { data } = this, nothing = () => {};
    this.player = new LocalPlayer(this.screen, time => this.showTime(time), ratio => this.root.style.setProperty("--ratio", String(ratio)));
    this.timeline = new Timeline(parts.timeline, {
      onSeek: time => this.seek(time), onSelect: entry => this.showNow(entry), canEdit: () => false, onRename: nothing, onMoveStart: nothing,
      onRemoveQuestion: () => this.ask(""), onChooseQuestion: nothing, onPoint: nothing, limits: () => ({ low: 0, high: 0 }),
    });
    this.chapters = new Chapters(parts.chapters, {
      onChoose: entry => { this.seek(entry.step.start_s); this.timeline?.select(entry.step.id); this.chapters?.select(entry.step.id); }, onRename: nothing, canEdit: () => false,
      pictureUrl: ({ step }) => this.pictureAt((step.start_s + step.end_s) / 2),
    });
    this.answers = new Answers(parts.answers, {
      onChoose: match => { this.seek(match.start_s); this.player?.play(); }, onAsk: text => this.ask(text), onShowAll: nothing, pictureUrl: time => this.pictureAt(time),
      clipOf: match => data.files.length === 1 ? this.player?.clip(match) ?? null : null,
    });
    const speech = mergeSpeech(data.speech, data.duration_s);
    this.timeline.show({ hierarchy: this.hierarchy, entries: this.entries, files: data.files, extraRows: speech.length ? [{ name: t("row.speech"), kind: "speech", steps: speech }] : [] });
    this.chapters.show(this.hierarchy, this.entries);
  }

  open() {
    this.screen.addEventListener("error", () => { if (!this.player?.retry()) this.showStills(); });
    if (this.data.files.every(({ places }) => places.length)) this.player?.open("", this.data.files); else this.showStills();
    this.showTime(0);
  }

  // Without the video, the picture of the step stands for it.
  showStills() {
    this.screen.hidden = true;
    this.missing.hidden = false;
    this.showTime(this.time);
  }

  /** @param {number} time */
  pictureAt(time) {
    const { picture } = this.finest.length ? /** @type {ReportStep} */ (stepAt(this.finest, time)) : { picture: null };
    return picture ? `data:image/jpeg;base64,${picture}` : null;
  }

  /** @param {number} time */
  seek(time) {
    if (!this.screen.hidden && this.player) this.player.currentTime = time;
    this.showTime(time);
  }

  /** @param {number} time */
  showTime(time) {
    this.time = time;
    this.timeline?.showTime(time);
    const entry = this.finest.length ? this.entries.get(stepAt(this.finest, time).id) : undefined;
    if (entry) { this.chapters?.showCurrent(entry.step.id); this.showNow(entry); }
    if (!this.screen.hidden) return;
    const picture = this.pictureAt(time);
    this.still.hidden = picture === null;
    if (picture && this.still.src !== picture) this.still.src = picture;
  }

  /** @param {import("../video/types.js").StepEntry} entry */
  showNow({ title, step }) {
    const { files } = this.data, file = files.findLast(other => other.start_s <= step.start_s + 1e-6);
    const place = files.length > 1 && file ? ` · ${t("now.file", { file: file.name, time: formatTime(step.start_s - file.start_s) })}` : "";
    this.now.textContent = `${title} · ${formatSpan(step)}${place}`;
  }

  /** @param {string} text without a text, the chapters come back */
  ask(text) {
    this.query.value = text;
    this.panels.answers.hidden = !text;
    this.panels.chapters.hidden = Boolean(text);
    const found = text ? answer(this.data, text) : null;
    this.timeline?.showQuestions(found ? [{ text, matches: found.matches }] : []);
    if (!found) return;
    this.answers?.show({ text, answer: found, showsAll: false }, this.data.questions.map(({ query }) => query));
    const [best] = found.present ? found.matches : [];
    if (best) { this.seek(best.start_s); this.player?.play(); }
  }
}
