// @ts-check
// One video: the player, its chapters, the timeline of all levels, answers and edits.
import { getJson, thumbnailUrl } from "../api.js";
import { $, fill, h } from "../dom.js";
import { describeStep } from "../format.js";
import { withErrors } from "../shell.js";
import { changeAddress, readAddress, store } from "../store.js";
import { t } from "../texts.js";
import { Activities } from "./activities.js";
import { Asking } from "./asking.js";
import { Chapters } from "./chapters.js";
import * as edit from "./edit.js";
import { hideTip, renameInPlace, showTip } from "./floating.js";
import { copyLink, createExport, createLayout } from "./layout.js";
import { Player } from "./player.js";
import { showHistory } from "./history.js";
import { Reading } from "./reading.js";
import { showSame } from "./same.js";
import { Saves, fetchSteps } from "./saves.js";
import { indexSteps, repeatedActivities, stepAt, usedNames } from "./steps.js";
import { Timeline } from "./timeline.js";
import { listenToKeys, onTimelineKey } from "./timeline_input.js";

const MAX_SLIDER_STEPS = 200, MOVE_S = 1;

const state = {
  /** @type {Video | null} */ video: null,
  /** @type {Hierarchy | null} */ hierarchy: null,
  /** @type {Entries} */ entries: new Map(),
  /** @type {ExtraRow[]} */ extraRows: [],
  /** @type {{ steps: Step[], index: number } | null} */ playingAll: null,
  /** @type {string | null} numbers of steps set by the slider */ counts: null,
  linkedTime: 0,  // time in the address at the last seek; it is not sought again when only the query changes
};

const commands = {
  rename: () => { const id = target()?.step.id; if (id) (chapters.find(id) ? chapters.rename(id) : startRename(id)); },
  split: () => changeSelected((hierarchy, id) => edit.split(hierarchy, id, currentTime())),
  merge: () => changeSelected(edit.merge),
  earlier: () => changeSelected((hierarchy, id) => edit.shiftStart(hierarchy, id, -MOVE_S)),
  later: () => changeSelected((hierarchy, id) => edit.shiftStart(hierarchy, id, MOVE_S)),
  undo: () => saves.undo(), redo: () => saves.redo(), revert: () => saves.discard(),
  zoomIn: () => timeline.zoom(1.6), zoomOut: () => timeline.zoom(1 / 1.6), fit: () => timeline.fit(),
  link: () => copyLink(currentTime(), notify), recipe: () => view.recipe.showModal(), recut, tab: showTab,
};
const view = createLayout(commands, { id: () => state.video?.id ?? "", onSteps: hierarchy => saves.apply(() => hierarchy) });
$("main").append(view.root);

const player = new Player(view.player, onTimeChange, ratio => view.root.style.setProperty("--ratio", String(ratio)));
const canEdit = () => store.canEdit && Boolean(state.hierarchy);
/** The step that is edited: the selected one, or else the one at the current time, which is marked, too. */
const target = () => timeline.selected ?? timeline.entryAt(timeline.hierarchy.levels.length - 1, currentTime());
const pictureAt = (/** @type {number} */ time) => state.video?.pictures ? thumbnailUrl(state.video.id, time) : null;
const timeline = new Timeline(view.timeline, {
  canEdit, onSeek: seek, onSelect, onRename: startRename, 
  onMoveStart: (id, time) => saves.apply(hierarchy => edit.moveStart(hierarchy, id, time)),
  limits: id => edit.startLimits(/** @type {Hierarchy} */ (state.hierarchy), id),
  onPoint: point => point ? showTip(point, pictureAt(point.time)) : hideTip(),
  onRemoveQuestion: text => asking.remove(text), onChooseQuestion: text => { asking.choose(text); showTab("answers"); },
});
const chapters = new Chapters(view.chapters, {
  canEdit, onRename: startRename, pictureUrl: ({ step }) => pictureAt((step.start_s + step.end_s) / 2),
  onChoose: entry => { timeline.select(entry.step.id); onSelect(entry); seek(entry.step.start_s); },
});
const activities = new Activities(view.activities, {
  onFilter: chosen => {
    state.playingAll = null;
    const filter = chosen === null ? null : chosen === "person" ? (/** @type {StepEntry} */ { step }) => step.origin === "person" : (/** @type {StepEntry} */ entry) => entry.activity === chosen.activity;
    chapters.setFilter(filter);
    timeline.setFilter(filter);
  },
  onPlay: ({ steps }) => { seek(steps[0].start_s); state.playingAll = { steps, index: 0 }; player.play(); },
});
const asking = new Asking(view.answers, {
  pictureUrl: pictureAt, clipOf: match => state.video?.playable ? player.clip(match) : null,
  onAsk: text => changeAddress({ q: text, t: null }), onShowAll: () => {},
  onChoose: match => { seek(match.start_s); player.play(); },
  onBest: match => { view.answers.querySelector(".answer")?.setAttribute("aria-pressed", "true"); seek(match.start_s); if (state.video?.playable) player.play(); },
  onQuestions: questions => {
    timeline.showQuestions(asking?.rows ?? []);
    view.tabs.answers.textContent = questions.length ? t("tab.answers_n", { n: questions.length }) : t("tab.answers");
  },
});
const saves = new Saves({
  onChange: updateTools, onSaved: hierarchy => { showHierarchy(hierarchy); notify(t(store.server?.history ? "edit.saved" : "edit.saved_beside")); loadHistory(); },
  reload: () => loadSteps(() => true), notify,
});
const reading = new Reading(view.reading, () => { state.video = null; videoView.show(readAddress(), () => true); });

export const videoView = {
  root: view.root,
  /** @param {Address} address @param {() => boolean} isCurrent */
  async show(address, isCurrent) {
    const { v } = address, time = Number(address.t) || 0, video = await getJson(`videos/${v}`);
    if (!isCurrent()) return;
    view.root.hidden = false;
    document.title = `${video.name} · hiero`;
    const isNew = state.video?.id !== v;
    state.video = video;
    if (isNew) reset(video);
    view.root.classList.toggle("unread", !video.read);
    view.root.classList.toggle("no-picture", !video.playable && !video.pictures);
    if (!video.read) { if (isNew) await reading.show(v); return; }
    if (isNew || !state.hierarchy) await loadSteps(isCurrent);
    if (!isCurrent()) return;
    if (time && (isNew || time !== state.linkedTime)) seek(time, false);
    state.linkedTime = time;
    if (address.q) showTab("answers");
    await asking.show(address, isCurrent);
  },
  hide() {
    player.pause();
    reading.hide();
    hideTip();
    fill($("suggestions"));
    if (!readAddress().v) { state.video = null; asking.close(); }
  },
};

/** Clears what was shown for the previous video and loads this one into the player. @param {Video} video */
function reset(video) {
  view.name.textContent = video.name;
  view.player.hidden = !video.playable;
  view.still.hidden = video.playable;
  if (video.playable) player.open(video.id, video.files, Number(readAddress().t) || 0); else player.close();
  Object.assign(state, { hierarchy: null, playingAll: null, counts: null, entries: new Map(), extraRows: [] });
  saves.open(video.id, null, null);
  timeline.clear(); chapters.clear(); activities.chosen = null; activities.show([], 0); asking.close(); reading.hide();
  view.same.hidden = true;
  notify("");
  fill(view.exportPlace, createExport(name => `api/videos/${video.id}/export/${name}${state.counts ? `?k=${state.counts}` : ""}`, store.server?.exports ?? []));
  showTab("chapters");
  updateTools();
}

async function loadSteps(/** @type {() => boolean} */ isCurrent) {
  const { id } = /** @type {Video} */ (state.video), loaded = await fetchSteps(id);
  if (!isCurrent() || state.video?.id !== id) return;
  const { hierarchy, version, extraRows } = loaded;
  Object.assign(state, { extraRows, counts: null });
  saves.open(id, version, hierarchy);
  const slider = $("k"), numSteps = hierarchy.levels.at(-1)?.steps.length ?? 1;
  slider.max = Math.max(1, Math.min(MAX_SLIDER_STEPS, Math.floor(hierarchy.duration_s / 2), hierarchy.max_steps ?? MAX_SLIDER_STEPS));
  slider.value = $("k-now").value = numSteps;
  showHierarchy(hierarchy);
  loadHistory();
}

function showHierarchy(/** @type {Hierarchy} */ hierarchy) {
  const entries = indexSteps(hierarchy);
  Object.assign(state, { hierarchy, entries });
  timeline.show({ hierarchy, entries, extraRows: state.extraRows, files: state.video?.files ?? [] });
  chapters.show(hierarchy, entries);
  activities.show(repeatedActivities(hierarchy), [...entries.values()].filter(({ step }) => step.origin === "person").length);
  asking.open(state.video?.id ?? "", usedNames(hierarchy));
  updateTools();
  onTimeChange(currentTime());
}

/** Loads as many steps as the slider says. The two coarser levels have a half and a quarter of them. @param {number} k */
function recut(k) {
  const { video } = state, counts = [...new Set([Math.max(1, Math.round(k / 4)), Math.max(1, Math.round(k / 2)), k])].join(",");
  return withErrors(async () => {
    const hierarchy = await getJson(`videos/${video?.id}/steps?k=${counts}`);
    if (state.video !== video || Number($("k").value) !== k || saves.isEdited) return;
    state.counts = counts;
    saves.open(video?.id ?? "", null, hierarchy);
    showHierarchy(hierarchy);
  });
}

// Editing

/** @param {string} id @param {DOMRect} [box] */
function startRename(id, box) {
  const entry = state.entries.get(id);
  if (!entry || !canEdit()) return;
  timeline.select(id);
  onSelect(entry);
  const names = usedNames(/** @type {Hierarchy} */ (state.hierarchy));
  renameInPlace({ box: box ?? timeline.boxOf(entry), label: entry.step.label ?? "", names, onDone: label => saves.apply(hierarchy => edit.rename(hierarchy, id, label)) });
}

/** @param {(hierarchy: Hierarchy, id: string) => Hierarchy} change */
function changeSelected(change) {
  const id = target()?.step.id;
  if (id && canEdit()) saves.apply(hierarchy => change(hierarchy, id));
}

function updateTools() {
  view.editTools.hidden = !store.canEdit;
  for (const id of ["rename", "split", "merge", "earlier", "later"]) view.editTools.querySelector(`#${id}`).disabled = !state.hierarchy;
  view.editTools.querySelector("#undo").disabled = !saves?.past.length;
  view.editTools.querySelector("#redo").disabled = !saves?.future.length;
  view.editTools.querySelector("#revert").hidden = !saves?.isEdited;
  const slider = view.slider.querySelector("input");
  slider.disabled = Boolean(saves?.isEdited);
  slider.title = saves?.isEdited ? t("tools.steps_edited") : "";
}

function notify(/** @type {string} */ text) { view.saved.textContent = text; }

function loadHistory() {
  view.history.hidden = !store.server?.history;
  if (!store.server?.history || !view.history.open || !state.video) return;
  showHistory(view.saves, state.video.id, { version: () => saves.version, onRestored: () => { state.hierarchy = null; videoView.show(readAddress(), () => true); } });
}

// Time and selection

function onSelect(/** @type {StepEntry} */ entry) {
  chapters.select(entry.step.id);
  updateTools();
  showNow(entry);
  const { video } = state;
  if (video?.indexed) showSame(view.same, { video, entry }, () => state.video?.id === video.id && timeline.selectedId === entry.step.id);
}

function showNow(/** @type {StepEntry} */ entry) { view.now.textContent = describeStep(entry, state.video?.files ?? []); }

function currentTime() { return state.video?.playable ? player.currentTime : Number(view.still.dataset.time || 0); }

function seek(/** @type {number} */ time, remember = true) {
  state.playingAll = null;
  state.linkedTime = Number(time.toFixed(1));
  if (state.video?.playable) player.currentTime = time;
  else { view.still.dataset.time = String(time); view.still.src = pictureAt(time) ?? ""; view.still.hidden = !pictureAt(time); }
  onTimeChange(time);
  if (remember) changeAddress({ t: time.toFixed(1) }, true);
}

function onTimeChange(/** @type {number} */ time) {
  timeline.showTime(time, !player.paused || time === state.linkedTime);
  const finest = state.hierarchy?.levels.at(-1)?.steps;
  if (finest?.length) {
    const { id } = stepAt(finest, time), entry = state.entries.get(id);
    chapters.showCurrent(id);
    if (entry && !timeline.selected) showNow(entry);
  }
  continuePlayingAll(time);
}

function continuePlayingAll(/** @type {number} */ time) {
  const { playingAll } = state;
  if (!playingAll || player.paused || time < playingAll.steps[playingAll.index].end_s - 0.05) return;
  playingAll.index++;
  if (playingAll.index < playingAll.steps.length) player.currentTime = playingAll.steps[playingAll.index].start_s;
  else { player.pause(); activities.choose(null); }
}

function showTab(/** @type {"chapters" | "answers"} */ name) {
  for (const tab of /** @type {const} */ (["chapters", "answers"])) {
    view.tabs[tab].setAttribute("aria-selected", String(tab === name));
    view.tabs[tab].tabIndex = tab === name ? 0 : -1;
    view.root.querySelector(`#panel-${tab}`).hidden = tab !== name;
  }
}

listenToKeys({
  isActive: () => !view.root.hidden && Boolean(state.hierarchy), canEdit, commands,
  toggle: () => { if (state.video?.playable) player.toggle(); }, onArrow: event => onTimelineKey(timeline, event),
});
view.history.addEventListener("toggle", loadHistory);
