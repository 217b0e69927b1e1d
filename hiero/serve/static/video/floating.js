// @ts-check
// What floats over the timeline: the field to rename a step, and the picture of the moment beside the pointer.
import { $, fill, h } from "../dom.js";
import { formatTime } from "../format.js";
import { t } from "../texts.js";

const MIN_WIDTH = 200;

// Opens the field. Enter or leaving it saves, Escape does not.
/** @param {{ box: DOMRect, label: string, names: string[], onDone: (label: string) => void }} options */
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

const MARGIN = 10;
/** @type {HTMLImageElement | null} the picture that is loading: the next one waits for it */
let loading = null;
/** @type {string | null} */
let wanted = null;

/** @param {{ time: number, title: string, x: number, box: DOMRect }} point @param {string | null} picture */
export function showTip({ time, title, x, box }, picture) {
  const tip = $("tip");
  if (!tip.firstChild) fill(tip, h("div", { class: "picture" }, h("img", { alt: "" })), h("strong", { class: "ellipsis" }), h("span", { class: "soft number" }));
  const [frame, name, when] = tip.children;
  frame.hidden = picture === null;
  if (picture) load(frame.firstChild, picture);
  name.textContent = title;
  when.textContent = formatTime(time);
  tip.hidden = false;
  const left = Math.min(innerWidth - tip.offsetWidth - MARGIN, Math.max(MARGIN, box.left + x - tip.offsetWidth / 2));
  tip.style.left = `${left + scrollX}px`;
  tip.style.top = `${box.top + scrollY - tip.offsetHeight - MARGIN}px`;
}

export function hideTip() { $("tip").hidden = true; }

/** @param {HTMLImageElement} image @param {string} address */
function load(image, address) {
  wanted = address;
  if (loading || image.src.endsWith(address)) return;
  loading = image;
  const next = () => { loading = null; if (wanted && wanted !== address) load(image, wanted); };
  image.onload = image.onerror = next;
  image.src = address;
}
