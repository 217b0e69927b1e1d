// @ts-check
// Questions and their answers: a picture, the time, and the probability. Data goes in, events come out.
import { fill, h, icon } from "../dom.js";
import { formatSpan } from "../format.js";
import { evidence, playOnHover, sureMeter } from "../moments.js";
import { t } from "../texts.js";

const MIN_SHOWN = 0.1;  // probability of an answer beside the best one, as ANSWER_THRESHOLD in hiero/types.py

/** The answers of a question that are shown. @param {Question} question */
export const shownMatches = ({ answer, showsAll }) => showsAll ? answer.matches
  : answer.matches.filter((match, rank) => answer.present && (rank === 0 || match.probability >= MIN_SHOWN));

export class Answers {
  /** @param {HTMLElement} root @param {AnswerEvents} events */
  constructor(root, events) {
    this.root = root;
    this.events = events;
  }

  /** @param {Question | undefined} question @param {string[]} suggestions */
  show(question, suggestions) {
    fill(this.root, question ? this.createAnswer(question) : h("p", { class: "soft" }, t("answers.none")), this.createSuggestions(question, suggestions));
  }

  createAnswer(/** @type {Question} */ question) {
    const { text, answer } = question, matches = shownMatches(question);
    const title = answer.present ? t("answers.title", { text }) : t("answers.absent", { text });
    const showAll = h("button", { type: "button", id: "answers-all", class: "button", hidden: matches.length === answer.matches.length, onclick: () => this.events.onShowAll(question) }, answer.present ? t("answers.show_more") : t("answers.show_guesses"));
    return h("div", { class: "stack" },
      h("h2", { id: "answers-title", class: answer.present ? "" : "absent" }, answer.present ? null : icon("search"), title),
      answer.present ? null : h("p", { class: "soft small" }, t("answers.absent_hint")),
      h("ol", { id: "answers", class: "stack" }, ...matches.map((match, rank) => h("li", {}, this.createMatch(match, rank)))), showAll);
  }

  /** @param {Match} match @param {number} rank */
  createMatch(match, rank) {
    const url = this.events.pictureUrl((match.start_s + match.end_s) / 2), frame = h("span", { class: "picture" }, url ? h("img", { src: url, alt: "" }) : null);
    const button = h("button", { type: "button", class: "answer", "aria-pressed": "false" }, frame,
      h("span", { class: "chapter-text" },
        h("strong", { class: "number" }, formatSpan(match)),
        sureMeter(match.probability),
        evidence(match)),
      rank === 0 ? h("span", { class: "badge accent" }, t("answers.best")) : null);
    button.onclick = () => {
      for (const other of this.root.querySelectorAll(".answer")) other.setAttribute("aria-pressed", String(other === button));
      this.events.onChoose(match);
    };
    const clip = this.events.clipOf(match);
    if (clip) playOnHover(button, frame, clip);
    return button;
  }

  /** @param {Question | undefined} question @param {string[]} suggestions */
  createSuggestions(question, suggestions) {
    const others = suggestions.filter(text => text !== question?.text).slice(0, 6);
    if (!others.length) return null;
    return h("div", { class: "suggestions stack" }, h("h3", { class: "soft small" }, t("answers.try")),
      h("div", { class: "bar" }, ...others.map(text => h("button", { type: "button", class: "chip", onclick: () => this.events.onAsk(text) }, icon("search"), h("span", { class: "ellipsis" }, text)))));
  }
}
