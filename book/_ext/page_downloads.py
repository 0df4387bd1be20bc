"""The download menu in a page's header offers the chapter's three files instead of the staged source.

Staging writes ``downloads.json`` beside this book's configuration:
``{docname: [[label, path from the site's root], …]}``.
"""

from __future__ import annotations

import json
from pathlib import Path

ICONS = {".ipynb": "fas fa-code", ".md": "fas fa-file"}
MENU = "download-buttons"


def downloads_of(app):
    """Read the list of downloads once a build."""
    if not hasattr(app, "page_downloads"):
        path = Path(app.srcdir) / "downloads.json"
        app.page_downloads = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return app.page_downloads


def offer(app, pagename, templatename, context, doctree):
    """Replace the theme's download menu; a page without downloads keeps only printing."""
    buttons = context.get("header_buttons")
    if buttons is None:
        return
    buttons[:] = [button for button in buttons if button.get("label") != MENU]
    links = [
        {
            "type": "link",
            "url": context["pathto"](path, 1),
            "text": label,
            "tooltip": f"Download the {label}",
            "icon": ICONS.get(Path(path).suffix, "fas fa-file"),
            "label": f"download-{Path(path).suffix.strip('.')}-button",
        }
        for label, path in downloads_of(app).get(pagename, [])
    ]
    printing = {
        "type": "javascript",
        "javascript": "window.print()",
        "text": "Print or PDF",
        "tooltip": "Print this page",
        "icon": "fas fa-file-pdf",
        "label": "download-pdf-button",
    }
    menu = {
        "type": "group",
        "tooltip": "Download this page",
        "icon": "fas fa-download",
        "buttons": [*links, printing],
        "label": MENU,
    }
    buttons.insert(0, menu)


def setup(app):
    """Run after the theme has filled its menu (priority 501)."""
    app.connect("html-page-context", offer, priority=600)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
