"""One look at a page: what it asked for, what it logged, what it shows, and what axe finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path

READY = """() => document.readyState === "complete" &&
  (!document.querySelector(".math") || (window.MathJax && MathJax.startup && MathJax.startup.promise))"""
SETTLE = "async () => { if (window.MathJax && MathJax.startup) await MathJax.startup.promise; }"
MATHEMATICS = """() => ({
  wanted: document.querySelectorAll(".math").length,
  shown: document.querySelectorAll("mjx-container").length,
  wrong: [...document.querySelectorAll("mjx-merror, [data-mjx-error]")].map(n => n.textContent),
  raw: [...document.querySelectorAll(".math")].filter(n => /\\\\\\(|\\\\\\[/.test(n.textContent)).length,
})"""
OVERFLOW = """() => ({
  page: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  wide: [...document.querySelectorAll(".bd-article *")].filter(n => {
    for (let p = n; p && p !== document.body; p = p.parentElement)
      if (["auto", "scroll", "hidden"].includes(getComputedStyle(p).overflowX)) return false;
    return n.getBoundingClientRect().right > document.documentElement.clientWidth + 1;
  }).slice(0, 3).map(n => n.outerHTML.slice(0, 120)),
})"""
BROKEN = """() => [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"""
SERIOUS = """
  const serious = found => found.violations.filter(v => ["serious", "critical"].includes(v.impact))
    .map(v => `${v.id} (${v.impact}): ${v.nodes.slice(0, 3).map(n => n.html.slice(0, 160)).join(" | ")}`);
"""
AXE = (
    "async () => {"
    + SERIOUS
    + """
  const rules = {"color-contrast": {enabled: false}};  // seen to by CONTRAST
  return serious(await axe.run(document, {preload: false, resultTypes: ["violations"], rules}));
}"""
)
FOCUSABLE = (
    "async () => {"
    + SERIOUS
    + """
  const runOnly = {type: "rule", values: ["scrollable-region-focusable"]};
  return serious(await axe.run(document, {preload: false, resultTypes: ["violations"], runOnly}));
}"""
)
# Contrast depends on ink, ground and size alone: one element a combination says what thousands would.
CONTRAST = (
    "async () => {"
    + SERIOUS
    + r"""
  const clear = /, 0\)$|^transparent$/;
  const ground = node => {
    for (let p = node; p; p = p.parentElement) {
      const s = getComputedStyle(p);
      if (s.backgroundImage !== "none" || !clear.test(s.backgroundColor)) return s.backgroundColor + s.backgroundImage;
    }
    return "";
  };
  const kinds = new Map();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || node.closest("mjx-container, script, style") || !node.checkVisibility())
      continue;
    const s = getComputedStyle(node);
    const kind = [s.color, s.fontSize, s.fontWeight, s.opacity, ground(node)].join();
    if (!kinds.has(kind)) kinds.set(kind, node);
  }
  const runOnly = {type: "rule", values: ["color-contrast"]};
  const include = [...kinds.values()];
  return serious(await axe.run({include}, {preload: false, resultTypes: ["violations"], runOnly}));
}"""
)
TYPESET = "() => [...document.querySelectorAll('mjx-container')].map(n => n.textContent).join(' ')"
CUT = """() => [...document.querySelectorAll("div.math")].filter(n => {
  const shown = n.querySelector("mjx-container");
  return shown && Math.max(n.scrollWidth - n.clientWidth, shown.scrollWidth - shown.clientWidth) > 1;
}).map(n => n.id || n.textContent.slice(0, 60))"""
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
ALLOWED = ("data:", "blob:", "about:")


@dataclass
class Visit:
    """What was seen on one page; each list is empty on a good one."""

    page: str
    foreign: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)
    mathematics: dict = field(default_factory=dict)
    overflow: dict = field(default_factory=dict)
    typeset: str = ""
    cut: list[str] = field(default_factory=list)
    broken_images: list[str] = field(default_factory=list)
    axe: list[str] = field(default_factory=list)


@cache
def axe_source() -> str:
    """axe-core, from the package that carries it."""
    return (Path(find_spec("axe_playwright_python").origin).parent / "axe.min.js").read_text(encoding="utf-8")


def look(context, base: str, page: str, *, axe: bool) -> Visit:
    """Open a page in a context without network; wide and light first, then narrow, then dark."""
    seen = Visit(page)
    tab = context.new_page()
    try:
        tab.set_viewport_size(WIDE)
        tab.emulate_media(color_scheme="light")
        tab.on(
            "request", lambda r: None if r.url.startswith((base, *ALLOWED)) else seen.foreign.append(r.url)
        )
        tab.on("console", lambda m: seen.logged.append(m.text) if m.type in ("error", "warning") else None)
        tab.on("pageerror", lambda error: seen.logged.append(str(error)))
        tab.on("response", lambda r: seen.missing.append(r.url) if r.status >= 400 else None)
        tab.on("requestfailed", lambda r: seen.missing.append(r.url) if r.url.startswith(base) else None)
        tab.goto(base + page)
        tab.wait_for_function(READY)
        tab.evaluate(SETTLE)
        tab.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        seen.mathematics = tab.evaluate(MATHEMATICS)
        seen.broken_images = tab.evaluate(BROKEN)
        seen.typeset = tab.evaluate(TYPESET)
        seen.cut = tab.evaluate(CUT)
        if axe:
            tab.evaluate(axe_source())
            seen.axe += tab.evaluate(AXE) + tab.evaluate(CONTRAST)
        tab.set_viewport_size(NARROW)
        seen.overflow = tab.evaluate(OVERFLOW)
        if axe:
            tab.wait_for_timeout(400)  # the theme makes what now scrolls focusable, a little later
            seen.axe += [f"narrow: {v}" for v in tab.evaluate(FOCUSABLE)]
            tab.set_viewport_size(WIDE)
            tab.add_style_tag(content="*, *::before, *::after { transition: none !important; }")
            tab.emulate_media(color_scheme="dark")
            tab.wait_for_function("document.documentElement.dataset.theme === 'dark'")
            tab.wait_for_timeout(250)
            seen.axe += [f"dark: {v}" for v in tab.evaluate(CONTRAST)]
    finally:
        tab.close()
    return seen
