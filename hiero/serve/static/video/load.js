// @ts-check
// The steps of a video, and the other rows of its timeline.
import { fetchJson, getJson } from "../api.js";
import { store } from "../store.js";
import { t } from "../texts.js";
import { mergeSpeech } from "./steps.js";

/** @typedef {import("./types.js").Hierarchy} Hierarchy @typedef {import("./types.js").ExtraRow} ExtraRow */

/**
 * The edited steps with their version, or else the steps that were found, with the version null.
 * @param {string} id
 * @returns {Promise<{ hierarchy: Hierarchy, version: string | null, extraRows: ExtraRow[] }>}
 */
export async function fetchSteps(id) {
  const { edited, truth } = await getJson(`videos/${id}`), models = (store.server?.models ?? []).slice(1);
  const { body: hierarchy, version } = await fetchJson(`videos/${id}/${edited ? "edits" : "steps"}`);
  const [speech, annotated, ...others] = await Promise.all([
    getJson(`videos/${id}/transcript`), truth ? getJson(`videos/${id}/truth`) : [],
    ...models.map(model => getJson(`videos/${id}/steps?model=${encodeURIComponent(model)}`)),
  ]);
  /** @type {ExtraRow[]} */
  const extraRows = [];
  if (speech.length) extraRows.push({ name: t("row.speech"), kind: "speech", steps: mergeSpeech(speech, hierarchy.duration_s) });
  if (annotated.length) extraRows.push({ name: t("row.annotated"), kind: "truth", steps: annotated.map((/** @type {any} */ step, /** @type {number} */ thread) => ({ ...step, thread })) });
  others.forEach((other, i) => extraRows.push({ name: models[i], kind: "model", steps: finestOf(other) }));
  return { hierarchy, version: edited ? version : null, extraRows };
}

/** @param {Hierarchy} hierarchy */
const finestOf = ({ levels }) => levels[levels.length - 1].steps.map((step, index) => ({ ...step, text: step.label ?? t("step.unnamed", { number: index + 1 }) }));
