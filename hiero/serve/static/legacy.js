// Helpers of the earlier page, until its last caller is rewritten.
// A number with its noun: "1 step", "2 steps".
export const formatCount = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

export function createCard(href, picture, title, details) {
  const link = createElement("a", { href });
  if (picture) { const image = createElement("img", { src: picture, alt: "", loading: "lazy" }); image.onerror = () => image.remove(); link.append(image); }
  link.append(createElement("div", {}, createElement("strong", { textContent: title }), createElement("br"), createElement("small", { textContent: details })));
  return createElement("li", {}, link);
}

export function createElement(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("aria-") || key === "role") element.setAttribute(key, value); else element[key] = value;
  }
  element.append(...children);
  return element;
}
