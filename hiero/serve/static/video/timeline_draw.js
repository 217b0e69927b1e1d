// @ts-check
// Draws the timeline and the map of the whole video.
import { formatTime, threadColour } from "../format.js";
import { fitText } from "./scale.js";

const FONT = "12px system-ui, sans-serif", RADIUS = 3, DIMMED = 0.18;
const MIN_TEXT_PX = 26;  // narrower steps show no name
const PLAIN_PX = 9;  // narrower steps have no round corners, marks or names: there may be hundreds
const WIDE_SHARE = 0.5;  // an answer over more of the video is only outlined
/** @type {Map<string, number>} */
const textWidths = new Map();

const COLOURS = /** @type {const} */ (["ink", "soft", "line-strong", "sunken", "surface", "answer", "cursor", "accent"]);

/** The colours of the page, which a canvas cannot inherit. @param {Element} element */
export function readColours(element) {
  const probe = document.createElement("i");
  element.append(probe);
  const colours = COLOURS.map(name => { probe.style.color = `var(--${name})`; return [name, getComputedStyle(probe).color]; });
  probe.remove();
  return /** @type {Record<typeof COLOURS[number], string>} */ (Object.fromEntries(colours));
}

export function drawTimeline(/** @type {Timeline} */ timeline) {
  const { canvas, scale, colours } = timeline, context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  context.clearRect(0, 0, scale.width, timeline.height);
  context.font = FONT;
  context.textBaseline = "middle";
  for (const row of timeline.rows) {
    if (row.kind === "ruler") drawRuler(context, timeline, row);
    else {
      context.fillStyle = colours.sunken;
      box(context, 0, row.y, scale.width, row.height, 4);
      context.fill();
      if (row.kind === "level") drawLevel(context, timeline, row);
      else if (row.kind === "question") drawQuestion(context, timeline, row);
      else drawExtra(context, timeline, row);
    }
  }
  drawFiles(context, timeline);
  drawCursor(context, timeline);
}

/** @param {CanvasRenderingContext2D} context @param {number} x @param {number} y @param {number} width @param {number} height @param {number} radius */
function box(context, x, y, width, height, radius) {
  context.beginPath();
  context.roundRect(x, y, Math.max(0.5, width), height, Math.max(0, Math.min(radius, width / 3)));
}

/** @param {CanvasRenderingContext2D} context @param {Timeline} timeline @param {Row} row */
function drawRuler(context, { scale, colours }, row) {
  context.fillStyle = colours.soft;
  for (const time of scale.ticks()) {
    const x = scale.x(time);
    context.fillRect(x, row.y + row.height - 5, 1, 5);
    const text = formatTime(time), width = measure(context, text);
    context.fillText(text, Math.min(scale.width - width, Math.max(0, x - width / 2)), row.y + 8);
  }
}

/** @param {CanvasRenderingContext2D} context @param {Timeline} timeline @param {Row} row */
function drawLevel(context, timeline, row) {
  const { scale, hierarchy, entries, filter, drag } = timeline, { steps } = hierarchy.levels[row.level ?? 0];
  const moved = (/** @type {number} */ time) => drag && Math.abs(time - drag.before) < 0.01 ? drag.time : time;
  let painted = -Infinity;  // steps that end on a painted pixel are too narrow to see
  for (const step of steps) {
    if (step.end_s < scale.from) continue;
    if (step.start_s > scale.to) break;
    const left = scale.x(moved(step.start_s)), right = scale.x(moved(step.end_s));
    if (right - painted < 0.5) continue;
    painted = right;
    const entry = /** @type {StepEntry} */ (entries.get(step.id));
    const isDim = filter !== null && !filter(entry);
    context.globalAlpha = isDim ? DIMMED : 1;
    drawStep(context, timeline, row, { entry, left, width: Math.max(1, right - left - (right - left > 4 ? 1 : 0)) });
    context.globalAlpha = 1;
  }
}

/** @param {CanvasRenderingContext2D} context @param {Timeline} timeline @param {Row} row @param {{ entry: StepEntry, left: number, width: number }} place */
function drawStep(context, timeline, { y, height }, { entry, left, width }) {
  const { colours } = timeline, { step } = entry, isSelected = step.id === timeline.selectedId;
  context.fillStyle = step.background ? colours["line-strong"] : threadColour(entry.activity);
  if (width < PLAIN_PX) { context.fillRect(left, y, width, height); if (!isSelected) return; }
  box(context, left, y, width, height, RADIUS);
  context.fill();
  if (entry === timeline.pointed) { context.fillStyle = "#ffffff22"; context.fill(); }
  if (isSelected) {
    context.lineWidth = 2;
    context.strokeStyle = colours.ink;
    box(context, left + 1, y + 1, width - 2, height - 2, RADIUS);
    context.stroke();
    context.strokeStyle = "#fff";
    box(context, left + 3, y + 3, width - 6, height - 6, RADIUS - 1);
    if (width > 10) context.stroke();
  }
  if (step.origin === "person" && width > 8) {  // a person's mark: a corner
    context.fillStyle = "#fff";
    context.beginPath();
    context.moveTo(left + width - 8, y);
    context.lineTo(left + width, y);
    context.lineTo(left + width, y + 8);
    context.fill();
  }
  drawText(context, entry.title, Math.max(left, 0) + 7, left + width - 6, y + height / 2 + 0.5, "#fff");
}

/** @param {CanvasRenderingContext2D} context @param {string} text @param {number} left @param {number} right @param {number} y @param {string} colour */
function drawText(context, text, left, right, y, colour) {
  if (right - left < MIN_TEXT_PX - 12) return;
  const fitted = fitText(text, right - left, measure(context, text));
  if (!fitted) return;
  context.fillStyle = colour;
  context.fillText(fitted, left, y);
}

/** @param {CanvasRenderingContext2D} context @param {string} text */
function measure(context, text) {
  let width = textWidths.get(text);
  if (width === undefined) {
    width = context.measureText(text).width;
    if (textWidths.size > 5000) textWidths.clear();
    textWidths.set(text, width);
  }
  return width;
}

/** @param {CanvasRenderingContext2D} context @param {Timeline} timeline @param {Row} row */
function drawQuestion(context, { scale, colours }, { y, height, question }) {
  for (const match of [...(question?.matches ?? [])].sort((a, b) => a.probability - b.probability)) {  // the best lies on top
    const left = scale.x(match.start_s), width = Math.max(3, scale.x(match.end_s) - left);
    const tall = Math.max(3, (height - 4) * match.probability);  // less likely answers are paler and lower
    context.globalAlpha = matchOpacity(match.probability);
    box(context, left + 0.5, y + height - 2 - tall, width - 1, tall, 3);
    if (match.end_s - match.start_s > WIDE_SHARE * scale.duration) {
      context.strokeStyle = colours.answer;
      context.lineWidth = 1.5;
      context.stroke();
    } else {
      context.fillStyle = colours.answer;
      context.fill();
    }
    context.globalAlpha = 1;
  }
}

export const matchOpacity = (/** @type {number} */ probability) => 0.12 + 0.88 * Math.min(1, Math.max(0, probability));

/** @param {CanvasRenderingContext2D} context @param {Timeline} timeline @param {Row} row */
function drawExtra(context, { scale, colours }, { y, height, extra }) {
  for (const step of extra?.steps ?? []) {
    if (step.end_s < scale.from || step.start_s > scale.to) continue;
    const left = scale.x(step.start_s), width = Math.max(2, scale.x(step.end_s) - left - 1), isSpeech = extra?.kind === "speech";
    context.fillStyle = isSpeech ? colours.surface : threadColour(step.thread ?? 0);
    box(context, left, y, width, height, RADIUS);
    context.fill();
    drawText(context, step.text, Math.max(left, 0) + 5, left + width - 4, y + height / 2 + 0.5, isSpeech ? colours.ink : "#fff");
  }
}

/** Where one file ends and the next begins. @param {CanvasRenderingContext2D} context @param {Timeline} timeline */
function drawFiles(context, { scale, colours, files, height }) {
  context.strokeStyle = colours.ink;
  context.lineWidth = 1;
  context.setLineDash([3, 3]);
  for (const { start_s } of files.slice(1)) {
    const x = Math.round(scale.x(start_s)) + 0.5;
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, height);
    context.stroke();
  }
  context.setLineDash([]);
}

/** @param {CanvasRenderingContext2D} context @param {Timeline} timeline */
function drawCursor(context, { scale, colours, time, height, drag }) {
  const x = scale.x(drag ? drag.time : time);
  if (x < -8 || x > scale.width + 8) return;
  context.fillStyle = drag ? colours.accent : colours.cursor;
  context.fillRect(x - 0.75, 6, 1.5, height);
  context.beginPath();
  context.arc(Math.min(scale.width - 5, Math.max(5, x)), 17, 5, 0, 2 * Math.PI);
  context.fill();
}

/** The whole video in small, with a frame around the part that is shown. @param {Timeline} timeline */
export function drawMap({ map, mapFrame, mapCursor, mapKey, scale, hierarchy, entries, questions, filter, colours, time }) {
  const share = (/** @type {number} */ seconds) => seconds / scale.duration, key = [hierarchy, questions, filter, colours, map.width];
  mapFrame.style.cssText = `left:${100 * share(scale.from)}%;width:${100 * share(scale.shown)}%`;
  mapCursor.style.left = `${100 * share(time)}%`;
  if (key.every((value, i) => value === mapKey[i])) return;  // only the frame and the cursor have moved
  mapKey.splice(0, Infinity, ...key);
  const context = /** @type {CanvasRenderingContext2D} */ (map.getContext("2d"));
  context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  context.clearRect(0, 0, scale.width, map.height);
  for (const step of hierarchy.levels.at(-1)?.steps ?? []) {
    const entry = /** @type {StepEntry} */ (entries.get(step.id));
    context.globalAlpha = filter && !filter(entry) ? DIMMED : 0.8;
    context.fillStyle = threadColour(entry.activity);
    context.fillRect(scale.width * share(step.start_s), 6, Math.max(0.5, scale.width * share(step.end_s - step.start_s)), 8);
  }
  context.fillStyle = colours.answer;
  for (const match of questions.flatMap(({ matches }) => matches)) {
    context.globalAlpha = matchOpacity(match.probability);
    context.fillRect(scale.width * share((match.start_s + match.end_s) / 2) - 1, 3, 2, 14);
  }
}
