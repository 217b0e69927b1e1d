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


def run(page, module, code, argument=None):
    """What `code` returns, with the exports of a module as `m`."""
    return page.evaluate(f"async argument => {{ const m = await import('/{module}'); {code} }}", argument)


def test_names_and_numbers(blank):
    code = (
        TWO_LEVELS
        + """
        steps.levels[1].steps[1].label = "pour";
        const entries = m.indexSteps(steps);
        return ["a", "b", "1", "2", "3"].map(id => entries.get(id).title);"""
    )
    assert run(blank, "video/steps.js", code) == ["pour", "Part 2", "Step 1", "pour", "Step 3"]


def test_a_step_that_is_its_parent_is_one_chapter(blank):
    code = (
        TWO_LEVELS
        + """
        const show = ({ chain, children }) => [chain.join("="), ...children.map(show)];
        return m.chapterTree(steps, m.indexSteps(steps)).map(show);"""
    )
    assert run(blank, "video/steps.js", code) == [["a", ["1"], ["2"]], ["b=3"]]


def test_repeated_activities_and_the_step_at_a_time(blank):
    code = (
        TWO_LEVELS
        + """
        const [only] = m.repeatedActivities(steps), fine = steps.levels[1].steps;
        const found = [0, 3.9, 4, 29, 99].map(time => m.stepAt(fine, time).id);
        return [only.steps.map(({ id }) => id), only.seconds, found];"""
    )
    assert run(blank, "video/steps.js", code) == [["1", "3"], 22, ["1", "1", "2", "3", "3"]]


def test_a_guess_has_a_question_mark(blank):
    code = (
        TWO_LEVELS
        + """
        const [first, second] = steps.levels[1].steps;
        Object.assign(first, { label: "wash", probability: 0.79 });
        Object.assign(second, { label: "pour", probability: 0.8 });
        const entries = m.indexSteps(steps);
        return ["1", "2"].map(id => entries.get(id).title);"""
    )
    assert run(blank, "video/steps.js", code) == ["wash?", "pour"]


def test_names_that_people_gave_are_suggested_first(blank):
    code = (
        TWO_LEVELS
        + """
        for (const s of steps.levels[1].steps) s.label = "often";
        Object.assign(steps.levels[0].steps[0], { label: "mine", origin: "person" });
        return m.usedNames(steps);"""
    )
    assert run(blank, "video/steps.js", code) == ["mine", "often"]


def test_a_parent_with_the_same_span_follows(blank):
    code = (
        TWO_LEVELS
        + """
        const edited = m.rename(steps, "3", "fry"), all = edited.levels.flatMap(({ steps }) => steps);
        return [all.filter(({ label }) => label === "fry").map(({ id }) => id), steps.levels[1].steps[2].label];"""
    )
    assert run(blank, "video/edit.js", code) == [["b", "3"], None]  # and the steps before the edit are untouched


def test_a_boundary_moves_on_every_level_that_has_it(blank):
    code = (
        TWO_LEVELS
        + """
        const moved = m.moveStart(steps, "3", 14), times = moved.levels.map(({ steps }) => steps.map(s => s.start_s));
        const { low, high } = m.startLimits(steps, "3");
        return [times, [low, high].map(Math.round)];"""
    )
    assert run(blank, "video/edit.js", code) == [[[0, 14], [0, 4, 14]], [4, 30]]


def test_a_coarse_step_is_split_with_what_it_holds(blank):
    """Near a boundary of a finer level all levels are cut there: they stay nested."""
    code = (
        STEP
        + """
        const steps = { duration_s: 10, levels: [
          { steps: [step("0.0", 0, 10)] }, { steps: [step("1.0", 0, 10, 0, { parent: "0.0" })] },
          { steps: [step("2.0", 0, 5.1, 0, { parent: "1.0" }), step("2.1", 5.1, 10, 0, { parent: "1.0" })] }] };
        return m.split(steps, "0.0", 5.0).levels.map(({ steps }) => steps.map(s => [s.start_s, s.end_s, s.parent]));"""
    )
    levels = run(blank, "video/edit.js", code)
    assert [[row[:2] for row in level] for level in levels] == [[[0, 5.1], [5.1, 10]]] * 3
    assert levels[2][1][2] != "1.0"


def test_the_scale_zooms_around_a_place_and_stays_inside(blank):
    code = """const scale = new m.Scale(100, 1000), before = scale.time(250);
        scale.zoom(4, 250);
        const seen = [Math.round(scale.shown), Math.abs(scale.time(250) - before) < 1e-6];
        scale.pan(-1e6); seen.push(scale.from);
        scale.pan(1e6); seen.push(scale.to);
        scale.zoom(1e9, 0); seen.push(scale.shown);
        scale.reveal(10); seen.push(scale.from <= 10 && scale.to >= 10);
        scale.fit(); seen.push(scale.isFitted, scale.x(50), scale.ticks(90));
        return seen;"""
    seen = run(blank, "video/scale.js", code)
    assert seen == [25, True, 0, 100, 4, True, True, 500, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]]


def test_texts_fit_their_space(blank):
    code = "return [m.fitText('cut the onion', 100, 80), m.fitText('cut the onion', 50, 100), m.fitText('cut', 5, 30)];"
    assert run(blank, "video/scale.js", code) == ["cut the onion", "cut t…", ""]


def test_marks_fade_with_probability(blank):
    opacities = run(blank, "video/timeline_draw.js", "return [0, 0.3, 0.6, 1].map(m.matchOpacity);")
    assert opacities == sorted(opacities)
    assert opacities[0] < 0.2
    assert opacities[-1] == 1


def test_how_sure_it_is_in_words_and_percent(blank):
    code = "return [0.004, 0.3, 0.6, 0.9].map(p => `${m.certainty(p)} ${m.percent(p)}`);"
    assert run(blank, "format.js", code) == ["unlikely < 1 %", "possible 30 %", "likely 60 %", "very likely 90 %"]


def test_answers_that_are_unlikely_are_shown_on_request(blank):
    code = """
        const matches = [.7, .3, .04].map(probability => ({ start_s: 0, end_s: 1, probability }));
        const count = (present, showsAll) => m.shownMatches({ answer: { present, matches }, showsAll }).length;
        return [count(true, false), count(true, true), count(false, false), count(false, true)];"""
    assert run(blank, "video/answers.js", code) == [2, 3, 0, 3]


def test_time_left(blank):
    left = run(blank, "format.js", "return [null, 20, 170, 5400].map(m.formatLeft);")
    assert left == ["", "less than a minute left", "about 3 min left", "about 1.5 h left"]


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


def test_data_is_never_markup(blank):
    code = (
        "return (p => [p.title, p.textContent, p.children.length])(m.h('p', { title: '<b>' }, '<i>', null, false, 3));"
    )
    assert run(blank, "dom.js", code) == ["<b>", "<i>3", 0]


def test_counts_have_the_right_form(blank):
    assert run(blank, "texts.js", "return [1, 2].map(n => m.t('count.steps', { n }));") == ["1 step", "2 steps"]


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


def test_modules_stay_small_and_typed():
    sizes = {str(path.relative_to(STATIC)): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: size for name, size in sizes.items() if size >= 300} == {}
    files = [*MODULES, *STATIC.rglob("*.css")]
    assert sum(len(path.read_text().splitlines()) for path in files) < 4000
    for path in MODULES:
        text = path.read_text()
        assert text.startswith("// @ts-check\n"), path
        assert "innerHTML" not in text, path
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), path


@pytest.mark.slow
def test_types():
    """What `make check-page` runs, where it has been installed."""
    compiler = Path(__file__).parent / "node_modules" / "typescript" / "bin" / "tsc"
    node = shutil.which("node")
    if node is None or not compiler.exists():
        pytest.skip("needs TypeScript: make check-page")
    done = subprocess.run([node, compiler, "-p", Path(__file__).parent], capture_output=True, text=True)
    assert done.stdout == ""
