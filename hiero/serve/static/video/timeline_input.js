// @ts-check
// Mouse, touch and keys on the timeline, and the keys of the video view that work wherever the focus is.

const CLICK_PX = 4;  // a pointer that moves less has clicked
const ZOOM_STEP = 1.6;
const WHEEL_SPEED = 0.0035;
const MOVE_S = 1;  // seconds by which keys move a boundary

export function listenToTimeline(/** @type {Timeline} */ timeline) {
  const { canvas, track, events } = timeline;
  /** @type {Map<number, number>} x of each finger or of the mouse that is down */
  const pointers = new Map();
  /** @type {{ kind: "move" | "scrub" | "pan" | "click" | "pinch", x: number, id?: string, distance?: number } | null} */
  let gesture = null;

  const place = (/** @type {MouseEvent} */ event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const distance = () => { const [a, b] = [...pointers.values()]; return Math.max(10, Math.abs(a - b)); };

  canvas.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
    if (event.button > 0) return;
    const { x, y } = place(event), isTouch = event.pointerType === "touch";
    pointers.set(event.pointerId, x);
    canvas.setPointerCapture(event.pointerId);
    if (pointers.size === 2) { gesture = { kind: "pinch", x, distance: distance() }; return; }
    const { row, time, boundary } = timeline.hit(x, y, isTouch);
    // A finger moves a boundary of the selected step only: it may just want to pan.
    const isSelected = boundary && (boundary.step.id === timeline.selectedId || previousId(timeline, boundary) === timeline.selectedId);
    if (boundary && events.canEdit() && (!isTouch || isSelected)) {
      gesture = { kind: "move", x, id: boundary.step.id };
      timeline.drag = { id: boundary.step.id, before: boundary.step.start_s, time: boundary.step.start_s };
    } else if (row?.kind === "ruler") {
      gesture = { kind: "scrub", x };
      events.onSeek(time);
    } else gesture = { kind: "click", x };
  });

  canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
    const { x, y } = place(event);
    if (!gesture) { point(timeline, x, y); return; }
    const before = pointers.get(event.pointerId) ?? x;
    pointers.set(event.pointerId, x);
    if (gesture.kind === "pinch") {
      if (pointers.size < 2) return;
      const now = distance(), [a, b] = [...pointers.values()];
      timeline.zoom(now / (gesture.distance ?? now), (a + b) / 2);
      gesture.distance = now;
      return;
    }
    if (gesture.kind === "click" && Math.abs(x - gesture.x) > CLICK_PX) gesture.kind = "pan";
    if (gesture.kind === "pan" && timeline.scale.pan(before - x)) { events.onPoint(null); timeline.draw(); }
    if (gesture.kind === "scrub") events.onSeek(timeline.scale.time(x));
    if (gesture.kind === "move" && timeline.drag && gesture.id) {
      const { low, high } = events.limits(gesture.id);
      timeline.drag.time = Math.min(high, Math.max(low, timeline.scale.time(x)));
      events.onPoint({ time: timeline.drag.time, title: "", x, box: canvas.getBoundingClientRect() });
      timeline.draw();
    }
  });

  const end = (/** @type {PointerEvent} */ event) => {
    const { x, y } = place(event), done = gesture, drag = timeline.drag;
    pointers.delete(event.pointerId);
    if (pointers.size) return;
    gesture = null;
    timeline.drag = null;
    timeline.draw();
    if (event.type === "pointercancel") return;
    if (done?.kind === "move" && drag) {
      events.onPoint(null);
      if (Math.abs(drag.time - drag.before) > 0.01) events.onMoveStart(drag.id, drag.time);
    }
    if (done?.kind === "click") click(timeline, x, y);
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  canvas.addEventListener("pointerleave", () => { if (!gesture) { timeline.pointed = null; events.onPoint(null); timeline.draw(); } });
  canvas.addEventListener("dblclick", (/** @type {MouseEvent} */ event) => {
    const { x, y } = place(event), { entry } = timeline.hit(x, y);
    if (entry && events.canEdit()) events.onRename(entry.step.id, timeline.boxOf(entry));
  });
  canvas.addEventListener("wheel", (/** @type {WheelEvent} */ event) => {
    const isPan = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    if (!isPan && !event.ctrlKey && !event.metaKey) return;  // the page scrolls
    event.preventDefault();
    if (isPan) { if (timeline.scale.pan(event.deltaX || event.deltaY)) timeline.draw(); } else timeline.zoom(Math.exp(-event.deltaY * WHEEL_SPEED), place(event).x);
  }, { passive: false });
  track.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => onTimelineKey(timeline, event));
}

/** @param {Timeline} timeline @param {StepEntry} entry */
const previousId = (timeline, entry) => timeline.hierarchy.levels[entry.level].steps[entry.index - 1]?.id ?? null;

/** @param {Timeline} timeline @param {number} x @param {number} y */
function point(timeline, x, y) {
  const { row, time, entry, boundary } = timeline.hit(x, y), { canvas, events } = timeline;
  canvas.style.cursor = boundary && events.canEdit() ? "ew-resize" : entry || row ? "pointer" : "default";
  const extra = row?.extra?.steps.find(step => step.start_s <= time && time < step.end_s);
  if (entry !== timeline.pointed) { timeline.pointed = entry ?? null; timeline.draw(); }
  const title = entry?.title ?? extra?.text ?? "";
  events.onPoint(row ? { time, title, x, box: canvas.getBoundingClientRect() } : null);
}

/** @param {Timeline} timeline @param {number} x @param {number} y */
function click(timeline, x, y) {
  const { row, time, entry } = timeline.hit(x, y), { events } = timeline;
  timeline.track.focus({ preventScroll: true });
  if (entry) { timeline.select(entry.step.id); events.onSelect(entry); events.onSeek(entry.step.start_s); return; }
  const spans = row?.extra?.steps ?? row?.question?.matches ?? [];
  const span = spans.find((/** @type {Span} */ s) => s.start_s <= time && time < s.end_s);
  events.onSeek(span ? span.start_s : time);
}

/** Arrows choose a step, with Shift they move its start; + and - zoom, 0 shows all. @param {Timeline} timeline @param {KeyboardEvent} event */
export function onTimelineKey(timeline, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { hierarchy, entries, events } = timeline, finest = hierarchy.levels.length - 1;
  const entry = timeline.selected ?? timeline.entryAt(finest, timeline.time);
  if (!entry) return;
  const { step, level, index } = entry, steps = hierarchy.levels[level].steps;
  if (event.shiftKey && (event.key === "ArrowLeft" || event.key === "ArrowRight")) {
    event.preventDefault();
    if (timeline.selected && events.canEdit()) events.onMoveStart(step.id, step.start_s + (event.key === "ArrowLeft" ? -MOVE_S : MOVE_S));
    return;
  }
  /** @type {Record<string, () => string | null | undefined>} */
  const moves = {
    ArrowRight: () => timeline.selected ? steps[index + 1]?.id : step.id,
    ArrowLeft: () => timeline.selected ? steps[index - 1]?.id : step.id,
    ArrowUp: () => step.parent, ArrowDown: () => step.children[0],
    Home: () => steps[0].id, End: () => steps[steps.length - 1].id,
  };
  /** @type {Record<string, () => void>} */
  const views = { "+": () => timeline.zoom(ZOOM_STEP), "=": () => timeline.zoom(ZOOM_STEP), "-": () => timeline.zoom(1 / ZOOM_STEP), 0: () => timeline.fit() };
  if (event.key in moves) {
    event.preventDefault();
    const next = entries.get(moves[event.key]() ?? "");
    if (next) { timeline.select(next.step.id); events.onSelect(next); events.onSeek(next.step.start_s); }
  } else if (event.key in views) { event.preventDefault(); views[event.key](); }
}

/** Dragging on the map of the whole video moves the part that is shown. @param {Timeline} timeline */
export function listenToMap(timeline) {
  const { map } = timeline;
  const centre = (/** @type {PointerEvent} */ event) => {
    const { scale } = timeline, box = map.getBoundingClientRect(), time = (event.clientX - box.left) / box.width * scale.duration;
    if (scale.isFitted) timeline.events.onSeek(Math.min(scale.duration, Math.max(0, time)));
    else if (scale.show(time - scale.shown / 2, time + scale.shown / 2)) timeline.draw();
  };
  map.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => { map.setPointerCapture(event.pointerId); centre(event); });
  map.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => { if (map.hasPointerCapture(event.pointerId)) centre(event); });
}

/** @param {{ isActive: () => boolean, canEdit: () => boolean, toggle: () => void, onArrow: (event: KeyboardEvent) => void, commands: Commands }} view */
export function listenToKeys({ isActive, canEdit, toggle, onArrow, commands }) {
  /** @type {Record<string, () => void>} */
  const edits = { F2: commands.rename, s: commands.split, m: commands.merge };
  document.addEventListener("keydown", event => {
    const target = /** @type {Element} */ (event.target);
    if (!isActive() || event.altKey || event.defaultPrevented || target.closest("input, select, textarea")) return;
    if (event.ctrlKey || event.metaKey) {
      if (event.key.toLowerCase() !== "z" || !canEdit()) return;
      event.preventDefault();
      if (event.shiftKey) commands.redo(); else commands.undo();
    } else if (event.key in edits) {
      event.preventDefault();
      edits[event.key]();
    } else if (event.key === " " && !target.closest("button, a, video, summary")) {
      event.preventDefault();
      toggle();
    } else if (event.key.startsWith("Arrow") && target === document.body) onArrow(event);
  });
}
