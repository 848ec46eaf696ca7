// Search boxes over tables, and numbers that lead to the rows behind them. The page reads without it.
"use strict";

// Words, "whole cells" and field="whole cells" of a search, as tests of a row.
function testsOf(text, fields) {
  const found = [...text.matchAll(/([^\s"=]+)="([^"]*)"|"([^"]*)"|(\S+)/g)];
  return found.map(([, field, value, whole, word]) => {
    if (field !== undefined) {
      const at = fields.indexOf(field);
      return (cells) => at >= 0 && cells[at] === value;
    }
    if (whole !== undefined) return (cells) => cells.includes(whole);
    const lower = word.toLowerCase();
    return (cells) => cells.some((cell) => cell.toLowerCase().includes(lower));
  });
}

function search(box) {
  const table = document.getElementById(box.dataset.table);
  const fields = [...(table.tHead ? table.tHead.rows[0].cells : [])].map((cell) => cell.textContent);
  const tests = testsOf(box.value, fields);
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    const cells = [...row.cells].map((cell) => cell.textContent.trim());
    row.hidden = !tests.every((test) => test(cells));
    shown += !row.hidden;
  }
  const all = table.tBodies[0].rows.length;
  box.nextElementSibling.textContent = tests.length ? `${shown} of ${all} lines match` : "";
}

function reveal(target) {
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
}

for (const box of document.querySelectorAll("input[type=search]")) {
  box.parentElement.hidden = false;
  box.addEventListener("input", () => search(box));
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#']");
  const target = link && document.getElementById(link.hash.slice(1));
  if (!target) return;
  reveal(target);
  const box = target.querySelector("input[type=search]");
  if (box && link.dataset.finds !== undefined) {
    box.value = link.dataset.finds;
    search(box);
  }
});

if (location.hash) reveal(document.getElementById(location.hash.slice(1)));
