// @ts-check
// The questions about a video: asking them, keeping them as rows, and going to the best answer.
import { getJson } from "../api.js";
import { $, fill, h } from "../dom.js";
import { changeAddress } from "../store.js";
import { Answers, shownMatches } from "./answers.js";

const NUM_MATCHES = 5, MAX_QUESTIONS = 6;
const SEPARATOR = "\n";

export class Asking {
  /** @type {Question[]} the newest is the last */ questions = [];
  /** @type {string[]} */ suggestions = [];
  video = "";

  /** @param {HTMLElement} root @param {AnswerEvents & { onQuestions: (questions: Question[]) => void, onBest: (match: Match) => void }} events */
  constructor(root, events) {
    this.events = events;
    this.answers = new Answers(root, { ...events, onShowAll: question => { question.showsAll = true; this.render(); } });
  }

  /** @param {string} video @param {string[]} suggestions */
  open(video, suggestions) {
    if (video !== this.video) this.questions = [];
    Object.assign(this, { video, suggestions });
    fill($("suggestions"), ...suggestions.map(value => h("option", { value })));
    this.render();
  }

  close() { this.open("", []); }

  // Asks what the address says: `q`, and earlier questions in `also`. Goes to the best answer of a new question.
  /** @param {Address} address @param {() => boolean} isCurrent */
  async show({ q, also, t }, isCurrent) {
    if (!q) { this.questions = []; this.render(); return; }
    const texts = [...(also ?? "").split(SEPARATOR).filter(Boolean), ...this.questions.map(({ text }) => text)].filter(text => text !== q);
    const wanted = [...new Set(texts), q].slice(-MAX_QUESTIONS), known = new Map(this.questions.map(question => [question.text, question]));
    const isNew = !known.has(q);
    const questions = await Promise.all(wanted.map(text => known.get(text) ?? this.ask(text)));
    if (!isCurrent()) return;
    this.questions = questions;
    const newest = questions[questions.length - 1], [best] = newest.answer.matches;
    this.remember();
    this.render();
    if (isNew && !t && newest.answer.present && best) this.events.onBest(best);
  }

  /** @param {string} text @returns {Promise<Question>} */
  async ask(text) {
    const answer = await getJson(`videos/${this.video}/ask?q=${encodeURIComponent(text)}&n=${NUM_MATCHES}`);
    return { text, answer, showsAll: false };
  }

  /** Keeps all questions in the address, for a link. */
  remember() {
    const texts = this.questions.map(({ text }) => text), q = texts.pop() ?? null;
    changeAddress({ q, also: texts.join(SEPARATOR) || null }, true);
  }

  remove(/** @type {string} */ text) {
    this.questions = this.questions.filter(question => question.text !== text);
    this.remember();
    $("query").value = this.questions.at(-1)?.text ?? "";
    this.render();
  }

  /** Shows the answers of an earlier question again. @param {string} text */
  choose(text) {
    const question = this.questions.find(other => other.text === text);
    if (!question) return;
    this.questions = [...this.questions.filter(other => other !== question), question];
    $("query").value = text;
    this.remember();
    this.render();
  }

  render() {
    this.answers.show(this.questions.at(-1), this.suggestions);
    this.events.onQuestions(this.questions);
  }

  get rows() { return this.questions.map(question => ({ text: question.text, matches: shownMatches(question) })); }
}
