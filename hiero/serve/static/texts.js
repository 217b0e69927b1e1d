// @ts-check
// The texts of the page, which are in texts.json for translation. {name} is replaced by a value; a text that depends on
// the number {n} has the forms that Intl.PluralRules names, "one" and "other" in English.
import TEXTS from "./texts.json" with { type: "json" };

const plural = new Intl.PluralRules("en");

/** A text of the page. @param {keyof typeof TEXTS} key @param {Record<string, string | number>} [values] */
export function t(key, values = {}) {
  /** @type {string | { one: string, other: string }} */
  const text = TEXTS[key];
  const form = plural.select(Number(values.n)) === "one" ? "one" : "other";
  const template = typeof text === "string" ? text : text[form];
  return template.replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ""));
}
