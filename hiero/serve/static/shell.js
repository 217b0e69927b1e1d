// @ts-check
// Messages that belong to no view: errors and short notices.
import { $, h } from "./dom.js";

const TOAST_MS = 5000;

/** @type {() => void} */
let askToSignIn = () => {};

/** @param {() => void} callback called when the server wants a token */
export function onSignInNeeded(callback) { askToSignIn = callback; }

/** @param {any} error */
export function showError(error) {
  if (error.status === 401) { askToSignIn(); return; }
  $("error-text").textContent = error.message;
  $("error").hidden = false;
}

export function hideError() { $("error").hidden = true; }

/**
 * Runs a function and shows its error on the page.
 * @template T
 * @param {() => T | Promise<T>} work
 * @returns {Promise<T | undefined>}
 */
export async function withErrors(work) {
  hideError();
  try { return await work(); } catch (error) { showError(error); return undefined; }
}

/**
 * Shows a short notice at the bottom. It is read aloud and goes away by itself.
 * @param {string} text
 * @param {{ label: string, onclick: () => void }} [action]
 */
export function toast(text, action) {
  const notice = h("div", { class: "toast" }, h("span", {}, text));
  if (action) {
    const button = h("button", { type: "button", class: "button quiet" }, action.label);
    button.onclick = () => { notice.remove(); action.onclick(); };
    notice.append(button);
  }
  $("toasts").replaceChildren(notice);
  setTimeout(() => notice.remove(), TOAST_MS);
}
