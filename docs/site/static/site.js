/* An element that is wider than the screen scrolls by itself, so keyboard users must be able to focus it. */
const wide = new ResizeObserver((changes) => {
  for (const { target } of changes) {
    if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});
document.querySelectorAll("pre, .table-wrapper").forEach((element) => wide.observe(element));
