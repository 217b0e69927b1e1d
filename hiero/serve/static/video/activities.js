// @ts-check
// Filters over the chapters: an activity that is done more than once, and what people changed.
import { fill, h, icon } from "../dom.js";
import { activityLetter, formatTime, threadColour } from "../format.js";
import { t } from "../texts.js";

export class Activities {
  /** @type {number | "person" | null} */ chosen = null;
  /** @type {Repeated[]} */ activities = [];
  numChanged = 0;

  /** @param {HTMLElement} root @param {{ onFilter: (activity: Repeated | "person" | null) => void, onPlay: (activity: Repeated) => void }} events */
  constructor(root, events) {
    this.root = root;
    this.events = events;
  }

  /** @param {Repeated[]} activities @param {number} numChanged steps that a person changed */
  show(activities, numChanged) {
    Object.assign(this, { activities, numChanged });
    const isGone = this.chosen === "person" ? !numChanged : !activities.some(({ activity }) => activity === this.chosen);
    if (this.chosen !== null && isGone) this.choose(null); else this.render();
  }

  choose(/** @type {number | "person" | null} */ chosen) {
    this.chosen = chosen;
    this.render();
    this.events.onFilter(chosen === "person" ? "person" : this.activities.find(({ activity }) => activity === chosen) ?? null);
  }

  render() {
    const { chosen } = this, playing = this.activities.find(({ activity }) => activity === chosen);
    this.root.hidden = !this.activities.length && !this.numChanged;
    fill(this.root,
      ...this.activities.map(({ activity, steps, seconds, name }) => this.chip(activity, `--dot:${threadColour(activity)}`,
        h("span", { class: "ellipsis" }, name ?? t("activity.unnamed", { letter: activityLetter(activity) })), h("span", { class: "soft number" }, t("activity.times", { n: steps.length, time: formatTime(seconds) })))),
      this.numChanged ? this.chip("person", "", icon("pencil"), t("activity.changed", { n: this.numChanged })) : null,
      playing ? h("button", { type: "button", class: "button play-all", onclick: () => this.events.onPlay(playing) }, icon("play"), t("activity.play", { n: playing.steps.length })) : null);
  }

  /** @param {number | "person"} value @param {string} style @param {...(Node | string)} children */
  chip(value, style, ...children) {
    const isChosen = this.chosen === value;
    return h("button", { type: "button", class: "chip", "aria-pressed": String(isChosen), style, title: value === "person" ? "" : t("activity.same"), onclick: () => this.choose(isChosen ? null : value) },
      style ? h("i", { class: "dot" }) : null, ...children);
  }
}
