"use strict";
// Folds the tree of modules; tables.js before it sorts. Without it all is unfolded.
(() => {
  const OPEN_ROWS = 40;
  const {trees, each} = tables;

  const show = root => {
    const down = (node, visible) => node.children.forEach(child => {
      child.row.hidden = !visible;
      if (child.button) {
        child.button.setAttribute("aria-expanded", String(child.open));
        child.button.textContent = child.open ? "\u25be" : "\u25b8";
      }
      down(child, visible && child.open);
    });
    down(root, true);
  };

  // --- folding
  const foldable = (table, root) => {
    each(root, node => {
      const button = document.createElement(node.children.length ? "button" : "span");
      button.className = "fold";
      if (node.children.length) {
        button.type = "button";
        button.setAttribute("aria-label", "parts of " + (node.row.dataset.path || "the model"));
        button.addEventListener("click", () => { node.open = !node.open; show(root); });
        node.button = button;
      }
      node.row.cells[0].prepend(button);
    });
    unfold(root, fitting(root));
  };

  const unfold = (root, depth) => {
    each(root, node => { node.open = node.depth < depth; });
    show(root);
  };

  const fitting = root => {  // the deepest level that leaves the table short enough to read
    const rows = [];
    each(root, node => { rows[node.depth] = (rows[node.depth] || 0) + 1; });
    let all = 0;
    for (let depth = 0; depth < rows.length; depth++) {
      all += rows[depth];
      if (all > OPEN_ROWS) return Math.max(1, depth - 1);
    }
    return rows.length;
  };

  const modules = document.getElementById("tree");
  if (modules) {
    const root = trees.get(modules);
    foldable(modules, root);
    const tools = document.createElement("div");
    tools.className = "tools";
    const last = Math.min(4, Math.max(...[...modules.tBodies[0].rows].map(row => Number(row.dataset.depth))));
    for (let depth = 1; depth <= last; depth++) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = depth < last ? "depth " + depth : "all";
      button.addEventListener("click", () => unfold(root, depth < last ? depth : Infinity));
      tools.append(button);
    }
    modules.closest(".scroll").before(tools);
  }
})();
