// @ts-check
// The chapter list: every step with a picture, its name and its time, nested by level. Data goes in, events come out.
import { fill, h, icon } from "../dom.js";
import { formatSpan, threadColour } from "../format.js";
import { t } from "../texts.js";
import { chapterTree } from "./steps.js";

const MAX_OPEN = 80;  // with more steps only the groups that are played are open

export class Chapters {
  /** @type {Map<string, { row: HTMLElement, item: HTMLElement, details: HTMLDetailsElement | null, parent: string | null, chapter: Chapter }>} */ rows = new Map();
  /** @type {string | null} */ currentId = null;
  /** @type {string | null} */ selectedId = null;

  /** @param {HTMLElement} root @param {ChapterEvents} events */
  constructor(root, events) {
    this.root = root;
    this.events = events;
    this.root.addEventListener("keydown", event => this.onKey(event));
  }

  clear() { this.rows.clear(); this.currentId = this.selectedId = null; this.root.replaceChildren(); }

  /** @param {Hierarchy} hierarchy @param {Entries} entries */
  show(hierarchy, entries) {
    const top = this.root.scrollTop, shut = new Set([...this.rows].filter(([, { details }]) => details && !details.open).map(([id]) => id));
    const isNew = this.rows.size === 0, isLong = (hierarchy.levels.at(-1)?.steps.length ?? 0) > MAX_OPEN;
    this.rows.clear();
    const build = (/** @type {Chapter} */ chapter, /** @type {string | null} */ parent, /** @type {number} */ depth) => {
      const { id } = chapter.entry.step, isOpen = isNew ? !isLong : !shut.has(id);
      const row = this.createRow(chapter, depth);
      const children = chapter.children.map(child => build(child, id, depth + 1));
      const details = children.length ? h("details", { open: isOpen }, h("summary", { class: "chapter-toggle", "aria-label": t("chapters.toggle", { title: chapter.title }) }, icon("chevron")), h("ol", {}, ...children)) : null;
      const item = h("li", { class: "chapter-item", dataset: { depth } }, row, details);
      this.rows.set(id, { row, item, details, parent, chapter });
      return item;
    };
    fill(this.root, ...chapterTree(hierarchy, entries).map(chapter => build(chapter, null, 0)));
    this.root.scrollTop = top;
    this.select(this.selectedId);
    const { currentId } = this;
    this.currentId = null;
    if (currentId) this.showCurrent(currentId, false);
  }

  /** @param {Chapter} chapter @param {number} depth */
  createRow(chapter, depth) {
    const { entry, title, children } = chapter, { step } = entry, picture = this.events.pictureUrl(entry), isGroup = children.length > 0;
    const image = picture ? h("img", { src: picture, alt: "", loading: "lazy", onerror: (/** @type {Event} */ event) => /** @type {Element} */ (event.target).remove() }) : null;
    const colour = step.background ? "var(--line-strong)" : threadColour(entry.activity);
    return h("button", {
      type: "button", class: `chapter ${isGroup ? "group" : "leaf"}`, style: `--dot:${colour};--depth:${depth}`, dataset: { id: step.id },
      onclick: () => this.events.onChoose(entry),
      ondblclick: () => this.rename(step.id),
    },
    h("span", { class: "picture" }, image),
    h("span", { class: "chapter-text" },
      h("span", { class: "chapter-title" }, h("span", { class: "name two-lines" }, title), step.origin === "person" ? h("span", { class: "edited", title: t("chapters.by_person") }, icon("pencil"), h("span", { class: "hidden" }, t("chapters.by_person"))) : null),
      h("span", { class: "soft small number" }, isGroup ? `${formatSpan(step)} · ${t("count.steps", { n: countLeaves(chapter) })}` : formatSpan(step))));
  }

  /** The row of a step, or of the row that stands for it. @param {string | null} id */
  find(id) {
    if (id === null) return undefined;
    return this.rows.get(id) ?? [...this.rows.values()].find(({ chapter }) => chapter.chain.includes(id));
  }

  select(/** @type {string | null} */ id) {
    this.find(this.selectedId)?.row.classList.remove("selected");
    this.selectedId = id;
    const found = this.find(id);
    found?.row.classList.add("selected");
    return found;
  }

  /** Marks the step that is played, and the groups that it is in, and scrolls to it. @param {string} id @param {boolean} scroll */
  showCurrent(id, scroll = true) {
    if (id === this.currentId) return;
    for (const marked of this.root.querySelectorAll("[aria-current], .within")) { marked.removeAttribute("aria-current"); marked.classList.remove("within"); }
    this.currentId = id;
    const found = this.find(id);
    if (!found) return;
    found.row.setAttribute("aria-current", "true");
    for (let parent = found.parent; parent !== null; parent = this.rows.get(parent)?.parent ?? null) {
      const group = this.rows.get(parent);
      group?.row.classList.add("within");
      if (group?.details && !group.details.open && scroll) group.details.open = true;
    }
    if (scroll) this.scrollTo(found.row);
  }

  /** Scrolls the list only, never the page. @param {HTMLElement} row */
  scrollTo(row) {
    const list = this.root.getBoundingClientRect(), box = row.getBoundingClientRect();
    if (box.top >= list.top + 8 && box.bottom <= list.bottom - 8) return;
    const behavior = matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth";
    this.root.scrollTo({ top: this.root.scrollTop + box.top - list.top - list.height / 3, behavior });
  }

  /** @param {((entry: StepEntry) => boolean) | null} filter groups stay if they hold a step that stays */
  setFilter(filter) {
    for (const { item, details, chapter } of this.rows.values()) {
      const keeps = (/** @type {Chapter} */ { entry, children }) => !filter || (children.length ? children.some(keeps) || filter(entry) : filter(entry));
      item.hidden = !keeps(chapter);
      if (filter && details && !item.hidden) details.open = true;
    }
  }

  rename(/** @type {string} */ id) {
    const name = this.find(id)?.row.querySelector(".chapter-title");
    if (name && this.events.canEdit()) this.events.onRename(id, name.getBoundingClientRect());
  }

  /** Arrows move between rows, F2 renames. @param {KeyboardEvent} event */
  onKey(event) {
    const row = /** @type {HTMLElement} */ (event.target).closest(".chapter");
    if (!row) return;
    const visible = /** @type {HTMLElement[]} */ ([...this.root.querySelectorAll(".chapter")].filter(other => /** @type {HTMLElement} */ (other).offsetParent));
    const next = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (next) { event.preventDefault(); event.stopPropagation(); visible[visible.indexOf(/** @type {HTMLElement} */ (row)) + next]?.focus(); }
    if (event.key === "F2") { event.preventDefault(); event.stopPropagation(); this.rename(/** @type {HTMLElement} */ (row).dataset.id ?? ""); }
  }
}

/** @param {Chapter} chapter @returns {number} */
const countLeaves = ({ children }) => children.length ? children.reduce((sum, child) => sum + countLeaves(child), 0) : 1;
