// What the tests ask of a page in a browser, run in a page that holds it in a frame; leaves JSON in its own title.
const colour = text => {
  const numbers = text.match(/[\d.]+/g).map(Number);
  const [r, g, b] = text.startsWith("color(") ? numbers.map(n => 255 * n) : numbers;
  const alpha = numbers.length > 3 ? numbers[3] : 1;
  return {channels: [r, g, b], alpha};
};
const luminance = ({channels}) => {
  const [r, g, b] = channels.map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (view, element) => {
  for (let at = element; at; at = at.parentElement) {
    const found = colour(view.getComputedStyle(at).backgroundColor);
    if (found.alpha > 0) return found;
  }
  return {channels: [255, 255, 255], alpha: 1};
};
const contrast = (view, element) => {
  const [one, other] = [luminance(colour(view.getComputedStyle(element).color)), luminance(behind(view, element))];
  return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
};
const own = element => [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
const least = (page, view) => {
  const told = [...page.body.querySelectorAll("*:not(svg, svg *, script)")].filter(own)
    .map(each => ({ratio: contrast(view, each), what: `${each.tagName}.${each.className}`}));
  return told.reduce((low, each) => each.ratio < low.ratio ? each : low);
};
const look = frame => {
  const [page, view] = [frame.contentDocument, frame.contentWindow], root = page.documentElement;
  const images = [...page.images], controls = [...page.querySelectorAll("button, input")];
  return {
    wide: root.scrollWidth, width: root.clientWidth, images: images.length,
    cut: [...page.querySelectorAll(".paper")].filter(each => each.scrollWidth > each.clientWidth).map(each => each.querySelector("img").width),
    dead: images.filter(image => !image.naturalWidth).length,
    asked: view.performance.getEntriesByType("resource").map(each => each.name).filter(name => !name.startsWith("data:")),
    headings: [...page.querySelectorAll("h1, h2, h3, h4")].map(each => each.tagName).join(" "),
    scrolling: [...page.querySelectorAll(".scroll")].filter(each => each.scrollWidth > each.clientWidth).length,
    nameless: controls.filter(each => !(each.textContent.trim() || each.getAttribute("aria-label"))).length,
    background: view.getComputedStyle(page.body).backgroundColor, contrast: least(page, view),
  };
};
const rows = table => [...table.tBodies[0].rows].filter(row => row.getClientRects().length)
  .map(row => [...row.cells].map(cell => cell.innerText.trim()));
const used = frame => {
  const page = frame.contentDocument, table = page.querySelector("table"), heads = [...table.tHead.rows[0].cells];
  const key = name => heads.find(head => head.innerText.trim().replace(/ .$/, "") === name).querySelector("button");
  const said = {first: rows(table)};
  key("used").click(); said.used = rows(table); said.sort = heads.map(head => head.getAttribute("aria-sort"));
  key("used").click(); said.used_up = rows(table);
  key("used").click(); said.again = rows(table);
  key("model").click(); said.model = rows(table); key("model").click(); key("model").click();
  const words = page.querySelector(".tools input");
  const type = text => { words.value = text; words.dispatchEvent(new Event("input")); };
  words.focus(); said.focused = page.activeElement === words;
  type(" FP32 resnet18"); said.filtered = rows(table); said.count = page.querySelector(".tools output").textContent;
  for (const rule of page.styleSheets[0].cssRules) if (rule.media && rule.conditionText === "print") rule.media.mediaText = "all";
  said.printed = rows(table).length;
  said.tools = words.getClientRects().length;
  said.boxes = [...page.querySelectorAll(".scroll")].filter(box => box.scrollHeight > box.clientHeight + 1).length;
  return said;
};
const stuck = frame => {  // how far the heading of a tall table is from the upper edge of its box that was scrolled
  const box = frame.contentDocument.querySelector(".scroll.tall");
  box.scrollTop = 1000;
  return {scrolled: box.scrollTop, off: box.querySelector("thead th").getBoundingClientRect().top - box.getBoundingClientRect().top};
};
addEventListener("load", () => {
  const said = {};
  for (const frame of document.querySelectorAll("iframe")) said[frame.id] = look(frame);
  said.stuck = stuck(document.getElementById("run-1280"));
  said.used = used(document.getElementById("run-1280"));
  said.hit = window.hit || "";
  said.text = document.getElementById("hostile-1280").contentDocument.body.innerText;
  document.title = JSON.stringify(said);
});
