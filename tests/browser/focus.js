// What can be reached by the keyboard and does not show that it was; press a key before.
() => {
  const reached = [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary")]
    .filter((el) => el.checkVisibility({ visibilityProperty: true }) && !el.disabled && el.tabIndex >= 0);
  const wrong = reached.filter((el) => {
    el.focus();
    const { outlineStyle, outlineWidth } = getComputedStyle(el);
    return document.activeElement !== el || outlineStyle === "none" || parseFloat(outlineWidth) < 2;
  });
  return { reached: reached.length, wrong: wrong.map((el) => el.outerHTML.slice(0, 120)) };
}
