"""Tests of the page of `attnbench report` in a browser: headless Chromium, which `make setup` installs."""

from contextlib import contextmanager

import pytest
from conftest import ROOT, opened_page
from test_report import HOSTILE, LENGTHS, absent, certain, folder, gate, report, rows


@contextmanager
def opened(chromium, tmp_path, text, **context):
    """The page in a browser, with its charts. Fails as opened_page() does."""
    path = tmp_path / "opened.html"
    path.write_text(text, "utf-8")
    with opened_page(chromium, path, **context) as page:
        page.wait_for_selector(".panel svg .mark-symbol path")
        yield page


def marks(page, panel=0):
    return page.locator(".chart").first.locator(".panel").nth(panel).locator(".mark-symbol path")


def choose(page, label, text):
    page.get_by_label(label, exact=True).first.select_option(label=text)


def titles(page):
    """The titles of the axes of the first panel."""
    return page.locator(".panel").first.locator(".role-axis-title text").all_text_contents()


def test_charts_are_drawn_with_a_mark_for_each_record_and_a_cross_for_each_gap(chromium, tmp_path):
    with opened(chromium, tmp_path, report(tmp_path, folder(tmp_path))) as page:
        page.wait_for_function("document.querySelectorAll('.panel .mark-symbol path').length === 9")
        assert titles(page) == ["Sequence length N", "Time per sequence"]


def test_a_point_tells_its_case(chromium, tmp_path):
    with opened(chromium, tmp_path, report(tmp_path, folder(tmp_path))) as page:
        marks(page).first.hover(force=True)
        told = page.locator("#vg-tooltip-element.visible")
        told.wait_for()
        text = told.inner_text()
        assert "Method" in text and "kernel/avx512" in text and "± 1 %" in text
        # The first point is of sdpa, which is not compared with itself, and the fifth of linear.
        factor = told.locator("tr", has_text="× as fast as sdpa").locator("td.value")
        assert factor.inner_text() == "–"
        marks(page).nth(4).hover(force=True)
        told.filter(has_text="linear").wait_for()
        assert factor.inner_text() == "0.512"


def test_methods_are_switched_off_and_on_with_the_keyboard(chromium, tmp_path):
    with opened(chromium, tmp_path, report(tmp_path, folder(tmp_path))) as page:
        box = page.locator(".legend label", has_text="linear").locator("input")
        box.focus()
        page.keyboard.press("Space")
        page.wait_for_function("document.querySelectorAll('.panel .mark-symbol path').length === 5")
        page.keyboard.press("Space")
        page.wait_for_function("document.querySelectorAll('.panel .mark-symbol path').length === 9")


def test_quantities_ratios_and_scales_are_chosen(chromium, tmp_path):
    with opened(chromium, tmp_path, report(tmp_path, folder(tmp_path))) as page:
        choose(page, "Vertical axis", "Peak memory above the inputs")
        page.wait_for_function("[...document.querySelectorAll('.panel text')].some(t => t.textContent === 'Peak memory above the inputs per sequence')")
        choose(page, "Vertical axis", "Time")
        choose(page, "Divided by", "sdpa")
        page.wait_for_function("[...document.querySelectorAll('.panel text')].some(t => t.textContent === 'Time / that of sdpa')")
        page.get_by_label("logarithmic").first.uncheck()
        page.get_by_label("per sequence").first.uncheck()
        page.wait_for_function("document.querySelectorAll('.panel .mark-symbol path').length === 9")


def test_settings_have_panels_that_are_switched_off(chromium, tmp_path):
    found = [*rows(), *rows(protocol="forward_backward")]
    with opened(chromium, tmp_path, report(tmp_path, folder(tmp_path, found=found))) as page:
        assert page.locator(".panel h4").all_text_contents() == ["Forward", "Forward + backward"]
        page.get_by_label("Forward + backward").first.uncheck()
        page.wait_for_function("document.querySelectorAll('.panel').length === 1")
        page.get_by_label("Forward", exact=True).first.uncheck()
        page.get_by_text("Nothing that is chosen has a value.").wait_for()


def test_the_table_is_sorted_and_filtered(chromium, tmp_path):
    with opened(chromium, tmp_path, report(tmp_path, folder(tmp_path))) as page:
        table = page.locator(".records")
        button = table.locator("thead").get_by_role("button", name="time of a call", exact=True)
        button.focus()
        page.keyboard.press("Enter")
        assert table.locator('th[aria-sort="ascending"]').inner_text().startswith("time of a call")
        assert "2.1 ms" in table.locator("tbody tr").first.inner_text()
        button.press("Enter")
        assert "268" in table.locator("tbody tr").first.inner_text()
        assert "skipped" in table.locator("tbody tr").last.inner_text(), "rows without a value are last"
        table.get_by_role("searchbox").fill("linear -16384")
        assert table.locator("tbody tr").count() == 3
        assert table.locator("caption").inner_text() == "3 of 9 records"
        table.get_by_role("searchbox").fill("")
        table.get_by_label("Outcome").select_option("skipped")
        assert table.locator("tbody tr").count() == 1


def test_the_details_of_a_record_have_every_column_and_the_command(chromium, tmp_path):
    with opened(chromium, tmp_path, report(tmp_path, folder(tmp_path))) as page:
        page.get_by_role("button", name="Details").first.click()
        dialog = page.get_by_role("dialog")
        assert "attnbench measure sdpa" in dialog.inner_text()
        assert "median of the samples, for one call" in dialog.inner_text()
        page.keyboard.press("Escape")
        assert not dialog.is_visible()


def test_thousands_of_records_are_shown_in_parts(chromium, tmp_path):
    found = [certain(f"linear:chunk={k}", n, n / 1e3) for k in range(1, 151) for n in LENGTHS]
    with opened(chromium, tmp_path, report(tmp_path, folder(tmp_path, found=found))) as page:
        table = page.locator(".records")
        assert table.locator("tbody tr").count() == 200
        page.get_by_role("button", name="Show more records").click()
        assert table.locator("tbody tr").count() == 400


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_needs_no_sideways_scrolling_and_texts_have_contrast(chromium, tmp_path, scheme):
    small = {"viewport": {"width": 360, "height": 740}, "color_scheme": scheme}
    found = [*rows(), *rows(protocol="forward_backward")]
    with opened(chromium, tmp_path, report(tmp_path, folder(tmp_path, found=found)), **small) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.evaluate(CONTRAST) >= 4.5


# The smallest contrast of any text outside charts with the background behind it.
CONTRAST = """() => {
  const parse = (colour) => (colour.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; })
    .reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour.length && (colour.length < 4 || colour[3] > 0)) return colour;
    }
    return [255, 255, 255];
  };
  let least = 21;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || element.closest("svg, script, style, noscript, dialog") || !element.checkVisibility()) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(behind(element))].sort((x, y) => y - x);
    least = Math.min(least, (a + 0.05) / (b + 0.05));
  }
  return least;
}"""


def test_everything_can_be_reached_with_the_keyboard(chromium, tmp_path):
    with opened(chromium, tmp_path, report(tmp_path, folder(tmp_path))) as page:
        reached = set()
        for _ in range(200):
            page.keyboard.press("Tab")
            name = page.evaluate("document.activeElement.tagName + ' ' + (document.activeElement.textContent || document.activeElement.type)")
            if name.startswith("BODY"):
                break
            reached.add(name)
        assert {"A Skip to the results", "BUTTON Copy", "INPUT checkbox", "BUTTON time of a call", "BUTTON Details", "INPUT search"} <= reached


def test_hostile_texts_run_nothing(chromium, tmp_path):
    found = [certain(f"mine.py:{HOSTILE}", n, n / 1e3) for n in LENGTHS]
    found.append(absent(f"mine.py:{HOSTILE}", 32768, "invalid", reason=HOSTILE))
    made = folder(tmp_path, sweep=HOSTILE, description=HOSTILE, found=found)
    with opened(chromium, tmp_path, report(tmp_path, made, "--title", HOSTILE)) as page:
        page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
        marks(page).first.hover(force=True)
        page.locator("#vg-tooltip-element.visible").wait_for()
        page.get_by_role("button", name="Details").first.click()
        assert page.locator("img").count() == 0
        assert HOSTILE in page.locator("h1").inner_text()


def test_two_folders_are_drawn_over_each_other(chromium, tmp_path):
    folder(tmp_path, "before")
    folder(tmp_path, "after", found=[r | {"finished_at": "2026-01-03T00:00:00Z"} for r in rows()])
    with opened(chromium, tmp_path, report(tmp_path, tmp_path / "before", tmp_path / "after")) as page:
        page.wait_for_function("document.querySelectorAll('.panel .mark-symbol path').length === 18")
        page.get_by_label("before", exact=True).first.uncheck()
        page.wait_for_function("document.querySelectorAll('.panel .mark-symbol path').length === 9")


def test_each_of_two_runs_has_a_colour_everywhere(chromium, tmp_path):
    folder(tmp_path, "before")
    folder(tmp_path, "after", found=[r | {"finished_at": "2026-01-03T00:00:00Z"} for r in rows()])
    with opened(chromium, tmp_path, report(tmp_path, tmp_path / "before", tmp_path / "after")) as page:
        page.wait_for_function("document.querySelectorAll('.panel .mark-symbol path').length === 18")
        one, other = (page.locator(f".run.{name}").first.evaluate("e => getComputedStyle(e).color") for name in ("one", "other"))
        assert one != other
        drawn = page.locator(".panel .mark-symbol path").evaluate_all("all => all.map(e => getComputedStyle(e).stroke)")
        assert sorted(map(drawn.count, {one, other})) == [8, 8], "all marks but the crosses of the gap"
        for place in (".legend", "thead", ".records tbody", "h4"):
            texts = {t.strip() for t in page.locator(f"{place} .run").all_inner_texts()}
            assert {"before", "after"} <= texts, place
        page.get_by_text("Choose axes, settings and scales").first.click()
        choose(page, "Colours", "one for each method")
        page.wait_for_function("new Set([...document.querySelectorAll('.panel .mark-symbol path')].map(e => getComputedStyle(e).stroke)).size === 2")
        again = set(page.locator(".panel .mark-symbol path").evaluate_all("all => all.map(e => getComputedStyle(e).stroke)"))
        assert again != {one, other}


def test_errors_of_exact_methods_are_drawn_at_the_edge(chromium, tmp_path):
    found = [r | {"quality_row_error_median": 0.5 if r["method"] == "linear" else 2e-7} for r in rows() if r["outcome"] == "measured"]
    with opened(chromium, tmp_path, report(tmp_path, folder(tmp_path, found=found))) as page:
        choose(page, "Vertical axis", "Distance of a row from exact attention")
        page.wait_for_function("document.querySelector('.panel').textContent.includes('Distance')")
        assert titles(page)[1] == "Distance of a row from exact attention, ≥ 0.001"
        labels = page.locator(".panel").first.locator(".role-axis-label text").all_text_contents()
        assert "0.001" in labels and not any(label.startswith("0.0000") for label in labels)
        page.wait_for_timeout(500)
        marks(page).first.hover(force=True)
        told = page.locator("#vg-tooltip-element.visible")
        told.wait_for()
        assert "2.00e-7" in told.inner_text(), "a point tells its own error"


def edges(page, label):
    """The sides on which a table goes on, by the shadows at its edges."""
    place = page.get_by_role("region", name=label, exact=True).locator("xpath=..")
    return {side for side in ("left", "right", "below")
            if place.locator(f"> .{side}").evaluate("e => getComputedStyle(e).opacity") not in ("0",)}  # fmt: skip


def test_a_table_that_goes_on_has_a_shadow_at_that_edge_and_a_scrollbar(chromium, tmp_path):
    found = [certain(f"linear:chunk={k}", n, n / 1e3) for k in range(1, 10) for n in LENGTHS]
    small = {"viewport": {"width": 360, "height": 740}}
    with opened(chromium, tmp_path, report(tmp_path, folder(tmp_path, found=found)), **small) as page:
        table = page.get_by_role("region", name="Records", exact=True)
        page.wait_for_function("document.querySelectorAll('.edges.more-right.more-below').length >= 1")
        page.wait_for_timeout(300)
        assert edges(page, "Records") == {"right", "below"}
        hint = page.locator(".records caption").first
        said = "e => getComputedStyle(e, '::after').content"
        assert "more columns to the right →" in hint.evaluate(said)
        bar = table.evaluate("e => ['width', 'height'].map(n => getComputedStyle(e, '::-webkit-scrollbar')[n])")
        assert bar == ["11px", "11px"], "the scrollbars are there before anybody scrolls"
        table.evaluate("e => e.scrollTo(e.scrollWidth, e.scrollHeight)")
        page.wait_for_timeout(400)
        assert edges(page, "Records") == {"left"}
        assert hint.evaluate(said) == "none"


def top_of(page, selector):
    return page.locator(selector).first.bounding_box()["y"]


def test_the_charts_are_on_the_first_screen_and_on_a_phone_on_the_second(chromium, tmp_path):
    made = report(tmp_path, ROOT / "results/figure1")
    with opened(chromium, tmp_path, made, viewport={"width": 1280, "height": 800}) as page:
        box = page.locator(".panel .plot").first.bounding_box()
        assert box["y"] + box["height"] <= 800, "the first panels are seen whole"
    with opened(chromium, tmp_path, made, viewport={"width": 360, "height": 740}) as page:
        assert top_of(page, ".panel .plot") + 200 <= 2 * 740
        assert not page.locator(".controls").first.is_visible(), "the choices are folded on a phone"
        page.get_by_text("Choose axes, settings and scales").first.click()
        assert page.get_by_label("Vertical axis").first.is_visible()


def test_with_two_runs_what_changed_is_before_the_charts_which_are_on_the_first_screen(chromium, tmp_path):
    made = report(tmp_path, ROOT / "results/repeat")
    with opened(chromium, tmp_path, made, viewport={"width": 1280, "height": 800}) as page:
        assert top_of(page, "h3") < top_of(page, ".panel .plot") <= 600
        assert page.locator("h3").first.inner_text() == "What changed"


def test_a_history_is_drawn_over_its_runs(chromium, tmp_path):
    for k in range(3):
        folder(tmp_path, f"run-{k}", found=[r | {"finished_at": f"2026-01-0{k + 1}T00:00:00Z"} for r in rows()])
    with opened(chromium, tmp_path, report(tmp_path, tmp_path)) as page:
        history = page.locator("[data-chart$=history]")
        history.scroll_into_view_if_needed()
        title = history.locator(".role-axis-title text").first
        title.wait_for()
        assert title.text_content() == "Run, in the order of their dates"


def test_the_ratios_of_the_gate_are_drawn_over_its_runs(chromium, tmp_path):
    gate(tmp_path, "first", "2026-01-02T00:00:00Z", (1.0, 1.0))
    gate(tmp_path, "second", "2026-02-02T00:00:00Z", (1.2, 1.0), ("regression", "pass"), "regression")
    with opened(chromium, tmp_path, report(tmp_path, tmp_path)) as page:
        page.wait_for_function("document.querySelectorAll('.panel .mark-symbol path').length === 4")
        marks(page).last.hover(force=True)
        told = page.locator("#vg-tooltip-element.visible")
        told.wait_for()
        assert "second" in told.inner_text()
        assert titles(page) == ["Run, in the order of their dates", "Candidate / base"]


def test_the_curves_and_the_images_of_an_experiment_are_shown(chromium, tmp_path):
    with opened(chromium, tmp_path, report(tmp_path, ROOT / "results/digits")) as page:
        assert page.locator("img").evaluate("image => image.naturalWidth") > 500
        choose(page, "Horizontal axis", "Wall time of the updates (s)")
        page.wait_for_function("[...document.querySelectorAll('.panel text')].some(t => t.textContent === 'Wall time of the updates (s)')")


def test_a_print_has_the_answers_and_no_controls(chromium, tmp_path):
    with opened(chromium, tmp_path, report(tmp_path, folder(tmp_path))) as page:
        page.emulate_media(media="print")
        assert page.get_by_text("The fastest of the methods that were measured at a length, and the time of one sequence").is_visible()
        assert not page.locator(".controls").first.is_visible() and not page.locator(".copy").first.is_visible()
