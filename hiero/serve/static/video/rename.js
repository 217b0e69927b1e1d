// @ts-check
// Renaming in place: a field over the name, with the names already in use as suggestions.
import { h } from "../dom.js";
import { t } from "../texts.js";

const MIN_WIDTH = 200;

/**
 * Opens the field. Enter or leaving it saves, Escape does not.
 * @param {{ box: DOMRect, label: string, names: string[], onDone: (label: string) => void }} options
 */
export function renameInPlace({ box, label, names, onDone }) {
  document.querySelector(".rename")?.remove();
  const before = /** @type {HTMLElement | null} */ (document.activeElement);
  const input = h("input", { class: "field", value: label, maxLength: 200, "aria-label": t("edit.new_name"), placeholder: t("edit.new_name"), list: "used-names", autocomplete: "off" });
  const field = h("div", { class: "rename" }, input, h("datalist", { id: "used-names" }, ...names.map(name => h("option", { value: name }))));
  const width = Math.max(MIN_WIDTH, box.width), left = Math.max(8, Math.min(box.left, innerWidth - width - 8));
  field.style.cssText = `left:${left + scrollX}px;top:${box.top + scrollY + box.height / 2 - 17}px;width:${width}px`;
  let isOpen = true;
  const close = (/** @type {boolean} */ save) => {
    if (!isOpen) return;
    isOpen = false;
    const text = input.value.trim();
    field.remove();
    if (before?.isConnected) before.focus({ preventScroll: true });
    if (save && text !== label) onDone(text);
  };
  input.onkeydown = (/** @type {KeyboardEvent} */ event) => {
    event.stopPropagation();
    if (event.key === "Enter") { event.preventDefault(); close(true); }
    if (event.key === "Escape") close(false);
  };
  input.onblur = () => close(true);
  document.body.append(field);
  input.focus({ preventScroll: true });
  input.select();
}
