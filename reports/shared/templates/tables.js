"use strict";
// Sorts and filters every table.sortable. Without it everything is there, in its first order.
const tables = (() => {
  const WORTH_FILTERING = 8;

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

  const place = (table, root) => {
    const body = table.tBodies[0];
    each(root, node => body.append(node.row));
  };

  // --- sorting, among the rows of one parent; unknown is last whichever way
  const value = (row, column) => {
    const cell = row.cells[column];
    if (column === 0 && "path" in row.dataset) return row.dataset.path;
    if (!("v" in cell.dataset)) return cell.textContent.trim();
    return cell.dataset.v === "" ? null : Number(cell.dataset.v);
  };

  const difference = (x, y) => typeof x === "number" ? x - y : x.localeCompare(y, "en", {numeric: true});

  const compare = (column, sign) => (a, b) => {
    const [x, y] = [value(a.row, column), value(b.row, column)];
    if (x === null || y === null) return (x === null) - (y === null) || a.place - b.place;
    return sign * difference(x, y) || a.place - b.place;
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
        const text = head.classList.contains("w");
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

  // --- filtering: a row stays that has every word; trees are folded instead
  const filterable = table => {
    const rows = [...table.tBodies[0].rows];
    if (rows.length < WORTH_FILTERING || rows.some(row => "path" in row.dataset)) return;
    const [tools, label, filter, count] = ["div", "label", "input", "output"].map(name => document.createElement(name));
    tools.className = "tools";
    filter.type = "search";
    filter.setAttribute("aria-label", "Filter the rows of: " + table.caption.textContent.trim());
    label.append("Filter rows ", filter);
    tools.append(label, count);
    const apply = () => {
      const terms = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        const stays = terms.every(word => text.includes(word));
        row.classList.toggle("out", !stays);
        shown += stays;
      }
      count.textContent = terms.length ? `${shown} of ${rows.length} rows` : `${rows.length} rows; headings sort`;
    };
    filter.addEventListener("input", apply);
    table.closest(".scroll").before(tools);
    apply();
  };

  const trees = new Map();
  for (const table of document.querySelectorAll("table.sortable")) {
    const root = tree(table);
    trees.set(table, root);
    sortable(table, root);
    filterable(table);
  }
  return {trees, each};
})();
