// Changes of a hierarchy of steps, each giving a new one: rename, split, merge, move a boundary. Levels stay nested.

const MIN_STEP_S = 0.2;  // no edit makes a shorter step
const SAME_BOUNDARY_S = 0.01;

const roundTime = time => Math.round(time * 1000) / 1000;

// Whether a moment lies inside a step, far enough from both of its ends.
const isInside = (time, step) => step.start_s + MIN_STEP_S < time && time < step.end_s - MIN_STEP_S;

function find(hierarchy, id) {
  for (let level = 0; level < hierarchy.levels.length; level++) {
    const steps = hierarchy.levels[level].steps, index = steps.findIndex(step => step.id === id);
    if (index >= 0) return { level, index, steps };
  }
  throw new Error("no such step");
}

const newId = (hierarchy, level) => {
  const ids = new Set(hierarchy.levels.flatMap(({ steps }) => steps.map(step => step.id)));
  let number = 0;
  while (ids.has(`${level}.e${number}`)) number++;
  return `${level}.e${number}`;
};

export function rename(hierarchy, id, label) {
  const edited = structuredClone(hierarchy), { steps, index } = find(edited, id);
  steps[index].label = label || null; steps[index].score = null;
  return edited;
}

// Cuts a step at a time, and with it the step of each finer level that the cut goes through.
export function split(hierarchy, id, time) {
  const edited = structuredClone(hierarchy), { level } = find(edited, id);
  splitInPlace(edited, level, id, roundTime(time));
  return edited;
}

// Returns where it was cut.
function splitInPlace(hierarchy, level, id, time) {
  const { steps, index } = find(hierarchy, id), step = steps[index];
  if (!isInside(time, step)) throw new Error("move to a moment inside the step first");
  const boundary = childBoundary(hierarchy, level, id, time);
  const second = { ...step, id: newId(hierarchy, level), start_s: boundary, children: [] };
  step.end_s = boundary;
  steps.splice(index + 1, 0, second);
  relink(hierarchy);
  return boundary;
}

// Where a step can be cut so that its children stay whole or are cut with it: all levels are cut at the same moment.
function childBoundary(hierarchy, level, id, time) {
  const children = hierarchy.levels[level + 1]?.steps.filter(child => child.parent === id) ?? [];
  const crossed = children.find(child => isInside(time, child));
  if (crossed) return splitInPlace(hierarchy, level + 1, crossed.id, time);
  if (!children.length) return time;
  // Too near to a boundary of the children to cut one: the nearest of these boundaries.
  return children.reduce((best, child) => Math.abs(child.start_s - time) < Math.abs(best - time) ? child.start_s : best, children[0].end_s);
}

// Joins a step with the next one of its level.
export function merge(hierarchy, id) {
  const edited = structuredClone(hierarchy), { level, steps, index } = find(edited, id), next = steps[index + 1];
  if (!next) throw new Error("there is no step after it");
  if (next.parent !== steps[index].parent) throw new Error("the next step belongs to another one above; merge those first");
  steps[index].end_s = next.end_s;
  steps.splice(index + 1, 1);
  for (const child of edited.levels[level + 1]?.steps ?? []) if (child.parent === next.id) child.parent = id;
  relink(edited);
  return edited;
}

// Moves the beginning of a step by seconds, on this level and wherever the same boundary is on others.
export function moveStart(hierarchy, id, seconds) {
  const edited = structuredClone(hierarchy), { steps, index } = find(edited, id);
  if (index === 0) throw new Error("the first step begins with the video");
  const before = steps[index].start_s, after = roundTime(before + seconds);
  for (const { steps: level } of edited.levels) {
    const i = level.findIndex(step => Math.abs(step.start_s - before) < SAME_BOUNDARY_S);
    if (i <= 0) continue;
    if (!(level[i - 1].start_s + MIN_STEP_S < after && after < level[i].end_s - MIN_STEP_S)) throw new Error("a step would vanish");
    level[i].start_s = level[i - 1].end_s = after;
  }
  relink(edited);
  return edited;
}

// Sets parents and children anew, from times.
function relink(hierarchy) {
  for (const { steps } of hierarchy.levels) for (const step of steps) step.children = [];
  for (let level = 1; level < hierarchy.levels.length; level++) {
    const parents = hierarchy.levels[level - 1].steps;
    for (const step of hierarchy.levels[level].steps) {
      const middle = (step.start_s + step.end_s) / 2;
      const parent = parents.find(candidate => candidate.start_s <= middle && middle < candidate.end_s) ?? parents.at(-1);
      step.parent = parent.id; parent.children.push(step.id);
    }
  }
}
