/* Small repairs to the theme's markup, so that assistive technology reads what the eye sees. */
(function () {
  "use strict";

  function repair() {
    // A visible text and a different aria-label contradict each other.
    document.querySelectorAll("button.search-button-field, summary[aria-label]").forEach(function (node) {
      if (node.textContent.trim()) {
        node.removeAttribute("aria-label");
      }
    });
    // The sidebar's toggles show an arrow only: name them after the page whose children they fold.
    document.querySelectorAll(".bd-sidebar-primary summary").forEach(function (node) {
      var link = node.closest("li").querySelector("a");
      if (!node.textContent.trim() && link) {
        node.setAttribute("aria-label", "Pages below " + link.textContent.trim());
      }
    });
    // role=list whose entries are no list items.
    document.querySelectorAll(".citation-list").forEach(function (node) {
      node.removeAttribute("role");
    });
    // Icons of the theme switch carry titles that differ from the button's name.
    document.querySelectorAll(".theme-switch-button").forEach(function (button) {
      button.querySelectorAll("i, svg").forEach(function (icon) {
        icon.setAttribute("aria-hidden", "true");
        icon.removeAttribute("title");
      });
      button.querySelectorAll("svg title").forEach(function (title) {
        title.remove();
      });
    });
    // What scrolls sideways must be reachable by keyboard; the theme sees to code and outputs, not to formulas.
    document.querySelectorAll("div.math").forEach(function (node) {
      if (node.scrollWidth > node.clientWidth + 1) {
        node.setAttribute("tabindex", "0");
      }
    });
  }

  // A link to one claim opens the folded table it stands in.
  function reveal() {
    var id = decodeURIComponent(window.location.hash.slice(1));
    var target = id && document.getElementById(id);
    var details = target && target.closest("details");
    if (details) {
      details.open = true;
      target.scrollIntoView();
    }
  }

  // Font Awesome replaces icons between the two events, so both are needed.
  document.addEventListener("DOMContentLoaded", repair);
  window.addEventListener("load", function () {
    repair();
    reveal();
  });
  window.addEventListener("hashchange", reveal);
  window.addEventListener("resize", repair);
})();
