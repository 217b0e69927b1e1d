// @ts-check
// "I have a recipe": its lines go out, the steps of the video in their order come back.
import { sendJson } from "../api.js";
import { h } from "../dom.js";
import { withErrors } from "../shell.js";
import { t } from "../texts.js";

/** A dialog for the lines of a recipe. @param {{ id: () => string, onSteps: (hierarchy: Hierarchy) => void }} events */
export function createRecipeDialog({ id, onSteps }) {
  const lines = h("textarea", { id: "recipe-lines", rows: 10, required: true, placeholder: t("recipe.example") });
  const optional = h("input", { id: "recipe-optional", type: "checkbox" });
  const submit = h("button", { type: "submit", class: "button primary" }, t("recipe.find"));
  const dialog = h("dialog", { id: "recipe-dialog", "aria-labelledby": "recipe-title" }, h("form", { class: "stack", onsubmit: send },
    h("h2", { id: "recipe-title" }, t("recipe.title")),
    h("label", { class: "small", for: "recipe-lines" }, t("recipe.hint")), lines,
    h("label", { class: "check" }, optional, h("span", {}, t("recipe.optional"))),
    h("div", { class: "bar" }, h("span", { class: "grow" }),
      h("button", { type: "button", class: "button", onclick: () => dialog.close() }, t("recipe.cancel")), submit)));

  async function send(/** @type {Event} */ event) {
    event.preventDefault();
    submit.disabled = true;
    await withErrors(async () => {
      const texts = lines.value.split("\n").map((/** @type {string} */ line) => line.trim()).filter(Boolean);
      onSteps(await sendJson("POST", `videos/${id()}/recipe`, { lines: texts, is_optional: optional.checked }));
      dialog.close();
    });
    submit.disabled = false;
  }
  return dialog;
}
