// @ts-check
// Every text of the page, for translation. {name} is replaced by a value; a text that depends on the number {n} has the
// forms that Intl.PluralRules names, "one" and "other" in English.

const TEXTS = {
  // Everywhere
  "app.name": "hiero",
  "app.skip": "Skip to main content",
  "app.theme": "Switch between dark and light",
  "app.sign_out": "Sign out",
  "app.close": "Close",
  "error.server": "Something went wrong on the server. Please try again.",
  "search.label": "Search",
  "search.placeholder": "Search, for example: cut the onion",
  "search.everywhere": "in all videos",
  "search.key": "Press / to search",
  "step.unnamed": "Step {number}",
  "level.only": "Steps",
  "level.coarse": "Coarse steps",
  "level.medium": "Medium steps",
  "level.fine": "Fine steps",
  "level.other": "Level {number} of {total}",
  "count.steps": { one: "{n} step", other: "{n} steps" },
  "count.videos": { one: "{n} video", other: "{n} videos" },
  "count.names": { one: "{n} name", other: "{n} names" },
  "count.files": { one: "{n} file", other: "{n} files" },
  "sure.very": "very likely",
  "sure.likely": "likely",
  "sure.maybe": "possible",
  "sure.unlikely": "unlikely",

  // Sign-in
  "sign_in.title": "Sign in",
  "sign_in.token": "Your token",
  "sign_in.button": "Sign in",
  "sign_in.hint": "No token? Ask your administrator to create one with",
};

/** @typedef {keyof typeof TEXTS} TextKey */

const plural = new Intl.PluralRules("en");

/**
 * A text of the page.
 * @param {TextKey} key
 * @param {Record<string, string | number>} [values]
 */
export function t(key, values = {}) {
  /** @type {string | { one: string, other: string }} */
  const text = TEXTS[key];
  const form = plural.select(Number(values.n)) === "one" ? "one" : "other";
  const template = typeof text === "string" ? text : text[form];
  return template.replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ""));
}
