// @ts-check
// The picture of a moment beside the pointer.
import { $, fill, h } from "../dom.js";
import { formatTime } from "../format.js";

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
