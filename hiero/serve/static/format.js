// @ts-check
// Times, numbers and colours as people read them.
import { t } from "./texts.js";

/** m:ss, or h:mm:ss for an hour or more. @param {number} seconds */
export function formatTime(seconds) {
  const s = Math.round(seconds), m = Math.floor(s / 60);
  const minutes = m < 60 ? `${m}` : `${Math.floor(m / 60)}:${String(m % 60).padStart(2, "0")}`;
  return `${minutes}:${String(s % 60).padStart(2, "0")}`;
}

export const formatSpan = (/** @type {Span} */ { start_s, end_s }) => `${formatTime(start_s)} – ${formatTime(end_s)}`;

/** A time as people say it: "about 3 min left". @param {number | null} seconds */
export function formatLeft(seconds) {
  if (seconds === null) return "";
  if (seconds < 60) return t("left.seconds");
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? t("left.minutes", { n: minutes }) : t("left.hours", { n: Math.round(minutes / 6) / 10 });
}

/** Where a job waits, and for how long. @param {number | null} position @param {number | null} seconds */
export const waitingText = (position, seconds) => [position ? t("job.place", { n: position }) : t("job.waiting"), formatLeft(seconds)].filter(Boolean).join(" · ");

/** The letters of an activity, so that it cannot be taken for the number of a step: A … Z, AA … @param {number} activity @returns {string} */
export const activityLetter = activity => (activity < 26 ? "" : activityLetter(Math.floor(activity / 26) - 1)) + String.fromCharCode(65 + activity % 26);

export const percent = (/** @type {number} */ probability) => probability < 0.01 ? "< 1 %" : `${Math.round(100 * probability)} %`;

/** A probability in words. @param {number} probability */
export function certainty(probability) {
  if (probability >= 0.8) return t("sure.very");
  return t(probability >= 0.5 ? "sure.likely" : probability >= 0.25 ? "sure.maybe" : "sure.unlikely");
}

// The name of a step as people read it, as `Step.shown_label` in hiero/types.py: a guess has a question mark.
/** @param {Named} step */
export function stepName({ label, probability, words = [] }) {
  const name = label || words.slice(0, 2).map(({ text }) => text).join(", ");
  return name && nameProbability({ label, probability, words }) < 0.8 ? `${name}?` : name || null;
}
/** How probable the name of a step is, or its best word: 1 for a name that a person gave. @param {Named} step */
export const nameProbability = ({ label, probability, words = [] }) => label ? probability ?? 1 : words[0]?.probability ?? 0;
/** The name of a step, or its number in its level, which counts from 1. @param {Named} step @param {number | string} number */
export const stepTitle = (step, number) => stepName(step) || t("step.unnamed", { number });

/** A step and when it is, also in which file if there are several. @param {StepEntry} entry @param {VideoFile[]} files */
export function describeStep({ title, step }, files) {
  const file = files.findLast(({ start_s }) => start_s <= step.start_s + 1e-6);
  const place = files.length > 1 && file ? ` · ${t("now.file", { file: file.name, time: formatTime(step.start_s - file.start_s) })}` : "";
  return `${title} · ${formatSpan(step)}${place}`;
}

/** @param {number} level 0 is the coarsest @param {number} numLevels */
export function levelName(level, numLevels) {
  if (numLevels === 1) return t("level.only");
  if (level === 0) return t("level.coarse");
  if (level === numLevels - 1) return t("level.fine");
  return numLevels === 3 ? t("level.medium") : t("level.other", { number: level + 1, total: numLevels });
}

// Hues of the first threads, far apart and calm side by side; later ones are a golden angle apart.
const HUES = [258, 152, 42, 330, 205, 95, 295, 18, 180, 70];

// All colours have about the same lightness: white text on them has a contrast of at least 4.5, and they stand out from
// the light and from the dark background by at least 3.
export function threadColour(/** @type {number} */ thread) {
  const hue = HUES[thread] ?? (thread * 137.508 + 30) % 360;
  return `oklch(0.535 ${thread < HUES.length ? 0.13 : 0.1} ${hue})`;
}
