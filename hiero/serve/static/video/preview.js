// @ts-check
// Plays a moment, without sound, over its picture while the pointer or the focus is on it.

const DELAY_MS = 200;

/**
 * @param {HTMLElement} target what is pointed at
 * @param {HTMLElement} frame the element with the picture, which the moment plays over
 * @param {{ src: string, start_s: number, end_s: number }} moment times in the file at `src`
 */
export function playOnHover(target, frame, { src, start_s, end_s }) {
  let timer = 0;
  /** @type {HTMLVideoElement | null} */
  let video = null;
  const stop = () => {
    clearTimeout(timer);
    video?.removeAttribute("src");  // stops the download
    video?.remove();
    video = null;
  };
  const play = () => {
    video = document.createElement("video");
    Object.assign(video, { muted: true, playsInline: true, src: `${src}#t=${start_s.toFixed(2)},${end_s.toFixed(2)}` });
    video.setAttribute("aria-hidden", "true");
    video.tabIndex = -1;
    video.addEventListener("pause", () => { if (video && video.currentTime >= end_s - 0.3) { video.currentTime = start_s; video.play().catch(() => {}); } });
    video.addEventListener("error", stop);
    frame.append(video);
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) video.play().catch(() => {});
  };
  const start = () => { stop(); timer = setTimeout(play, DELAY_MS); };
  target.addEventListener("pointerenter", start);
  target.addEventListener("pointerleave", stop);
  target.addEventListener("focus", start);
  target.addEventListener("blur", stop);
}
