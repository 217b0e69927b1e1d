// @ts-check
// What belongs to no view: errors, short notices, signing in, and the user in the header.
import { sendJson } from "./api.js";
import { $, fill, h } from "./dom.js";
import { t } from "./texts.js";

const TOAST_MS = 5000;

/** @type {() => void} */
let askToSignIn = () => {};

/** @param {() => void} callback called when the server wants a token */
export function onSignInNeeded(callback) { askToSignIn = callback; }

export function showError(/** @type {any} */ error) {
  if (error.status === 401) { askToSignIn(); return; }
  $("error-text").textContent = error.message;
  $("error").hidden = false;
}

export function hideError() { $("error").hidden = true; }

/** Runs a function and shows its error on the page. @param {() => unknown} work */
export async function withErrors(work) {
  hideError();
  try { await work(); } catch (error) { showError(error); }
}

/** Shows a short notice at the bottom. It is read aloud and goes away by itself. @param {string} text */
export function toast(text) {
  const notice = h("div", { class: "toast" }, text);
  $("toasts").replaceChildren(notice);
  setTimeout(() => notice.remove(), TOAST_MS);
}

/** Shows the sign-in form, and calls back after a successful sign-in. @param {() => void} onSignedIn */
export function showSignIn(onSignedIn) {
  $("sign-in")?.remove();
  const token = h("input", { id: "token", class: "field", type: "password", maxLength: 200, autocomplete: "current-password", required: true });
  const status = h("p", { id: "sign-in-status", role: "alert" });
  const form = h("form", { class: "stack" },
    h("label", { for: "token" }, t("sign_in.token")), token,
    h("button", { type: "submit", class: "button primary" }, t("sign_in.title")), status,
    h("p", { class: "soft small" }, `${t("sign_in.hint")} `, h("kbd", {}, "hiero serve token add NAME --root FOLDER")));
  const section = h("section", { id: "sign-in", class: "narrow stack" }, h("h1", {}, t("sign_in.title")), form);
  form.onsubmit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      await sendJson("POST", "sign-in", { token: token.value.trim() });
      section.remove();
      onSignedIn();
    } catch (error) {
      status.textContent = /** @type {Error} */ (error).message;
      token.select();
    }
  };
  $("main").append(section);
  token.focus();
}

export function showUser(/** @type {User} */ me) {
  $("user").hidden = !me.sign_in;
  const signOut = h("button", { id: "sign-out", type: "button", class: "button quiet" }, t("app.sign_out"));
  signOut.onclick = async () => { await sendJson("POST", "sign-out"); location.reload(); };
  fill($("user"), h("span", { id: "user-name" }, `${me.name} (${me.role})`), signOut);
}
