// @ts-check
// Questions about a hierarchy of steps. Nothing here touches the page or the server.
import { t } from "../texts.js";

/** @typedef {import("./types.js").Hierarchy} Hierarchy @typedef {import("./types.js").Step} Step @typedef {import("./types.js").StepEntry} StepEntry */

const SAME_TIME_S = 0.01;

/**
 * Whether two steps begin and end together, as a step and its only child do.
 * @param {{ start_s: number, end_s: number }} a
 * @param {{ start_s: number, end_s: number }} b
 */
export const haveSameSpan = (a, b) => Math.abs(a.start_s - b.start_s) < SAME_TIME_S && Math.abs(a.end_s - b.end_s) < SAME_TIME_S;

/**
 * Every step with its place, its title and its activity (the thread, which means the same on every level), by its id.
 * @param {Hierarchy} hierarchy
 * @returns {Map<string, StepEntry>}
 */
export function indexSteps(hierarchy) {
  const entries = new Map();
  hierarchy.levels.forEach(({ steps }, level) => steps.forEach((step, index) => {
    entries.set(step.id, { step, level, index, title: titleOf(hierarchy, level, index), activity: step.thread });
  }));
  return entries;
}

/**
 * The name of a step, or its number: "Step 3" on the finest level, "Part 2" or "Part 2.1" above it.
 * @param {Hierarchy} hierarchy @param {number} level @param {number} index
 */
export function titleOf(hierarchy, level, index) {
  const { label } = hierarchy.levels[level].steps[index];
  if (label) return label;
  const isFinest = level === hierarchy.levels.length - 1;
  return isFinest ? t("step.unnamed", { number: index + 1 }) : t("step.part", { number: partNumber(hierarchy, level, index) });
}

/** @param {Hierarchy} hierarchy @param {number} level @param {number} index @returns {string} */
function partNumber(hierarchy, level, index) {
  if (level === 0) return String(index + 1);
  const { id, parent } = hierarchy.levels[level].steps[index], parents = hierarchy.levels[level - 1].steps;
  const above = Math.max(0, parents.findIndex(step => step.id === parent));
  return `${partNumber(hierarchy, level - 1, above)}.${Math.max(0, parents[above].children.indexOf(id)) + 1}`;
}

/**
 * The step of a level at a time.
 * @param {Step[]} steps @param {number} time
 */
export function stepAt(steps, time) {
  let low = 0, high = steps.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (steps[middle].start_s <= time + 1e-6) low = middle; else high = middle - 1;
  }
  return steps[low];
}

/**
 * Activities of the finest level that are done more than once, longest first.
 * @param {Hierarchy} hierarchy @param {Map<string, StepEntry>} entries
 */
export function repeatedActivities(hierarchy, entries) {
  /** @type {Map<number, { activity: number, steps: Step[], seconds: number, name: string | null }>} */
  const activities = new Map();
  for (const step of hierarchy.levels.at(-1)?.steps ?? []) {
    const activity = entries.get(step.id)?.activity ?? 0;
    const entry = activities.get(activity) ?? { activity, steps: [], seconds: 0, name: null };
    entry.steps.push(step);
    entry.seconds += step.end_s - step.start_s;
    entry.name ??= step.label;
    activities.set(activity, entry);
  }
  return [...activities.values()].filter(({ steps }) => steps.length > 1).sort((a, b) => b.seconds - a.seconds);
}

/**
 * Names in use: those that people gave first, then the most frequent ones.
 * @param {Hierarchy} hierarchy
 * @returns {string[]}
 */
export function usedNames(hierarchy) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const { label, origin } of hierarchy.levels.flatMap(({ steps }) => steps)) {
    if (label) counts.set(label, (counts.get(label) ?? 0) + (origin === "model" ? 1 : 1000));
  }
  return [...counts].sort((a, b) => b[1] - a[1]).map(([name]) => name);
}

/**
 * The steps as a tree for a list of chapters. A step whose only child has the same span is shown once, as the finest
 * of them, with the first name among them.
 * @typedef {{ entry: StepEntry, title: string, chain: string[], children: Chapter[] }} Chapter
 * @param {Hierarchy} hierarchy @param {Map<string, StepEntry>} entries
 * @returns {Chapter[]}
 */
export function chapterTree(hierarchy, entries) {
  const build = (/** @type {Step} */ step) => {
    const chain = [step];
    for (let [child] = step.children; chain[chain.length - 1].children.length === 1; [child] = chain[chain.length - 1].children) {
      const entry = entries.get(child);
      if (!entry) break;
      chain.push(entry.step);
    }
    const last = chain[chain.length - 1], entry = /** @type {StepEntry} */ (entries.get(last.id));
    const title = chain.findLast(({ label }) => label)?.label ?? entry.title;
    /** @type {Chapter[]} */
    const children = last.children.flatMap(id => { const child = entries.get(id); return child ? [build(child.step)] : []; });
    return { entry, title, chain: chain.map(({ id }) => id), children };
  };
  return (hierarchy.levels[0]?.steps ?? []).map(build);
}

/**
 * Speech for a row of the timeline: neighbours that are too narrow to point at are joined.
 * @param {import("./types.js").Utterance[]} utterances @param {number} duration @param {number} [maxNumber]
 */
export function mergeSpeech(utterances, duration, maxNumber = 200) {
  /** @type {import("./types.js").Utterance[]} */
  const merged = [];
  for (const utterance of utterances) {
    const last = merged.at(-1);
    if (last && utterance.end_s - last.start_s < duration / maxNumber) {
      last.end_s = Math.max(last.end_s, utterance.end_s);
      last.text += ` ${utterance.text}`;
    } else merged.push({ ...utterance });
  }
  return merged;
}
