// @ts-check
// Questions about a hierarchy of steps. Nothing here touches the page or the server.
import { nameProbability, stepName } from "../format.js";
import { t } from "../texts.js";

const SAME_TIME_S = 0.01;

/** Whether two steps begin and end together, as a step and its only child do. @param {Span} a @param {Span} b */
export const haveSameSpan = (a, b) => Math.abs(a.start_s - b.start_s) < SAME_TIME_S && Math.abs(a.end_s - b.end_s) < SAME_TIME_S;

// Every step with its place and its title: its name, those of the first and the last step in it ("tap … egg"), or a number,
// as `Hierarchy.shown_titles` in hiero/types.py.
/** @param {Hierarchy} hierarchy @returns {Entries} */
export function indexSteps({ levels }) {
  const entries = new Map();
  /** @type {Map<string, Step[]>} the finest named steps in each */
  const inside = new Map();
  for (let level = levels.length - 1; level >= 0; level--) {
    for (const [index, step] of levels[level].steps.entries()) {
      const named = step.children.flatMap(id => inside.get(id) ?? []), own = stepName(step);
      inside.set(step.id, named.length ? named : own ? [step] : []);
      const title = own || (named.length ? groupTitle(named[0], named[named.length - 1]) : t(step.children.length ? "step.part" : "step.unnamed", { number: index + 1 }));
      entries.set(step.id, { step, level, index, title, activity: step.thread });
    }
  }
  return entries;
}

/** @param {Step} first @param {Step} last */
function groupTitle(first, last) {
  const names = [first, last].map(step => step.label || (step.words ?? [])[0].text);
  return [...new Set(names)].join(" … ") + (Math.min(nameProbability(first), nameProbability(last)) < 0.8 ? "?" : "");
}

/** The step of a level at a time. @param {Step[]} steps @param {number} time */
export const stepAt = (steps, time) => steps.findLast(({ start_s }) => start_s <= time + 1e-6) ?? steps[0];

/** Activities of the finest level that are done more than once, longest first. @param {Hierarchy} hierarchy @returns {Repeated[]} */
export function repeatedActivities(hierarchy) {
  const groups = Map.groupBy(hierarchy.levels.at(-1)?.steps ?? [], step => step.thread), repeated = [...groups].filter(([, steps]) => steps.length > 1);
  return repeated.map(([activity, steps]) => ({
    activity, steps, seconds: steps.reduce((sum, step) => sum + step.end_s - step.start_s, 0), name: steps.map(stepName).find(name => name) ?? null,
  })).sort((a, b) => b.seconds - a.seconds);
}

/** Names in use: those that people gave first, then the most frequent ones. @param {Hierarchy} hierarchy @returns {string[]} */
export function usedNames(hierarchy) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const { label, origin } of hierarchy.levels.flatMap(({ steps }) => steps)) {
    if (label) counts.set(label, (counts.get(label) ?? 0) + (origin === "model" ? 1 : 1000));
  }
  return [...counts].sort((a, b) => b[1] - a[1]).map(([name]) => name);
}

// The steps as a tree for a list of chapters. A step whose only child has the same span is shown once, as the finest of
// them, with the first name among them.
/** @param {Hierarchy} hierarchy @param {Entries} entries */
export function chapterTree(hierarchy, entries) {
  const childrenOf = (/** @type {Step} */ step) => step.children.flatMap(id => entries.get(id)?.step ?? []);
  /** @param {Step} step @returns {Chapter} */
  const build = step => {
    const chain = [step];
    for (let children = childrenOf(step); children.length === 1; children = childrenOf(children[0])) chain.push(children[0]);
    const last = chain[chain.length - 1], entry = /** @type {StepEntry} */ (entries.get(last.id));
    const title = chain.map(stepName).findLast(name => name) ?? entry.title;
    return { entry, title, chain: chain.map(({ id }) => id), children: childrenOf(last).map(build) };
  };
  return (hierarchy.levels[0]?.steps ?? []).map(build);
}

// Speech for a row of the timeline: neighbours that are too narrow to point at are joined.
/** @param {Utterance[]} utterances @param {number} duration @param {number} [maxNumber] */
export function mergeSpeech(utterances, duration, maxNumber = 200) {
  /** @type {Utterance[]} */
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
