// Changes of a hierarchy of steps, each giving a new one: rename, split, merge, move a boundary. Levels stay nested.

const copy = steps => structuredClone(steps);
const round = time => Math.round(time * 1000) / 1000;

function find(steps, id) {
  for (let level = 0; level < steps.levels.length; level++) {
    const place = steps.levels[level].steps.findIndex(step => step.id === id);
    if (place >= 0) return { level, place, row: steps.levels[level].steps };
  }
  throw new Error("no such step");
}

const newId = (steps, level) => {
  const ids = new Set(steps.levels.flatMap(({ steps: row }) => row.map(step => step.id)));
  let number = 0;
  while (ids.has(`${level}.e${number}`)) number++;
  return `${level}.e${number}`;
};

export function rename(steps, id, label) {
  const out = copy(steps), { row, place } = find(out, id);
  row[place].label = label || null; row[place].score = null;
  return out;
}

// Cuts a step at a time, and what it holds on finer levels with it.
export function split(steps, id, time) {
  const out = copy(steps), { level } = find(out, id);
  time = round(time);
  cut(out, level, id, time);
  return out;
}

function cut(steps, level, id, time) {
  const { row, place } = find(steps, id), step = row[place];
  if (!(step.start_s + 0.2 < time && time < step.end_s - 0.2)) throw new Error("move to a moment inside the step first");
  const inside = steps.levels[level + 1]?.steps.filter(other => other.parent === id) ?? [];
  const crossed = inside.find(other => other.start_s + 0.2 < time && time < other.end_s - 0.2);
  const edge = crossed ? cut(steps, level + 1, crossed.id, time) : inside.length ? inside.reduce((best, other) => Math.abs(other.start_s - time) < Math.abs(best - time) ? other.start_s : best, inside[0].end_s) : time;
  const second = { ...step, id: newId(steps, level), start_s: edge, children: [] };
  step.end_s = edge;
  row.splice(place + 1, 0, second);
  link(steps);
  return edge;  // as fine a level has it: all levels are cut at the same moment
}

export function merge(steps, id) {
  const out = copy(steps), { level, row, place } = find(out, id), next = row[place + 1];
  if (!next) throw new Error("there is no step after it");
  if (next.parent !== row[place].parent) throw new Error("the next step belongs to another one above; merge those first");
  row[place].end_s = next.end_s;
  row.splice(place + 1, 1);
  for (const child of out.levels[level + 1]?.steps ?? []) if (child.parent === next.id) child.parent = id;
  link(out);
  return out;
}

// Moves the beginning of a step, on this level and wherever the same boundary is on others.
export function move(steps, id, by) {
  const out = copy(steps), { row, place } = find(out, id);
  if (place === 0) throw new Error("the first step begins with the video");
  const before = row[place].start_s, after = round(before + by);
  for (const { steps: level } of out.levels) {
    const at = level.findIndex(step => Math.abs(step.start_s - before) < 0.01);
    if (at <= 0) continue;
    if (!(level[at - 1].start_s + 0.2 < after && after < level[at].end_s - 0.2)) throw new Error("a step would vanish");
    level[at].start_s = level[at - 1].end_s = after;
  }
  link(out);
  return out;
}

// Says again which step holds which.
function link(steps) {
  for (const { steps: row } of steps.levels) for (const step of row) step.children = [];
  for (let level = 1; level < steps.levels.length; level++) {
    for (const step of steps.levels[level].steps) {
      const middle = (step.start_s + step.end_s) / 2;
      const holder = steps.levels[level - 1].steps.find(other => other.start_s <= middle && middle < other.end_s) ?? steps.levels[level - 1].steps.at(-1);
      step.parent = holder.id; holder.children.push(step.id);
    }
  }
}
