// The page: what is shown follows from the address (#v=…&t=…&q=…), and every action changes the address.
import { $, clock, colour, element, get, pictureOf, send } from "./api.js";
import { Matrix } from "./matrix.js";
import { Timeline } from "./timeline.js";
import * as edit from "./edit.js";

const player = $("player");
const state = { server: null, videos: [], video: null, steps: null, history: [], shown: 0, playing: null, moment: 0, events: null, k: null, saving: Promise.resolve() };
const timeline = new Timeline($("timeline"), { onSeek: seek, onChoose: choose });
const matrix = new Matrix($("matrix"), seek);

const address = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
function go(changes, replace = false) {
  const wanted = { ...address(), ...changes };
  const hash = new URLSearchParams(Object.entries(wanted).filter(([, value]) => value !== null && value !== undefined && value !== "")).toString();
  if (replace) history.replaceState(null, "", `#${hash}`); else location.hash = hash;
}

async function guarded(work) {
  $("error").hidden = true;
  try { return await work(); } catch (error) { $("error").textContent = error.message; $("error").hidden = false; return undefined; }
}

// Views

async function route() {
  const { v, q, t, all } = address(), view = ++state.shown;
  await guarded(async () => {
    state.server ??= await get("server");
    state.videos = await get("videos");
    if (view !== state.shown) return;
    $("where-label").hidden = !state.server.corpus;
    $("query").value = q ?? "";
    $("everywhere").checked = Boolean(all) || !v;
    for (const id of ["list", "results", "one"]) $(id).hidden = true;
    if (v !== state.video?.id) { state.events?.close(); state.events = null; }
    if (!v || all) player.pause();
    if (q && (all || !v) && state.server.corpus) await showResults(q, view);
    else if (v) await showVideo(v, { q, t: Number(t) || 0 }, view);
    else if (state.videos.length === 1 && !state.server.corpus) go({ v: state.videos[0].id }, true), await route();
    else {
      showList();
      if (q) throw new Error("Open a video to search in it. To search in all of them, put them into a corpus: hiero index VIDEO… --to CORPUS");
    }
  });
}

function card(href, picture, title, small) {
  const link = element("a", { href });
  if (picture) { const image = element("img", { src: picture, alt: "", loading: "lazy" }); image.onerror = () => image.remove(); link.append(image); }
  link.append(element("div", {}, element("strong", { textContent: title }), element("br"), element("small", { textContent: small })));
  return element("li", {}, link);
}

function showList() {
  document.title = "hiero";
  $("list").hidden = false;
  $("upload").hidden = !state.server.uploads;
  state.video = null;
  $("videos").replaceChildren(...state.videos.map(video => card(
    `#v=${video.id}`, video.read && video.pictures ? pictureOf(video.id, 1) : null, video.name,
    [video.read ? "read" : "not read yet", video.edited ? "edited" : "", video.playable ? "" : "features only"].filter(Boolean).join(" · "))));
}

async function showResults(q, view) {
  const hits = await get(`search?q=${encodeURIComponent(q)}`);
  if (view !== state.shown) return;
  document.title = `${q} · hiero`;
  $("results").hidden = false;
  $("results-title").textContent = hits.length ? `“${q}” in all videos` : `nothing is near “${q}”`;
  $("hits").replaceChildren(...hits.map(hitCard(q)));
}

const hitCard = q => hit => card(
  hit.id ? `#${new URLSearchParams({ v: hit.id, t: hit.start_s.toFixed(1), ...(q ? { q } : {}) })}` : "#",
  hit.pictures ? pictureOf(hit.id, (hit.start_s + hit.end_s) / 2) : null, hit.label || `step ${hit.step}`,
  `${hit.video} · ${clock(hit.start_s)} – ${clock(hit.end_s)} · ${hit.score.toFixed(2)}`);

async function showVideo(id, { q, t }, view) {
  const video = await get(`videos/${id}`);
  if (view !== state.shown) return;
  $("one").hidden = false;
  document.title = `${video.name} · hiero`;
  const fresh = state.video?.id !== id;
  state.video = video;
  $("name").textContent = video.name;
  if (fresh) {
    player.hidden = !video.playable;
    $("still").hidden = video.playable;
    if (video.playable) { player.src = `api/videos/${id}/file`; player.load(); } else player.removeAttribute("src");
    state.steps = null; state.history = []; state.playing = null;
    timeline.hits = []; timeline.extras = []; timeline.chosen = null;
    $("timeline").replaceChildren(); $("threads").replaceChildren(); $("answers").replaceChildren(); $("same").replaceChildren();
    $("answers-title").hidden = $("same-title").hidden = true;
    matrix.picture = null; delete $("matrix").dataset.ready;
  }
  if (!video.read) { if (fresh) waiting(); return; }
  if (fresh || !state.steps) await loadSteps(view);
  if (view !== state.shown) return;
  if (t && (fresh || t !== state.moment)) seek(t, false);
  state.moment = t;
  if (q) await answer(q, view); else { timeline.mark([]); $("answers").replaceChildren(); $("answers-title").hidden = true; }
}

// Reading a video that was not read yet

function waiting() {
  $("reading").hidden = false;
  $("reading-text").textContent = "This video was not read yet.";
  $("progress").hidden = true; $("read").hidden = false; $("stop").hidden = true;
}

async function read() {
  await guarded(async () => {
    const job = await send("POST", `videos/${state.video.id}/read`);
    $("read").hidden = true; $("stop").hidden = false; $("progress").hidden = false;
    $("stop").onclick = () => guarded(() => send("DELETE", `jobs/${job.id}`));
    const id = state.video.id, events = new EventSource(`api/jobs/${job.id}/events`);
    state.events = events;
    events.onmessage = event => {
      if (state.video?.id !== id) { events.close(); return; }
      const { state: word, done_s, duration_s, message } = JSON.parse(event.data);
      $("progress").max = duration_s || 1;
      if (duration_s) $("progress").value = done_s; else $("progress").removeAttribute("value");
      $("reading-text").textContent = word === "running" ? `Reading: ${clock(done_s)}${duration_s ? ` of ${clock(duration_s)}` : ""}` : word;
      if (word === "done") { events.close(); $("reading").hidden = true; state.video = null; route(); }
      if (word === "failed" || word === "cancelled") { events.close(); waiting(); $("reading-text").textContent = message || "Stopped; what was read is kept."; }
    };
    events.onerror = () => { events.close(); if (state.video?.id === id) { waiting(); $("reading-text").textContent = "The connection was lost; reading may go on. Try again."; } };
  });
}

// Steps

async function loadSteps(view) {
  $("reading").hidden = true;
  const { id, edited, truth } = state.video;
  const steps = edited ? await get(`videos/${id}/edits`) : await get(`videos/${id}/steps`);
  const extras = [];
  if (truth) extras.push({ name: "Annotated", steps: (await get(`videos/${id}/truth`)).map((step, i) => ({ ...step, thread: i })) });
  for (const model of state.server.models.slice(1)) {
    const other = await get(`videos/${id}/steps?model=${encodeURIComponent(model)}`);
    extras.push({ name: model, steps: other.levels.at(-1).steps });
  }
  if (view !== state.shown) return;
  timeline.extras = extras;
  show(steps);
  const slider = $("k");
  slider.max = Math.max(2, Math.min(200, Math.floor(steps.duration_s / 2)));
  slider.value = $("k-now").value = steps.levels.at(-1).steps.length;
  $("revert").hidden = !edited;
  state.k = null;
  slideable(!edited);
  if (state.server.exports && $("export").length === 1) $("export").append(...state.server.exports.map(name => element("option", { value: name, textContent: name })));
  matrix.show(id, steps.duration_s, () => state.video?.id === id);
}

function show(steps) {
  state.steps = steps;
  timeline.show(steps, { video: state.video.id, pictures: state.video.pictures });
  timeline.at(now());
  const fine = steps.levels.at(-1).steps, level = steps.levels.length - 1, threads = new Map();
  for (const step of fine) threads.set(step.thread, [...(threads.get(step.thread) ?? []), step]);
  $("threads").replaceChildren(...[...threads].map(([thread, members]) => {
    const seconds = members.reduce((sum, step) => sum + step.end_s - step.start_s, 0);
    const button = element("button", { type: "button", "aria-pressed": "false" },
      element("i", { style: `background:${colour(thread)}` }),
      element("span", { textContent: members[0].label || `thread ${thread + 1}` }),
      element("small", { textContent: `${members.length} × · ${clock(seconds)}` }));
    button.title = "Play all moments of this thread, one after the other";
    button.onclick = () => playThread(button, members, thread, level);
    return element("li", {}, button);
  }));
}

// Edited steps are a person's own: they are not cut again until they are forgotten.
function slideable(yes) {
  $("k").disabled = !yes;
  $("k").title = yes ? "" : "These steps were edited; forget the edits to cut again";
}

async function recut() {
  const k = Number($("k").value);
  $("k-now").value = k;
  const numbers = [...new Set([Math.max(1, Math.round(k / 4)), Math.max(1, Math.round(k / 2)), k])];
  const view = state.shown;
  await guarded(async () => {
    const steps = await get(`videos/${state.video.id}/steps?k=${numbers.join(",")}`);
    if (view !== state.shown || Number($("k").value) !== k) return;
    if (state.video.edited) return;
    state.history = []; $("undo").disabled = true; state.k = numbers.join(",");
    show(steps);
  });
}

function playThread(button, members, thread, level) {
  const pressed = button.getAttribute("aria-pressed") === "true";
  for (const other of $("threads").querySelectorAll("button")) other.setAttribute("aria-pressed", "false");
  if (pressed) { stopThread(); player.pause(); return; }
  seek(members[0].start_s);
  state.playing = { members, place: 0 };
  timeline.thread(thread, level);
  button.setAttribute("aria-pressed", "true");
  player.play?.().catch(() => {});
}

function stopThread() {
  state.playing = null;
  timeline.thread(null);
  for (const button of $("threads").querySelectorAll("button")) button.setAttribute("aria-pressed", "false");
}

function choose(step) {
  for (const id of ["rename", "split", "merge", "earlier", "later"]) $(id).disabled = false;
  $("now").textContent = `${step.label || `step ${step.id}`} · ${clock(step.start_s)} – ${clock(step.end_s)}`;
  if (state.server.corpus) sameElsewhere(step);
}

async function sameElsewhere(step) {
  const view = state.shown, middle = (step.start_s + step.end_s) / 2;
  try {
    const { hits } = await get(`search/like?video=${encodeURIComponent(state.video.name)}&t=${middle.toFixed(1)}&n=8&level=${timeline.byId.get(step.id).number}`);
    if (view !== state.shown || timeline.chosen !== step.id) return;
    $("same-title").hidden = !hits.length;
    $("same").replaceChildren(...hits.map(hitCard("")));
  } catch { $("same-title").hidden = true; $("same").replaceChildren(); }
}

// Time

const now = () => state.video?.playable ? player.currentTime : Number($("still").dataset.time || 0);

function seek(time, remember = true) {
  if (state.playing) stopThread();
  state.moment = Number(time.toFixed(1));
  if (state.video?.playable) player.currentTime = time;
  else { $("still").dataset.time = time; moved(time); }
  if (remember) go({ t: time.toFixed(1) }, true);
}

function moved(time) {
  timeline.at(time); matrix.at(time);
  const { playing } = state;
  if (playing && !player.paused && time >= playing.members[playing.place].end_s - 0.05) {
    playing.place++;
    if (playing.place < playing.members.length) player.currentTime = playing.members[playing.place].start_s;
    else { player.pause(); stopThread(); }
  }
}

// Words

async function answer(q, view) {
  const found = await get(`videos/${state.video.id}/ask?q=${encodeURIComponent(q)}&n=5`);
  if (view !== state.shown) return;
  timeline.mark(found.matches);
  $("answers-title").hidden = false;
  $("answers-title").textContent = found.present < 0.3 ? `“${q}”: probably not in this video` : `“${q}”`;
  $("answers").replaceChildren(...found.matches.map(match => {
    const button = element("button", { type: "button" }, element("span", { textContent: `${clock(match.start_s)} – ${clock(match.end_s)}` }), element("small", { textContent: match.score.toFixed(2) }));
    button.onclick = () => { for (const other of $("answers").querySelectorAll("button")) other.setAttribute("aria-pressed", other === button); seek(match.start_s); };
    return element("li", {}, button);
  }));
}

// Edits

// One after the other: each begins with what the one before it has saved.
function change(work) {
  state.saving = state.saving.then(() => guarded(async () => {
    if (!timeline.chosen) throw new Error("choose a step on the timeline first");
    const before = state.steps;
    await save(work(before, timeline.chosen), () => state.history.push(before));
  }));
  return state.saving;
}

async function save(steps, saved) {
  const { video } = state;
  await send("PUT", `videos/${video.id}/edits`, steps);
  video.edited = true;
  if (state.video !== video) return;  // another one is open by now
  saved();
  $("revert").hidden = false; $("undo").disabled = !state.history.length;
  slideable(false);
  show(steps);
  $("saved").textContent = "Saved beside the video.";
}

$("rename").onclick = () => change((steps, id) => {
  const old = timeline.byId.get(id).step.label ?? "", label = prompt("Name of this step", old);
  if (label === null) throw new Error("not renamed");
  return edit.rename(steps, id, label.trim());
});
$("split").onclick = () => change((steps, id) => edit.split(steps, id, now()));
$("merge").onclick = () => change((steps, id) => edit.merge(steps, id));
$("earlier").onclick = () => change((steps, id) => edit.move(steps, id, -1));
$("later").onclick = () => change((steps, id) => edit.move(steps, id, 1));
$("undo").onclick = () => { state.saving = state.saving.then(() => guarded(async () => {
  const before = state.history.at(-1);
  if (before) await save(before, () => state.history.pop());
})); };
$("revert").onclick = () => guarded(async () => {
  await send("DELETE", `videos/${state.video.id}/edits`);
  state.video.edited = false; state.history = []; $("undo").disabled = true;
  await loadSteps(state.shown);
  $("saved").textContent = "Edits forgotten.";
});
$("export").onchange = event => { if (event.target.value) location.assign(`api/videos/${state.video.id}/export/${event.target.value}${state.k ? `?k=${state.k}` : ""}`); event.target.value = ""; };

// Uploads

$("file").onchange = event => {
  const file = event.target.files[0];
  if (!file) return;
  const request = new XMLHttpRequest();  // fetch does not tell how much was sent
  request.open("POST", `api/upload?name=${encodeURIComponent(file.name)}`);
  request.upload.onprogress = ({ loaded, total }) => { $("sent").hidden = false; $("sent").value = loaded / total; };
  request.onloadend = () => {
    $("sent").hidden = true; event.target.value = "";
    let body = {};
    try { body = JSON.parse(request.responseText); } catch { /* an empty answer */ }
    if (request.status === 201) location.hash = `v=${body.id}`;
    else guarded(() => { throw new Error(body.error || "the upload did not arrive"); });
  };
  request.send(file);
};

// Events

let slider = 0;
$("k").oninput = () => { $("k-now").value = $("k").value; clearTimeout(slider); slider = setTimeout(recut, 120); };
$("read").onclick = read;
$("search").onsubmit = event => { event.preventDefault(); go({ q: $("query").value.trim() || null, all: $("everywhere").checked && state.server.corpus ? "1" : null }); };
$("skip").onclick = event => { event.preventDefault(); $("main").focus(); };
$("home").onclick = event => { event.preventDefault(); location.hash = ""; };
$("theme").onclick = () => {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("theme", document.documentElement.dataset.theme); } catch { /* private windows */ }
};
try { const kept = localStorage.getItem("theme"); if (kept) document.documentElement.dataset.theme = kept; } catch { /* private windows */ }
player.addEventListener("timeupdate", () => moved(player.currentTime));
player.addEventListener("seeked", () => moved(player.currentTime));
player.addEventListener("loadedmetadata", () => { const { t } = address(); if (Number(t)) player.currentTime = Number(t); });
document.addEventListener("keydown", event => {
  if (event.target.closest("input, select, textarea, video")) return;
  if (event.key === "/") { event.preventDefault(); $("query").focus(); }
  else if (event.key === " " && (event.target.closest("#timeline") || !event.target.closest("button, a")) && state.video?.playable) { event.preventDefault(); player.paused ? player.play() : player.pause(); }
  else if (["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"].includes(event.key) && event.target === document.body && state.steps && !$("one").hidden) timeline.key(event);
});
addEventListener("hashchange", route);
route();
