// @ts-check
// The keys of the video view that work wherever the focus is.

/**
 * @param {{ isActive: () => boolean, canEdit: () => boolean, toggle: () => void, onArrow: (event: KeyboardEvent) => void,
 *   commands: { rename: () => void, split: () => void, merge: () => void, undo: () => void, redo: () => void } }} view
 */
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
