// One video: the player, the steps, the answers and the edits.
import { changeOptions, fetchJson, getJson, sendJson, thumbnailUrl } from "../api.js";
import { $, h } from "../dom.js";
import { formatTime, percent, stepTitle, threadColour } from "../format.js";
import { createCard, createElement, formatCount } from "../legacy.js";
import { showError, withErrors } from "../shell.js";
import { changeAddress, readAddress, store } from "../store.js";
import { Presence, showHistory } from "./presence.js";
import { Matrix } from "./matrix.js";
import { Player } from "./player.js";
import { Timeline } from "./timeline.js";
import * as edit from "./edit.js";

const root = h("section", { id: "one", hidden: true, "aria-labelledby": "name" });
root.innerHTML = `    <h1 id="name"></h1>
    <p id="editing" class="hint" role="status" aria-live="polite"></p>
    <div id="reading" role="status" aria-live="polite" hidden>
      <p id="reading-text"></p>
      <progress id="progress"></progress>
      <button id="read" type="button">Process this video</button>
      <button id="stop" type="button" hidden>Stop</button>
    </div>
    <div class="stage">
      <div class="screen">
        <video id="player" controls preload="metadata" playsinline></video>
        <img id="still" alt="" hidden>
        <p id="now" aria-live="off"></p>
      </div>
      <aside aria-labelledby="threads-title">
        <h2 id="threads-title" title="A thread is a group of similar steps">Threads</h2>
        <ul id="threads"></ul>
        <h2 id="answers-title" hidden>Answers</h2>
        <ol id="answers"></ol>
        <button id="answers-all" type="button" hidden>Show the best guesses</button>
      </aside>
    </div>
    <div class="tools">
      <label for="k">Number of steps <output id="k-now"></output></label>
      <input id="k" type="range" min="1" max="40" value="8">
      <span id="edit-tools" role="group" aria-label="Edit the selected step">
        <button id="rename" type="button">Rename</button>
        <button id="split" type="button">Split here</button>
        <button id="merge" type="button">Merge with next</button>
        <button id="earlier" type="button" title="Start this step one second earlier">⇤ 1 s</button>
        <button id="later" type="button" title="Start this step one second later">1 s ⇥</button>
        <button id="undo" type="button" disabled>Undo</button>
        <button id="revert" type="button" hidden>Discard all edits</button>
      </span>
      <button id="link" type="button" title="Copy a link that opens this video at this moment">Copy link to this moment</button>
      <label for="export">Export</label>
      <select id="export"><option value="">Choose a format …</option></select>
    </div>
    <p class="hint">Use the left and right arrow keys to move between steps, up and down to change the level, space to play or pause, and <kbd>/</kbd> to search.</p>
    <div id="timeline" role="group" aria-label="Timeline"></div>
    <p id="saved" role="status" aria-live="polite"></p>
    <div id="conflict" role="alertdialog" aria-labelledby="conflict-text" hidden>
      <p id="conflict-text"></p>
      <button id="keep-mine" type="button" title="Save my version and replace theirs">Keep mine</button>
      <button id="take-theirs" type="button" title="Discard my last change and load their version">Use theirs</button>
    </div>
    <details id="history" hidden><summary>Edit history</summary><ol id="saves"></ol></details>
    <h2>Similarity</h2>
    <p class="hint">Each moment compared with every other: brighter means more similar. Steps appear as squares on the diagonal. Click to jump to a moment.</p>
    <canvas id="matrix" tabindex="0" role="img" aria-label="Similarity between all moments of the video"></canvas>
    <h2 id="same-title" hidden>This step in other videos</h2>
    <ol id="same" class="cards"></ol>
`;
document.getElementById("main").append(root);
const MAX_SLIDER_STEPS = 200;
const SLIDER_DELAY_MS = 120;  // delay between the last move of the slider and the request
const MOVE_S = 1;  // seconds by which "earlier" and "later" move a boundary
const MAX_SPEECH_BUTTONS = 200;
const NUM_SIMILAR = 8;  // hits in "This step in other videos"

const player = new Player($("player"), onTimeChange);
const state = {
  video: null, hierarchy: null, undoStack: [], playingThread: null, linkedTime: 0, events: null, k: null,
  saving: Promise.resolve(), version: null, endConflict: null,
  get server() { return store.server; }, get me() { return store.me; }, get view() { return store.view; },
};
const timeline = new Timeline($("timeline"), { onSeek: seek, onSelect: onStepSelected });
const presence = new Presence();
const matrix = new Matrix($("matrix"), seek);
const showView = () => videoView.show(readAddress(), () => true);

export const videoView = {
  root,
  async show({ v, q, t }) {
    if (v !== state.video?.id) { state.events?.close(); state.events = null; }
    $("edit-tools").hidden = !store.canEdit;
    await showVideo(v, { q, t: Number(t) || 0 }, store.view);
  },
  hide() { presence.stop(); player.pause(); if (!readAddress().v) state.video = null; },
};
// Shows the likely results, and a button that shows all of them if there are no likely ones.
function showLikely(id, likely, all, show) {
  const button = $(`${id}-all`);
  button.hidden = likely.length > 0 || !all.length;
  button.onclick = () => { button.hidden = true; show(all); };
  show(likely);
}

const isLikely = hit => hit.probability >= state.server.search_threshold;

const createHitCard = (hit, q) => createCard(
  hit.id ? `#${new URLSearchParams({ v: hit.id, t: hit.start_s.toFixed(1), ...(q ? { q } : {}) })}` : "#",
  hit.pictures ? thumbnailUrl(hit.id, (hit.start_s + hit.end_s) / 2) : null, stepTitle(hit.label, /\d+$/.exec(hit.step)?.[0] ?? hit.step),
  `${hit.video} · ${formatTime(hit.start_s)} – ${formatTime(hit.end_s)} · ${percent(hit.probability)}${hit.rests_on ? ` · ${hit.rests_on}` : ""}${hit.quote ? ` · “${hit.quote}”` : ""}`);

async function showVideo(id, { q, t }, view) {
  const video = await getJson(`videos/${id}`);
  if (view !== state.view) return;
  $("one").hidden = false;
  document.title = `${video.name} · hiero`;
  const isNew = state.video?.id !== id;
  state.video = video;
  $("name").textContent = video.name;
  if (isNew) { resetVideo(video); presence.watch(id, state.me); }
  if (!video.read) { if (isNew) showUnread(); return; }
  if (isNew || !state.hierarchy) await loadSteps(view);
  if (view !== state.view) return;
  if (t && (isNew || t !== state.linkedTime)) seek(t, false);
  state.linkedTime = t;
  if (q) await showAnswers(q, view); else { timeline.showMatches([]); $("answers").replaceChildren(); $("answers-title").hidden = $("answers-all").hidden = true; }
}

// Clears what was shown for the previous video and loads this one into the player.
function resetVideo(video) {
  $("player").hidden = !video.playable;
  $("still").hidden = video.playable;
  if (video.playable) player.open(video.id, video.files, Number(readAddress().t) || 0); else player.close();
  state.endConflict?.();
  state.hierarchy = null; state.undoStack = []; state.playingThread = null;
  timeline.clear(); matrix.clear();
  timeline.files = video.files;
  $("threads").replaceChildren(); $("answers").replaceChildren(); $("same").replaceChildren();
  $("answers-title").hidden = $("answers-all").hidden = $("same-title").hidden = true;
}

// Processing of new videos

function showUnread(text = "This video has not been processed yet.") {
  $("reading").hidden = false;
  $("reading-text").textContent = text;
  $("progress").hidden = true; $("read").hidden = state.me.role === "view"; $("stop").hidden = true;
}

async function readVideo() {
  await withErrors(async () => {
    const job = await sendJson("POST", `videos/${state.video.id}/read`);
    $("read").hidden = true; $("stop").hidden = false; $("progress").hidden = false;
    $("stop").onclick = () => withErrors(() => sendJson("DELETE", `jobs/${job.id}`));
    const id = state.video.id, events = new EventSource(`api/jobs/${job.id}/events`);
    state.events = events;
    events.onmessage = event => {
      if (state.video?.id !== id) { events.close(); return; }
      const { state: jobState, done_s, duration_s, message } = JSON.parse(event.data);
      $("progress").max = duration_s || 1;
      if (duration_s) $("progress").value = done_s; else $("progress").removeAttribute("value");  // an indeterminate progress bar
      $("reading-text").textContent = jobState === "running" ? `Processing: ${formatTime(done_s)}${duration_s ? ` of ${formatTime(duration_s)}` : ""}` : "Waiting in the queue …";
      if (jobState === "done") { events.close(); $("reading").hidden = true; state.video = null; showView(); }
      if (jobState === "failed" || jobState === "cancelled") { events.close(); showUnread(message || "Processing was stopped. The results so far are kept."); }
    };
    events.onerror = () => { events.close(); if (state.video?.id === id) showUnread("The connection was lost. Processing may still continue; please try again."); };
  });
}

// Steps

async function loadSteps(view) {
  $("reading").hidden = true;
  const { id, edited, truth } = state.video;
  const { body: hierarchy, version } = await fetchJson(`videos/${id}/${edited ? "edits" : "steps"}`);
  const extraRows = [];
  const speech = mergeSpeech(await getJson(`videos/${id}/transcript`), hierarchy.duration_s);
  if (speech.length) extraRows.push({ name: "Speech", steps: speech, className: "speech" });
  if (truth) extraRows.push({ name: "Annotated", steps: (await getJson(`videos/${id}/truth`)).map((step, i) => ({ ...step, thread: i })) });
  for (const model of state.server.models.slice(1)) {
    const other = await getJson(`videos/${id}/steps?model=${encodeURIComponent(model)}`);
    extraRows.push({ name: model, steps: other.levels.at(-1).steps });
  }
  if (view !== state.view) return;
  timeline.extraRows = extraRows;
  state.version = edited ? version : null;
  showHierarchy(hierarchy);
  const slider = $("k");
  slider.max = Math.max(1, Math.min(MAX_SLIDER_STEPS, Math.floor(hierarchy.duration_s / 2), hierarchy.max_steps ?? MAX_SLIDER_STEPS));
  slider.value = $("k-now").value = hierarchy.levels.at(-1).steps.length;
  $("revert").hidden = !edited;
  state.k = null;
  enableSlider(!edited);
  if (state.server.exports && $("export").length === 1) $("export").append(...state.server.exports.map(name => createElement("option", { value: name, textContent: name })));
  loadHistory();
  matrix.show(id, hierarchy.duration_s, () => state.video?.id === id);
}

// Loads the edit history if it is open.
function loadHistory() {
  $("history").hidden = !state.server.history;
  if (!state.server.history || !$("history").open) return;
  const { id } = state.video;
  showHistory(id, {
    canEdit: state.me.role !== "view", version: () => state.version, onError: showError,
    onRestored: () => { state.video = null; showView(); },
  });
}

// Utterances as a row of the timeline. Neighbours that are too narrow to click are joined.
function mergeSpeech(utterances, duration) {
  const merged = [];
  for (const utterance of utterances) {
    const last = merged.at(-1);
    if (last && utterance.end_s - last.start_s < duration / MAX_SPEECH_BUTTONS) { last.end_s = Math.max(last.end_s, utterance.end_s); last.text += ` ${utterance.text}`; } else merged.push({ ...utterance });
  }
  return merged;
}

function showHierarchy(hierarchy) {
  state.hierarchy = hierarchy;
  timeline.show(hierarchy, { video: state.video.id, pictures: state.video.pictures });
  timeline.showTime(currentTime());
  const level = hierarchy.levels.length - 1, threads = new Map();
  for (const step of hierarchy.levels[level].steps) threads.set(step.thread, [...(threads.get(step.thread) ?? []), step]);
  $("threads").replaceChildren(...[...threads].map(([thread, steps]) => {
    const seconds = steps.reduce((sum, step) => sum + step.end_s - step.start_s, 0);
    const button = createElement("button", { type: "button", "aria-pressed": "false" },
      createElement("i", { style: `background:${threadColour(thread)}` }),
      createElement("span", { textContent: steps[0].label || `Thread ${thread + 1}` }),
      createElement("small", { textContent: `${steps.length} × · ${formatTime(seconds)}` }));
    button.title = "Play all steps of this thread";
    button.onclick = () => toggleThread(button, steps, thread, level);
    return createElement("li", {}, button);
  }));
}

// The slider is disabled for edited steps.
function enableSlider(enabled) {
  $("k").disabled = !enabled;
  $("k").title = enabled ? "" : "These steps were edited. Discard all edits to change the number of steps.";
}

// Loads as many steps as the slider says. The two coarser levels have a half and a quarter of them.
async function cutAgain() {
  const k = Number($("k").value), view = state.view;
  $("k-now").value = k;
  const counts = [...new Set([Math.max(1, Math.round(k / 4)), Math.max(1, Math.round(k / 2)), k])].join(",");
  await withErrors(async () => {
    const hierarchy = await getJson(`videos/${state.video.id}/steps?k=${counts}`);
    if (view !== state.view || Number($("k").value) !== k) return;
    if (state.video.edited) return;
    state.undoStack = []; $("undo").disabled = true; state.k = counts;
    showHierarchy(hierarchy);
  });
}

function toggleThread(button, steps, thread, level) {
  const wasPressed = button.getAttribute("aria-pressed") === "true";
  for (const other of $("threads").querySelectorAll("button")) other.setAttribute("aria-pressed", "false");
  if (wasPressed) { stopThread(); player.pause(); return; }
  seek(steps[0].start_s);  // comes first because it stops another thread
  state.playingThread = { steps, index: 0 };
  timeline.highlightThread(thread, level);
  button.setAttribute("aria-pressed", "true");
  player.play().catch(() => {});
}

function stopThread() {
  state.playingThread = null;
  timeline.highlightThread(null);
  for (const button of $("threads").querySelectorAll("button")) button.setAttribute("aria-pressed", "false");
}

function onStepSelected(step) {
  for (const id of ["rename", "split", "merge", "earlier", "later"]) $(id).disabled = false;
  $("now").textContent = `${stepTitle(step.label, timeline.byId.get(step.id).index + 1)} · ${formatTime(step.start_s)} – ${formatTime(step.end_s)}${placeInFiles(step.start_s)}`;
  if (state.video.indexed) showSimilarSteps(step);
}

async function showSimilarSteps(step) {
  const { view } = state, middle = (step.start_s + step.end_s) / 2, { level } = timeline.byId.get(step.id);
  try {
    const { hits } = await getJson(`search/like?video=${encodeURIComponent(state.video.name)}&t=${middle.toFixed(1)}&n=${NUM_SIMILAR}&level=${level}`);
    if (view !== state.view || timeline.selectedId !== step.id) return;
    const likely = hits.filter(isLikely);
    $("same-title").hidden = !likely.length;
    $("same").replaceChildren(...likely.map(hit => createHitCard(hit, "")));
  } catch { $("same-title").hidden = true; $("same").replaceChildren(); }  // for example if the video has been removed from the corpus
}

// Time

// The file and the time in it of a moment. Empty if the video is a single file.
function placeInFiles(time) {
  const files = state.video?.files ?? [], file = files.findLast(file => file.start_s <= time + 1e-6);
  return files.length > 1 && file ? ` · in ${file.name} at ${formatTime(time - file.start_s)}` : "";
}

const currentTime = () => state.video?.playable ? player.currentTime : Number($("still").dataset.time || 0);

function seek(time, remember = true) {
  if (state.playingThread) stopThread();
  state.linkedTime = Number(time.toFixed(1));
  if (state.video?.playable) player.currentTime = time;
  else { $("still").dataset.time = time; onTimeChange(time); }
  if (remember) changeAddress({ t: time.toFixed(1) }, true);
}

function onTimeChange(time) {
  timeline.showTime(time); matrix.showTime(time);
  const { playingThread } = state;
  if (playingThread && !player.paused && time >= playingThread.steps[playingThread.index].end_s - 0.05) {
    playingThread.index++;
    if (playingThread.index < playingThread.steps.length) player.currentTime = playingThread.steps[playingThread.index].start_s;
    else { player.pause(); stopThread(); }
  }
}

// Search in a video

async function showAnswers(q, view) {
  const answer = await getJson(`videos/${state.video.id}/ask?q=${encodeURIComponent(q)}&n=5`);
  if (view !== state.view) return;
  $("answers-title").hidden = false;
  $("answers-title").textContent = answer.present ? `Results for “${q}”` : `“${q}” is probably not in this video`;
  showLikely("answers", answer.present ? answer.matches : [], answer.matches, matches => {
    timeline.showMatches(matches);
    $("answers").replaceChildren(...matches.map(createAnswer));
  });
}

function createAnswer(match) {
  const button = createElement("button", { type: "button" }, createElement("span", { textContent: `${formatTime(match.start_s)} – ${formatTime(match.end_s)}` }), createElement("small", { textContent: `${match.rests_on ? `${match.rests_on} · ` : ""}${percent(match.probability)}` }));
  if (match.quote) button.title = `“${match.quote}”`;
  button.onclick = () => { for (const other of $("answers").querySelectorAll("button")) other.setAttribute("aria-pressed", other === button); seek(match.start_s); };
  return createElement("li", {}, button);
}

// Edits

// Saves run one after the other, each on top of the previous one.
function queueSave(work) {
  state.saving = state.saving.then(() => withErrors(work));
  return state.saving;
}

function applyEdit(change) {
  return queueSave(async () => {
    if (!timeline.selectedId) throw new Error("Select a step on the timeline first.");
    const before = state.hierarchy;
    await save(change(before, timeline.selectedId), () => state.undoStack.push(before));
  });
}

async function save(hierarchy, onSaved) {
  const { video } = state;
  const isSaved = await changeEdits(version => fetchJson(`videos/${video.id}/edits`, changeOptions("PUT", hierarchy, version)));
  if (!isSaved || state.video?.id !== video.id) return;  // another video is open now
  state.video.edited = true;
  onSaved();
  $("revert").hidden = false; $("undo").disabled = !state.undoStack.length;
  enableSlider(false);
  showHierarchy(hierarchy);
  $("saved").textContent = state.server.history ? "Saved." : "Saved next to the video.";
  loadHistory();
}

// Sends a change of the edits. If someone else has changed them in the meantime, the user chooses a version. Returns whether
// the change was saved.
async function changeEdits(send) {
  const { id } = state.video;
  for (let { version } = state; ;) {
    try {
      ({ version } = await send(version));
      if (state.video?.id === id) state.version = version;
      return true;
    } catch (error) {
      if (error.status !== 412) throw error;
      ({ version } = error);
      if (await chooseMine(version)) continue;
      state.video.edited = version !== null; state.undoStack = []; $("undo").disabled = true;
      await loadSteps(state.view);
      $("saved").textContent = "Loaded their version. Your change was not saved.";
      return false;
    }
  }
}

// Asks which version to keep. Fails if another video is opened instead.
async function chooseMine(theirVersion) {
  const { name } = state.video;
  $("conflict-text").textContent = theirVersion === null
    ? "Someone else has discarded the edits of this video in the meantime. Your change is not saved yet."
    : "Someone else has edited this video in the meantime. Your change is not saved yet.";
  $("conflict").hidden = false;
  $("take-theirs").focus();
  try {
    return await new Promise((resolve, reject) => {
      $("keep-mine").onclick = () => resolve(true);
      $("take-theirs").onclick = () => resolve(false);
      state.endConflict = () => reject(new Error(`${name}: your last change was not saved because someone else had edited the video.`));
    });
  } finally { $("conflict").hidden = true; state.endConflict = null; }
}

$("rename").onclick = () => applyEdit((hierarchy, id) => {
  const label = prompt("New name of this step", timeline.byId.get(id).step.label ?? "");
  if (label === null) throw new Error("The step was not renamed.");
  return edit.rename(hierarchy, id, label.trim());
});
$("split").onclick = () => applyEdit((hierarchy, id) => edit.split(hierarchy, id, currentTime()));
$("merge").onclick = () => applyEdit((hierarchy, id) => edit.merge(hierarchy, id));
$("earlier").onclick = () => applyEdit((hierarchy, id) => edit.moveStart(hierarchy, id, -MOVE_S));
$("later").onclick = () => applyEdit((hierarchy, id) => edit.moveStart(hierarchy, id, MOVE_S));
$("undo").onclick = () => queueSave(async () => {
  const before = state.undoStack.at(-1);
  if (before) await save(before, () => state.undoStack.pop());
});
$("revert").onclick = () => queueSave(async () => {
  const { id } = state.video;
  const isSent = await changeEdits(version => fetchJson(`videos/${id}/edits`, changeOptions("DELETE", undefined, version)));
  if (!isSent || state.video?.id !== id) return;
  state.video.edited = false; state.undoStack = []; $("undo").disabled = true;
  await loadSteps(state.view);
  $("saved").textContent = "All edits were discarded.";
});
$("export").onchange = event => { if (event.target.value) location.assign(`api/videos/${state.video.id}/export/${event.target.value}${state.k ? `?k=${state.k}` : ""}`); event.target.value = ""; };

$("history").ontoggle = () => { if (state.video) loadHistory(); };
$("link").onclick = async () => {
  changeAddress({ t: currentTime().toFixed(1) }, true);
  // Without access to the clipboard, the link is in the address bar.
  try { await navigator.clipboard.writeText(location.href); $("saved").textContent = "Link copied."; } catch { $("saved").textContent = `Link to this moment: ${location.href}`; }
};

let sliderTimer = 0;
$("k").oninput = () => { $("k-now").value = $("k").value; clearTimeout(sliderTimer); sliderTimer = setTimeout(cutAgain, SLIDER_DELAY_MS); };
$("read").onclick = readVideo;
document.addEventListener("keydown", event => {
  if (root.hidden || event.target.closest("input, select, textarea, video")) return;
  if (event.key === " " && (event.target.closest("#timeline") || !event.target.closest("button, a")) && state.video?.playable) { event.preventDefault(); player.paused ? player.play() : player.pause(); }
  else if (["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"].includes(event.key) && event.target === document.body && state.hierarchy) timeline.onKey(event);
});
