// @ts-check
// Edits of a hierarchy of steps: rename, split, merge and move a boundary. Each returns a new hierarchy with nested
// levels. The server marks what a person changed when it saves them.
import { t } from "../texts.js";
import { haveSameSpan } from "./steps.js";

const MIN_STEP_S = 0.2;  // shortest step that an edit leaves
const SAME_BOUNDARY_S = 0.01;

const roundTime = (/** @type {number} */ time) => Math.round(time * 1000) / 1000;

/** @param {Hierarchy} hierarchy @param {string} id */
function find(hierarchy, id) {
  for (const [level, { steps }] of hierarchy.levels.entries()) {
    const index = steps.findIndex(step => step.id === id);
    if (index >= 0) return { level, steps, index, step: steps[index] };
  }
  throw new Error(t("edit.missing"));
}

/** Names a step, and those of other levels with the same span. @param {Hierarchy} hierarchy @param {string} id @param {string} label */
export function rename(hierarchy, id, label) {
  const edited = structuredClone(hierarchy), { step: renamed } = find(edited, id);
  for (const step of edited.levels.flatMap(({ steps }) => steps)) {
    if (haveSameSpan(step, renamed)) Object.assign(step, { label: label || null, probability: null, origin: "person" });
  }
  return edited;
}

/** Splits a step, and the steps of finer levels at that time. @param {Hierarchy} hierarchy @param {string} id @param {number} time */
export function split(hierarchy, id, time) {
  const edited = structuredClone(hierarchy);
  splitInPlace(edited, id, roundTime(time));
  return edited;
}

/** Returns the time of the split. @param {Hierarchy} hierarchy @param {string} id @param {number} time @returns {number} */
function splitInPlace(hierarchy, id, time) {
  const { level, steps, index, step } = find(hierarchy, id);
  if (!isInside(time, step)) throw new Error(t("edit.not_inside"));
  const boundary = childBoundary(hierarchy, level, id, time);
  steps.splice(index + 1, 0, { ...step, id: newId(hierarchy, level), start_s: boundary, children: [] });
  step.end_s = boundary;
  relink(hierarchy);
  return boundary;
}

/** Whether a moment is inside a step, far enough from both ends. @param {number} time @param {Step} step */
const isInside = (time, step) => step.start_s + MIN_STEP_S <= time && time <= step.end_s - MIN_STEP_S;

// The time at which a step can be split so that all levels are split at the same time.
/** @param {Hierarchy} hierarchy @param {number} level @param {string} id @param {number} time */
function childBoundary(hierarchy, level, id, time) {
  const children = hierarchy.levels[level + 1]?.steps.filter(child => child.parent === id) ?? [];
  const crossed = children.find(child => isInside(time, child));
  if (crossed) return splitInPlace(hierarchy, crossed.id, time);
  if (!children.length) return time;
  // Too close to a boundary between children to split one: use the nearest boundary.
  return children.reduce((best, child) => Math.abs(child.start_s - time) < Math.abs(best - time) ? child.start_s : best, children[0].end_s);
}

/** @param {Hierarchy} hierarchy @param {number} level */
function newId(hierarchy, level) {
  const ids = new Set(hierarchy.levels.flatMap(({ steps }) => steps.map(step => step.id)));
  let number = 0;
  while (ids.has(`${level}.e${number}`)) number++;
  return `${level}.e${number}`;
}

/** Merges a step with the next one of its level. @param {Hierarchy} hierarchy @param {string} id */
export function merge(hierarchy, id) {
  const edited = structuredClone(hierarchy), { steps, index, step } = find(edited, id), next = steps[index + 1];
  if (!next) throw new Error(t("edit.last"));
  if (next.parent !== step.parent) throw new Error(t("edit.other_parent"));
  step.end_s = next.end_s;
  steps.splice(index + 1, 1);
  relink(edited);
  return edited;
}

/** Moves the start of a step, on all levels that have this boundary. @param {Hierarchy} hierarchy @param {string} id @param {number} time */
export function moveStart(hierarchy, id, time) {
  const edited = structuredClone(hierarchy), { index, step } = find(edited, id), { low, high } = startLimits(edited, id), moved = roundTime(time);
  if (index === 0) throw new Error(t("edit.first"));
  if (moved < low || moved > high) throw new Error(t("edit.too_short"));
  for (const [previous, next] of stepsAround(edited, step.start_s)) previous.end_s = next.start_s = moved;
  relink(edited);
  return edited;
}

/** Moves the start of a step by some seconds. @param {Hierarchy} hierarchy @param {string} id @param {number} seconds */
export const shiftStart = (hierarchy, id, seconds) => moveStart(hierarchy, id, find(hierarchy, id).step.start_s + seconds);

/** Between which times the start of a step can be moved. @param {Hierarchy} hierarchy @param {string} id */
export function startLimits(hierarchy, id) {
  const around = stepsAround(hierarchy, find(hierarchy, id).step.start_s);
  const low = Math.max(0, ...around.map(([previous]) => previous.start_s + MIN_STEP_S));
  const high = Math.min(hierarchy.duration_s, ...around.map(([, next]) => next.end_s - MIN_STEP_S));
  return { low: roundTime(low), high: roundTime(high) };
}

/** The steps before and after a boundary, on every level that has it. @param {Hierarchy} hierarchy @param {number} time */
function stepsAround(hierarchy, time) {
  return hierarchy.levels.flatMap(({ steps }) => {
    const i = steps.findIndex(step => Math.abs(step.start_s - time) < SAME_BOUNDARY_S);
    return i > 0 ? [[steps[i - 1], steps[i]]] : [];
  });
}

/** Recomputes parents and children from times. @param {Hierarchy} hierarchy */
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
