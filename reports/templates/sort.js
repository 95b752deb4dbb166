"use strict";
// A click on the head of a column, or Enter on it, sorts the rows of its table; a second click reverses their order.
for (const head of document.querySelectorAll("th button")) {
  head.addEventListener("click", () => {
    const cell = head.parentElement, table = cell.closest("table"), body = table.tBodies[0];
    const up = cell.getAttribute("aria-sort") !== "ascending";
    for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
    cell.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = (row) => row.cells[cell.cellIndex].dataset.value ?? row.cells[cell.cellIndex].textContent;
    const rank = (a, b) => {
      if (a === "" || b === "") return (a === "") - (b === "");  // what is not stated comes last
      const by = a - b || (Number.isNaN(a - b) ? a.localeCompare(b) : 0);
      return up ? by : -by;
    };
    for (const row of [...body.rows].sort((a, b) => rank(key(a), key(b)))) body.append(row);
  });
}
