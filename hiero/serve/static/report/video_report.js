// @ts-check
// A report of one video as a single file. It plays the video if that is in the same folder, lists the chapters, and
// answers prepared questions without a server. It uses the components of the video view.
import { fill, h, icon } from "../dom.js";
import { describeStep, formatTime } from "../format.js";
import { t } from "../texts.js";
import { Answers } from "../video/answers.js";
import { Chapters } from "../video/chapters.js";
import { Player } from "../video/player.js";
import { indexSteps, mergeSpeech, stepAt } from "../video/steps.js";
import { Timeline } from "../video/timeline.js";

const MIN_MATCH = 0.25;  // share of the words of a question that a label must have
const MIN_LENGTH = 3;  // letters of a word that is looked for
const NUM_ANSWERS = 6;

/** The words of a text without endings, so that "cutting" finds "cut", and without short words. @param {string} text */
export const stems = text => text.split(/[^\p{L}\p{N}]+/u).filter(word => word.length >= MIN_LENGTH).map(word => word.toLowerCase().normalize("NFKD").replace(/(ing|es|s|ed)$/, ""));

/** The share of asked words that a text has. @param {string[]} asked @param {string[]} words */
const shareOf = (asked, words) => asked.filter(word => words.some(other => other.startsWith(word))).length / Math.max(1, asked.length);

// An answer without the video itself: a prepared one, or the steps whose likely names or speech have the words.
/** @param {VideoReportData} data @param {string} text @returns {Answer} */
export function answer(data, text) {
  const prepared = data.questions.find(({ query }) => query.toLowerCase() === text.trim().toLowerCase());
  if (prepared) return prepared;
  const asked = stems(text), matches = [];
  for (const step of data.levels.at(-1) ?? []) {
    let probability = 0, quote;
    for (const word of [...step.likely, ...(step.words ?? [])]) probability = Math.max(probability, shareOf(asked, stems(word.text)) * word.probability);
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

  placesOf(/** @type {number} */ part) { return /** @type {VideoReportData["files"]} */ (this.files)[part]?.places ?? []; }

  sourceOf(/** @type {number} */ part) { return this.placesOf(part)[this.attempt] ?? this.placesOf(part).at(-1) ?? ""; }

  /** Tries the next place. Returns whether there is one. */
  retry() {
    if (++this.attempt >= this.placesOf(this.part).length) return false;
    this.openPart(this.part, this.target ?? 0, this.resume);
    return true;
  }
}

export class VideoReport {
  /** @param {VideoReportData} data @param {HTMLElement} root */
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
        h("div", { class: "panel timeline-panel" }, h("div", { class: "timeline-head" }, this.now), parts.timeline)));
    this.createComponents(parts);
    this.open();
  }

  head() {
    const { data } = this, form = h("form", { id: "search", role: "search" },
      h("div", { class: "search-box" }, icon("search"), h("label", { class: "hidden", for: "query" }, t("search.label")), this.query));
    form.onsubmit = (/** @type {Event} */ event) => { event.preventDefault(); this.ask(this.query.value.trim()); };
    const about = [formatTime(data.duration_s), t("count.steps", { n: this.finest.length }), t("offline.model", { model: data.model })].join(" · ");
    return h("div", { class: "stack" }, h("div", { class: "video-head" }, h("div", { class: "grow" }, h("h1", { id: "name" }, data.name), h("p", { id: "about", class: "soft small" }, about)), form),
      data.questions.length ? h("div", { id: "questions", class: "filters" }, h("span", { class: "soft small" }, t("offline.ask")), ...data.questions.map(({ query }) => h("button", { type: "button", class: "chip", onclick: () => this.ask(query) }, icon("search"), query))) : null);
  }

  backButton() { return h("button", { id: "back", type: "button", class: "button quiet", onclick: () => this.ask("") }, t("offline.chapters")); }

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
      clipOf: match => this.screen.hidden ? null : this.player?.clip(match) ?? null,
    });
    const speech = mergeSpeech(data.speech, data.duration_s);
    this.timeline.show({ hierarchy: this.hierarchy, entries: this.entries, files: data.files, extraRows: speech.length ? [{ name: t("row.speech"), kind: "speech", steps: speech }] : [] });
    this.chapters.show(this.hierarchy, this.entries);
  }

  open() {
    this.screen.addEventListener("error", () => { if (!this.player?.retry()) this.showStills(); });
    if (this.data.files.every(({ places }) => places.length)) this.player?.open(this.data.name, this.data.files); else this.showStills();
    this.showTime(0);
  }

  // Without the video, the picture of the step stands for it.
  showStills() {
    this.screen.hidden = true;
    this.missing.hidden = false;
    this.showTime(this.time);
  }

  pictureAt(/** @type {number} */ time) {
    const { picture } = this.finest.length ? /** @type {ReportStep} */ (stepAt(this.finest, time)) : { picture: null };
    return picture ? `data:image/jpeg;base64,${picture}` : null;
  }

  seek(/** @type {number} */ time) {
    if (!this.screen.hidden && this.player) this.player.currentTime = time;
    this.showTime(time);
  }

  showTime(/** @type {number} */ time) {
    this.time = time;
    this.timeline?.showTime(time);
    const entry = this.finest.length ? this.entries.get(stepAt(this.finest, time).id) : undefined;
    if (entry) { this.chapters?.showCurrent(entry.step.id); this.showNow(entry); }
    if (!this.screen.hidden) return;
    const picture = this.pictureAt(time);
    this.still.hidden = picture === null;
    if (picture && this.still.src !== picture) this.still.src = picture;
  }

  showNow(/** @type {StepEntry} */ entry) { this.now.textContent = describeStep(entry, this.data.files); }

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
