// @ts-check
// Elements. Data only ever becomes text or an attribute, never markup.

/** The element with an id. @param {string} id @returns {any} */
export const $ = id => document.getElementById(id);

// Creates an element. Properties: `class`, `style` (text), `dataset` (an object), `onclick` and other listeners,
// attributes with a dash and `role`, or any property of the element. Children that are null or false are left out.
/** @param {string} tag @param {Record<string, any>} [properties] @param {...Child} children @returns {any} */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (key === "class") element.className = value;
    else if (key === "style") element.style.cssText = value;
    else if (key === "dataset") Object.assign(element.dataset, value);
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key.includes("-") || key === "role" || key === "for" || key === "list") element.setAttribute(key, value);
    else /** @type {any} */ (element)[key] = value;
  }
  element.append(...shown(children));
  return element;
}

/** Replaces the children of an element. @param {Element} element @param {...Child} children */
export const fill = (element, ...children) => element.replaceChildren(...shown(children));

/** @param {Child[]} children @returns {any[]} */
const shown = children => children.filter(child => child !== null && child !== undefined && child !== false);

const SVG = "http://www.w3.org/2000/svg";
// Outlines on a grid of 24 × 24.
const ICONS = {
  play: "M7 5l12 7-12 7z",
  pause: "M8 5v14M16 5v14",
  pencil: "M4 20l1-4L16 5l3 3L8 19zM14 7l3 3",
  split: "M12 3v18M5 8l-3 4 3 4M19 8l3 4-3 4M2 12h6M22 12h-6",
  merge: "M4 4v16M20 4v16M4 12h5M20 12h-5M7 9l3 3-3 3M17 9l-3 3 3 3",
  undo: "M8 5L4 9l4 4M4 9h10a5 5 0 010 10h-3",
  redo: "M16 5l4 4-4 4M20 9H10a5 5 0 000 10h3",
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  fit: "M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5",
  close: "M6 6l12 12M18 6L6 18",
  search: "M11 4a7 7 0 100 14 7 7 0 000-14zM16 16l5 5",
  link: "M10 14a4 4 0 006 0l3-3a4 4 0 00-6-6l-1 1M14 10a4 4 0 00-6 0l-3 3a4 4 0 006 6l1-1",
  download: "M12 4v11M7 11l5 5 5-5M4 20h16",
  upload: "M12 16V5M7 9l5-5 5 5M4 20h16",
  chevron: "M9 6l6 6-6 6",
  down: "M6 9l6 6 6-6",
  theme: "M12 3a9 9 0 100 18zM12 3a9 9 0 010 18",
  check: "M5 13l4 4L19 7",
  folder: "M3 6h6l2 3h10v10H3z",
  film: "M3 5h18v14H3zM8 5v14M16 5v14M3 12h18",
  person: "M12 4a4 4 0 100 8 4 4 0 000-8zM4 21a8 8 0 0116 0",
};

/** An icon that says nothing to screen readers: name the button that holds it. @param {keyof typeof ICONS} name */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg"), path = document.createElementNS(SVG, "path");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  svg.classList.add("icon");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}
