// Texts that are partly invisible: outside of the window, or cut off by an element that hides its overflow. Scrollable
// texts and texts with an ellipsis are not listed.
const found = [];
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const text = texts.currentNode;
  const own = text.parentElement;
  if (!text.data.trim() || own.closest(".hidden, .skip, dialog:not([open]), title, desc, option, details:not([open]) > :not(summary)")) continue;
  const range = document.createRange();
  range.selectNodeContents(text);
  const box = range.getBoundingClientRect();
  if (box.width === 0 || getComputedStyle(own).visibility === "hidden" || own.closest("table.cards thead") && box.width <= 1) continue;
  let edges = { left: 0, right: document.documentElement.clientWidth };
  for (let element = own; element; element = element.parentElement) {
    const style = getComputedStyle(element);
    const scrolls = ["auto", "scroll"].includes(style.overflowX) && style.scrollbarWidth !== "none";
    if (style.clipPath !== "none" || scrolls) { edges = null; break; }
    if (style.overflowX === "visible") continue;
    if (style.textOverflow === "ellipsis") { edges = null; break; }
    const { left, right } = element.getBoundingClientRect();
    edges = { left: Math.max(left, edges.left), right: Math.min(right, edges.right) };
  }
  if (edges && (box.left < edges.left - 1 || box.right > edges.right + 1)) found.push(`${own.tagName}.${own.className}: ${text.data.slice(0, 60)}`);
}
const page = document.scrollingElement;
if (page.scrollWidth > page.clientWidth) found.push(`the page is ${page.scrollWidth} wide`);
return found;
