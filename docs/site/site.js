/* What the theme leaves out for readers with a keyboard or a screen reader: what scrolls takes the focus, and
   no two landmarks have the same name. The theme wraps tables and adds buttons after the page has loaded. */
const mend = () => {
  for (const each of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code")) each.tabIndex = 0;
  for (const each of document.querySelectorAll(".md-code__nav")) each.setAttribute("role", "none");
  // Commands are copied without their prompt and what they print.
  for (const each of document.querySelectorAll(".md-code__button[data-clipboard-target]:not([data-clipboard-text])")) {
    const lines = document.querySelector(each.dataset.clipboardTarget)?.textContent.split("\n") ?? [];
    const commands = lines.filter((line) => line.startsWith("$ ")).map((line) => line.slice(2));
    if (commands.length) each.dataset.clipboardText = commands.join("\n");
  }
  document.querySelector(".md-path")?.setAttribute("aria-label", "Path");
  document.querySelector(".md-nav--primary")?.setAttribute("aria-label", "All pages");
};
mend();
new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
