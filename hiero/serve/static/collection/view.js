// The collection: the list of videos, adding videos, and learning from corrections.
import { getJson, sendJson } from "../api.js";
import { $, h } from "../dom.js";
import { formatTime } from "../format.js";
import { createElement, formatCount } from "../legacy.js";
import { showError, withErrors } from "../shell.js";
import { changeAddress, store } from "../store.js";
import { VideoList } from "./list.js";

const root = h("section", { id: "list", hidden: true, "aria-labelledby": "list-title" });
root.innerHTML = `    <h1 id="list-title">Videos</h1>
    <p id="upload" hidden><label for="file">Add a video</label> <input id="file" type="file" accept="video/*"> <progress id="sent" max="1" value="0" hidden></progress></p>
    <p id="learning" hidden>
      <button id="learn" type="button" title="Use the names you gave to steps to name similar steps in the other videos">Learn from my corrections</button>
      <progress id="learn-progress" hidden></progress> <span id="learn-status" role="status" aria-live="polite"></span>
    </p>
    <ul id="learned"></ul>
    <div class="tools" role="search" aria-label="Filter and sort videos">
      <label for="filter">Filter by name</label> <input id="filter" type="search" maxlength="200" autocomplete="off">
      <label for="sort">Sort by</label>
      <select id="sort"><option value="added">order added</option><option value="name">name</option><option value="length">duration</option><option value="steps">number of steps</option><option value="state">status</option></select>
      <span id="list-status" role="status" aria-live="polite"></span>
    </div>
    <section id="queue" aria-labelledby="queue-title" hidden><h2 id="queue-title">Queue</h2><ul id="jobs"></ul></section>
    <ul id="videos" class="cards"></ul>
    <p><button id="more" type="button" hidden>Show more</button></p>
`;
document.getElementById("main").append(root);
const list = new VideoList(showError);

export const collectionView = {
  root,
  async show({ q }, isCurrent) {
    document.title = "hiero";
    await list.show(store.server, store.me);
    if (!isCurrent()) return;
    // A single video is opened directly.
    if (list.total === 1 && !store.server.corpus && !$("filter").value) { changeAddress({ v: list.videos[0].id }); return; }
    if (q) throw new Error("Open a video to search in it. To search all videos at once, create a corpus with: hiero index VIDEO… --to CORPUS");
  },
  hide() { list.hide(); },
};

// Learns from all corrections and shows the changed names.
async function learn() {
  $("learn").disabled = true; $("learn-progress").hidden = false; $("learn-status").textContent = ""; $("learned").replaceChildren();
  try {
    let job = await sendJson("POST", "learn");
    while (["waiting", "running"].includes(job.state)) {
      await new Promise(resolve => setTimeout(resolve, 300));
      job = await getJson(`jobs/${job.id}`);
      $("learn-progress").max = job.duration_s || 1;
      $("learn-progress").value = job.done_s;
    }
    if (job.state !== "done") throw new Error(job.message || "Learning was stopped.");
    showLearned(await getJson("learn"));
  } catch (error) {
    $("learn-status").textContent = error.message;
  } finally {
    $("learn").disabled = false; $("learn-progress").hidden = true;
  }
}

function showLearned({ num_names, num_steps, num_videos, num_named_anew, videos }) {
  $("learn-status").textContent = `Learned ${formatCount(num_names, "name")} from ${formatCount(num_steps, "step")} in ${formatCount(num_videos, "video")}. `
    + (num_named_anew ? `${formatCount(num_named_anew, "step")} in other videos got a new name:` : "No steps in other videos were renamed.");
  $("learned").replaceChildren(...videos.map(({ id, video, steps }) => createElement("li", {},
    createElement("strong", { textContent: video }),
    createElement("ul", {}, ...steps.map(step => createElement("li", {},
      createElement("a", { href: `#v=${id}&t=${step.start_s.toFixed(1)}`, textContent: `${formatTime(step.start_s)} – ${formatTime(step.end_s)}` }),
      ` ${step.before ?? "unnamed"} → `, createElement("strong", { textContent: step.after ?? "unnamed" })))))));
}
$("learn").onclick = learn;

$("file").onchange = event => {
  const file = event.target.files[0];
  if (!file) return;
  const request = new XMLHttpRequest();  // unlike fetch, it reports progress
  request.open("POST", `api/upload?name=${encodeURIComponent(file.name)}`);
  request.upload.onprogress = ({ loaded, total }) => { $("sent").hidden = false; $("sent").value = loaded / total; };
  request.onloadend = () => {
    $("sent").hidden = true; event.target.value = "";
    let body = {};
    try { body = JSON.parse(request.responseText); } catch { /* an empty response */ }
    if (request.status === 201) location.hash = `v=${body.id}`;
    else withErrors(() => { throw new Error(body.error || "The upload failed. Please try again."); });
  };
  request.send(file);
};

