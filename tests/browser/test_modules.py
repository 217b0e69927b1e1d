"""The parts of the page that need no server, one by one in a real browser, and the rules that its files follow."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import hiero.serve

pytestmark = pytest.mark.slow

STATIC = Path(hiero.serve.__file__).parent / "static"
TYPES = {".js": "text/javascript", ".json": "application/json"}
MODULES = sorted(STATIC.rglob("*.js"))
STEP = """const step = (id, start_s, end_s, thread = 0, rest = {}) =>
    ({ id, start_s, end_s, thread, label: null, parent: null, children: [], origin: "model", ...rest });
"""
TWO_LEVELS = (
    STEP
    + """const steps = { duration_s: 30, levels: [
    { steps: [step("a", 0, 12, 0, { children: ["1", "2"] }), step("b", 12, 30, 1, { children: ["3"] })] },
    { steps: [step("1", 0, 4, 0, { parent: "a" }), step("2", 4, 12, 1, { parent: "a" }),
        step("3", 12, 30, 0, { parent: "b" })] },
] };
"""
)


# What a module does: its file, code that uses it as m, and the result.
BEHAVIOUR = {
    "a step has its name or its number": (
        "video/steps.js",
        TWO_LEVELS
        + """steps.levels[1].steps[1].label = "pour";
        return ["a", "b", "1", "2", "3"].map(id => m.indexSteps(steps).get(id).title);""",
        ["pour", "Part 2", "Step 1", "pour", "Step 3"],
    ),
    "a step that is its parent is one chapter": (
        "video/steps.js",
        TWO_LEVELS
        + """const show = ({ chain, children }) => [chain.join("="), ...children.map(show)];
        return m.chapterTree(steps, m.indexSteps(steps)).map(show);""",
        [["a", ["1"], ["2"]], ["b=3"]],
    ),
    "repeated activities and the step at a time": (
        "video/steps.js",
        TWO_LEVELS
        + """const [only] = m.repeatedActivities(steps), fine = steps.levels[1].steps;
        const found = [0, 3.9, 4, 29, 99].map(time => m.stepAt(fine, time).id);
        return [only.steps.map(({ id }) => id), only.seconds, found];""",
        [["1", "3"], 22, ["1", "1", "2", "3", "3"]],
    ),
    "a guess has a question mark": (
        "video/steps.js",
        TWO_LEVELS
        + """const [first, second] = steps.levels[1].steps;
        Object.assign(first, { label: "wash", probability: 0.79 });
        Object.assign(second, { label: "pour", probability: 0.8 });
        return ["1", "2"].map(id => m.indexSteps(steps).get(id).title);""",
        ["wash?", "pour"],
    ),
    "names that people gave are suggested first": (
        "video/steps.js",
        TWO_LEVELS
        + """for (const s of steps.levels[1].steps) s.label = "often";
        Object.assign(steps.levels[0].steps[0], { label: "mine", origin: "person" });
        return m.usedNames(steps);""",
        ["mine", "often"],
    ),
    "a parent with the same span follows, and the steps before the edit are untouched": (
        "video/edit.js",
        TWO_LEVELS
        + """const edited = m.rename(steps, "3", "fry"), all = edited.levels.flatMap(({ steps }) => steps);
        return [all.filter(({ label }) => label === "fry").map(({ id }) => id), steps.levels[1].steps[2].label];""",
        [["b", "3"], None],
    ),
    "a boundary moves on every level that has it": (
        "video/edit.js",
        TWO_LEVELS
        + """const moved = m.moveStart(steps, "3", 14), { low, high } = m.startLimits(steps, "3");
        return [moved.levels.map(({ steps }) => steps.map(s => s.start_s)), [low, high].map(Math.round)];""",
        [[[0, 14], [0, 4, 14]], [4, 30]],
    ),
    "a coarse step is split with what it holds, at a boundary that is near": (
        "video/edit.js",
        STEP
        + """const steps = { duration_s: 10, levels: [
          { steps: [step("0.0", 0, 10)] }, { steps: [step("1.0", 0, 10, 0, { parent: "0.0" })] },
          { steps: [step("2.0", 0, 5.1, 0, { parent: "1.0" }), step("2.1", 5.1, 10, 0, { parent: "1.0" })] }] };
        const levels = m.split(steps, "0.0", 5.0).levels.map(({ steps }) => steps);
        return [levels.map(steps => steps.map(s => [s.start_s, s.end_s])), levels[2][1].parent === "1.0"];""",
        [[[[0, 5.1], [5.1, 10]]] * 3, False],
    ),
    "the scale zooms around a place and stays inside": (
        "video/scale.js",
        """const scale = new m.Scale(100, 1000), before = scale.time(250);
        scale.zoom(4, 250);
        const seen = [Math.round(scale.shown), Math.abs(scale.time(250) - before) < 1e-6];
        scale.pan(-1e6); seen.push(scale.from);
        scale.pan(1e6); seen.push(scale.to);
        scale.zoom(1e9, 0); seen.push(scale.shown);
        scale.reveal(10); seen.push(scale.from <= 10 && scale.to >= 10);
        scale.fit(); seen.push(scale.isFitted, scale.x(50), scale.ticks(90));
        return seen;""",
        [25, True, 0, 100, 4, True, True, 500, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]],
    ),
    "texts fit their space": (
        "video/scale.js",
        "return [['cut the onion', 100, 80], ['cut the onion', 50, 100], ['cut', 5, 30]].map(a => m.fitText(...a));",
        ["cut the onion", "cut t…", ""],
    ),
    "marks fade with probability": (
        "video/timeline_draw.js",
        """const [none, little, more, all] = [0, 0.3, 0.6, 1].map(m.matchOpacity);
        return [none < 0.2, none < little, little < more, more < all, all];""",
        [True, True, True, True, 1],
    ),
    "how sure it is in words and percent": (
        "format.js",
        "return [0.004, 0.3, 0.6, 0.9].map(p => `${m.certainty(p)} ${m.percent(p)}`);",
        ["unlikely < 1 %", "possible 30 %", "likely 60 %", "very likely 90 %"],
    ),
    "the time left is rounded": (
        "format.js",
        "return [null, 20, 170, 5400].map(m.formatLeft);",
        ["", "less than a minute left", "about 3 min left", "about 1.5 h left"],
    ),
    "answers that are unlikely are shown on request": (
        "video/answers.js",
        """const matches = [.7, .3, .04].map(probability => ({ start_s: 0, end_s: 1, probability }));
        const count = (present, showsAll) => m.shownMatches({ answer: { present, matches }, showsAll }).length;
        return [count(true, false), count(true, true), count(false, false), count(false, true)];""",
        [2, 3, 0, 3],
    ),
    "data is never markup": (
        "dom.js",
        "return (p => [p.title, p.textContent, p.children.length])(m.h('p', { title: '<b>' }, '<i>', null, false, 3));",
        ["<b>", "<i>3", 0],
    ),
    "counts have the right form": (
        "texts.js",
        "return [1, 2].map(n => m.t('count.steps', { n }));",
        ["1 step", "2 steps"],
    ),
    "hits are grouped by video, the best first": (
        "collection/results.js",
        """const hits = [["a", 0.2], ["b", 0.9], ["a", 0.5]].map(([video, probability]) => ({ video, probability }));
        return m.groupByVideo(hits).map(({ video, hits }) => [video, hits.map(hit => hit.probability)]);""",
        [["b", [0.9]], ["a", [0.5, 0.2]]],
    ),
    "clips play in sync, as they are or stretched": (
        "collection/elsewhere.js",
        """const clips = [{ start_s: 10, end_s: 20 }, { start_s: 0, end_s: 4 }];
        return [m.clipTimes(0.5, clips, false), m.clipTimes(0.5, clips, true)];""",
        [[15, 4], [15, 2]],
    ),
    "the time left of a queue is that of its last job": (
        "collection/progress.js",
        "return m.totalLeft([{ left_s: 100 }, { left_s: 300 }, { left_s: null }]);",
        300,
    ),
    "facets with a choice are useful": (
        "collection/facets.js",
        """const useful = m.usefulFacets({ folder: [{}, {}], month: [{}] }, { person: "anna" });
        return [useful, m.facetLabel("month", "2026-11")];""",
        [["folder", "person"], "November 2026"],
    ),
}


@pytest.fixture(scope="module")
def blank(browser):
    """An empty page that can import the modules."""
    page = browser.new_page()

    def answer(route):
        path = route.request.url.removeprefix("http://page.test/")
        if not path:
            route.fulfill(content_type="text/html", body="<!doctype html><title>test</title>")
        else:
            route.fulfill(content_type=TYPES[Path(path).suffix], body=(STATIC / path).read_text())

    page.route("http://page.test/**", answer)
    page.goto("http://page.test/")
    yield page
    page.close()


def run(page, module, code):
    """What `code` returns, with the exports of a module as `m`."""
    return page.evaluate(f"async () => {{ const m = await import('/{module}'); {code} }}")


@pytest.mark.parametrize("name", BEHAVIOUR)
def test_of_a_module(blank, name):
    module, code, expected = BEHAVIOUR[name]
    assert run(blank, module, code) == expected


def test_white_text_on_the_colour_of_a_thread_is_readable(blank):
    """At least 4.5 for the text, and 3 between the colour and both backgrounds."""
    code = """const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
        const linear = c => c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4;
        const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
        const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), dark = luminance([22, 25, 31]);
        return Array.from({ length: 60 }, (_, thread) => {
            context.fillStyle = m.threadColour(thread);
            context.fillRect(0, 0, 1, 1);
            const own = luminance(context.getImageData(0, 0, 1, 1).data);
            return [contrast(1, own), contrast(own, dark)];
        });"""
    for thread, (text, dark) in enumerate(run(blank, "format.js", code)):
        assert text >= 4.5, thread
        assert dark >= 3, thread


def test_every_text_is_in_one_file_and_used():
    pages = (Path(hiero.serve.__file__).parents[1] / "formats").glob("*.html")
    source = {path: path.read_text() for path in [*MODULES, *pages]}
    keys = set(json.loads((STATIC / "texts.json").read_text()))
    code = "\n".join(source.values())
    used = set(re.findall(r'"([a-z_]+\.[\w.]+)"', code))
    built = tuple(re.findall(r"t\(`([a-z_]+\.)\$", code))  # such as sort.${value}
    used |= {key for key in keys if key.startswith(built)}
    assert sorted(keys - used) == []
    called = set(re.findall(r'\bt\("([\w.]+)"', code))
    assert sorted(called - keys) == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_a_module_is_typed_and_reaches_nobody_else(path):
    text = path.read_text()
    assert text.startswith("// @ts-check\n")
    assert "innerHTML" not in text
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)


def test_types():
    """What `make check-page` runs, where it has been installed."""
    compiler = Path(__file__).parent / "node_modules" / "typescript" / "bin" / "tsc"
    node = shutil.which("node")
    if node is None or not compiler.exists():
        pytest.skip("needs TypeScript: make check-page")
    done = subprocess.run([node, compiler, "-p", Path(__file__).parent], capture_output=True, text=True)
    assert done.stdout == ""
