// @ts-check
// Edits of a hierarchy of steps: rename, split, merge and move a boundary. Each returns a new hierarchy with nested
// levels. The server marks what a person changed when it saves them.
import { t } from "../texts.js";
import { haveSameSpan } from "./steps.js";

/** @typedef {import("./types.js").Hierarchy} Hierarchy @typedef {import("./types.js").Step} Step */

const MIN_STEP_S = 0.2;  // shortest step
const SAME_BOUNDARY_S = 0.01;

const roundTime = (/** @type {number} */ time) => Math.round(time * 1000) / 1000;

// Whether a moment is inside a step, far enough from both ends.
const isInside = (/** @type {number} */ time, /** @type {Step} */ step) => step.start_s + MIN_STEP_S < time && time < step.end_s - MIN_STEP_S;

/** @param {Hierarchy} hierarchy @param {string} id */
function find(hierarchy, id) {
  for (let level = 0; level < hierarchy.levels.length; level++) {
    const steps = hierarchy.levels[level].steps, index = steps.findIndex(step => step.id === id);
    if (index >= 0) return { level, index, steps };
  }
  throw new Error(t("edit.missing"));
}

/** @param {Hierarchy} hierarchy @param {number} level */
function newId(hierarchy, level) {
  const ids = new Set(hierarchy.levels.flatMap(({ steps }) => steps.map(step => step.id)));
  let number = 0;
  while (ids.has(`${level}.e${number}`)) number++;
  return `${level}.e${number}`;
}

/**
 * Names a step, and the steps of other levels with the same span: they are the same step.
 * @param {Hierarchy} hierarchy @param {string} id @param {string} label
 */
export function rename(hierarchy, id, label) {
  const edited = structuredClone(hierarchy), { steps, index } = find(edited, id), renamed = steps[index];
  for (const { steps: level } of edited.levels) {
    for (const step of level) {
      if (!haveSameSpan(step, renamed)) continue;
      Object.assign(step, { label: label || null, probability: null, score: null, origin: "person" });
    }
  }
  return edited;
}

/**
 * Splits a step at a time, together with the steps of finer levels at that time.
 * @param {Hierarchy} hierarchy @param {string} id @param {number} time
 */
export function split(hierarchy, id, time) {
  const edited = structuredClone(hierarchy), { level } = find(edited, id);
  splitInPlace(edited, level, id, roundTime(time));
  return edited;
}

/**
 * Returns the time of the split.
 * @param {Hierarchy} hierarchy @param {number} level @param {string} id @param {number} time
 * @returns {number}
 */
function splitInPlace(hierarchy, level, id, time) {
  const { steps, index } = find(hierarchy, id), step = steps[index];
  if (!isInside(time, step)) throw new Error(t("edit.not_inside"));
  const boundary = childBoundary(hierarchy, level, id, time);
  const second = { ...step, id: newId(hierarchy, level), start_s: boundary, children: [] };
  step.end_s = boundary;
  steps.splice(index + 1, 0, second);
  relink(hierarchy);
  return boundary;
}

/**
 * The time at which a step can be split so that all levels are split at the same time.
 * @param {Hierarchy} hierarchy @param {number} level @param {string} id @param {number} time
 * @returns {number}
 */
function childBoundary(hierarchy, level, id, time) {
  const children = hierarchy.levels[level + 1]?.steps.filter(child => child.parent === id) ?? [];
  const crossed = children.find(child => isInside(time, child));
  if (crossed) return splitInPlace(hierarchy, level + 1, crossed.id, time);
  if (!children.length) return time;
  // Too close to a boundary between children to split one: use the nearest boundary.
  return children.reduce((best, child) => Math.abs(child.start_s - time) < Math.abs(best - time) ? child.start_s : best, children[0].end_s);
}

/**
 * Merges a step with the next one of its level.
 * @param {Hierarchy} hierarchy @param {string} id
 */
export function merge(hierarchy, id) {
  const edited = structuredClone(hierarchy), { level, steps, index } = find(edited, id), next = steps[index + 1];
  if (!next) throw new Error(t("edit.last"));
  if (next.parent !== steps[index].parent) throw new Error(t("edit.other_parent"));
  steps[index].end_s = next.end_s;
  steps.splice(index + 1, 1);
  for (const child of edited.levels[level + 1]?.steps ?? []) if (child.parent === next.id) child.parent = id;
  relink(edited);
  return edited;
}

/**
 * Moves the start of a step to a time, on all levels that have this boundary.
 * @param {Hierarchy} hierarchy @param {string} id @param {number} time
 */
export function moveStart(hierarchy, id, time) {
  const edited = structuredClone(hierarchy), { steps, index } = find(edited, id);
  if (index === 0) throw new Error(t("edit.first"));
  const before = steps[index].start_s, after = roundTime(time);
  for (const { steps: level } of edited.levels) {
    const i = level.findIndex(step => Math.abs(step.start_s - before) < SAME_BOUNDARY_S);
    if (i <= 0) continue;
    if (!(level[i - 1].start_s + MIN_STEP_S < after && after < level[i].end_s - MIN_STEP_S)) throw new Error(t("edit.too_short"));
    level[i].start_s = level[i - 1].end_s = after;
  }
  relink(edited);
  return edited;
}

/**
 * Moves the start of a step by some seconds.
 * @param {Hierarchy} hierarchy @param {string} id @param {number} seconds
 */
export function shiftStart(hierarchy, id, seconds) {
  const { steps, index } = find(hierarchy, id);
  return moveStart(hierarchy, id, steps[index].start_s + seconds);
}

/**
 * How far the start of a step can be moved: between the neighbours of its boundary on every level that has it.
 * @param {Hierarchy} hierarchy @param {string} id
 */
export function startLimits(hierarchy, id) {
  const { steps, index } = find(hierarchy, id), { start_s } = steps[index];
  let low = 0, high = hierarchy.duration_s;
  for (const { steps: level } of hierarchy.levels) {
    const i = level.findIndex(step => Math.abs(step.start_s - start_s) < SAME_BOUNDARY_S);
    if (i <= 0) continue;
    low = Math.max(low, level[i - 1].start_s + MIN_STEP_S + 0.001);
    high = Math.min(high, level[i].end_s - MIN_STEP_S - 0.001);
  }
  return { low, high };
}

/**
 * Recomputes parents and children from times.
 * @param {Hierarchy} hierarchy
 */
function relink(hierarchy) {
  for (const { steps } of hierarchy.levels) for (const step of steps) step.children = [];
  for (let level = 1; level < hierarchy.levels.length; level++) {
    const parents = hierarchy.levels[level - 1].steps;
    for (const step of hierarchy.levels[level].steps) {
      const middle = (step.start_s + step.end_s) / 2;
      const parent = parents.find(candidate => candidate.start_s <= middle && middle < candidate.end_s) ?? parents[parents.length - 1];
      step.parent = parent.id;
      parent.children.push(step.id);
    }
  }
}
