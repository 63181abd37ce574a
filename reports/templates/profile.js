"use strict";
// Sorts tables, folds the tree of modules, and leads from the icicle to it. Without it everything is there, unfolded.
(() => {
  const OPEN_ROWS = 40;

  // --- the tree of rows: a flat table is one whose rows are all at depth 0
  const tree = table => {
    const root = {row: null, depth: -1, children: [], open: true};
    const path = [root];
    for (const row of table.tBodies[0].rows) {
      const node = {row, depth: Number(row.dataset.depth || 0), children: [], open: true};
      while (path[path.length - 1].depth >= node.depth) path.pop();
      node.parent = path[path.length - 1];
      node.parent.children.push(node);
      path.push(node);
    }
    return root;
  };

  const each = (node, act) => node.children.forEach(child => { act(child); each(child, act); });

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

  const place = (table, root) => {
    const body = table.tBodies[0];
    each(root, node => body.append(node.row));
  };

  // --- sorting, among the modules of one parent; unknown is last whichever way
  const value = (row, column) => {
    const cell = row.cells[column];
    if (column === 0 && "path" in row.dataset) return row.dataset.path;
    if (!("v" in cell.dataset)) return cell.textContent.trim();
    return cell.dataset.v === "" ? null : Number(cell.dataset.v);
  };

  const compare = (column, sign) => (a, b) => {
    const [x, y] = [value(a.row, column), value(b.row, column)];
    if (x === null || y === null) return (x === null) - (y === null);
    return sign * (typeof x === "number" ? x - y : x.localeCompare(y)) || a.place - b.place;
  };

  const sorted = (root, order) => {
    root.children.sort(order);
    root.children.forEach(child => sorted(child, order));
  };

  const sortable = (table, root) => {
    let number = 0;
    each(root, node => { node.place = number++; });
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const text = column === 0 || head.classList.contains("w");
        const [first, second] = text ? ["ascending", "descending"] : ["descending", "ascending"];
        const before = head.getAttribute("aria-sort");
        const next = before === first ? second : before === second ? null : first;
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        if (next) head.setAttribute("aria-sort", next);
        sorted(root, next ? compare(column, next === "ascending" ? 1 : -1) : (a, b) => a.place - b.place);
        place(table, root);
      });
    });
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

  const trees = new Map();
  for (const table of document.querySelectorAll("table.sortable")) {
    const root = tree(table);
    trees.set(table, root);
    sortable(table, root);
  }
  const modules = document.getElementById("tree");
  if (modules) {
    const root = trees.get(modules);
    foldable(modules, root);
    for (const button of document.querySelectorAll("button[data-unfold]")) {
      button.hidden = false;
      button.addEventListener("click", () => unfold(root, Number(button.dataset.unfold)));
    }
    const reveal = path => {
      let found = null;
      each(root, node => { if (node.row.dataset.path === path) found = node; });
      if (!found) return;
      for (let node = found.parent; node.row; node = node.parent) node.open = true;
      show(root);
      for (const row of modules.tBodies[0].rows) row.classList.toggle("found", row === found.row);
      found.row.scrollIntoView({block: "center"});
    };
    for (const box of document.querySelectorAll(".icicle [data-path]")) {
      box.addEventListener("click", () => reveal(box.dataset.path));
    }
  }
})();
