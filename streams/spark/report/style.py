"""The page's style sheet, in light and in dark, down to the width of a phone."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --paper: #fbfbfa; --card: #fff; --ink: #1b1f23; --soft: #5a646e; --rule: #dde1e5;
  --bar: #2a78b8; --part: #8fb9d9; --good: #18743f; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --card: #1b1f23; --ink: #e7eaed; --soft: #a3acb6;
  --rule: #343a41; --bar: #69aeea; --part: #35648c; --good: #62cf95; --bad: #ff8b81; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 980px; margin: 0 auto; padding: 28px 20px 56px; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 2px 0 8px; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 36px 0 8px; overflow-wrap: anywhere; }
p { margin: 4px 0; overflow-wrap: anywhere; } .about { color: var(--soft); }
header .good { color: var(--good); font-weight: 600; } header .bad { color: var(--bad); font-weight: 600; }
.tiles { list-style: none; display: grid; grid-template-columns: repeat(auto-fit, minmax(200px, 1fr)); gap: 10px;
  padding: 0; margin: 18px 0 0; }
.tiles li { background: var(--card); border: 1px solid var(--rule); border-radius: 8px; padding: 10px 12px;
  color: var(--soft); font-size: .85rem; }
.tiles b { display: block; color: var(--ink); font-size: 1.3rem; font-weight: 600; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; margin: 6px 0; font-size: .9rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: 8px 0; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 5px 14px 5px 0; border-bottom: 1px solid var(--rule); }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
th:last-child, td:last-child { padding-right: 0; }
.number { text-align: right; white-space: nowrap; } td.number:has(.bar) { min-width: 110px; }
.bar { display: block; height: 4px; margin-top: 3px; border-radius: 2px; background: var(--bar); margin-left: auto; }
.time { font-size: .875rem; font-variant-numeric: tabular-nums; }
.span { display: grid; grid-template-columns: 15rem 1fr 5rem; gap: 2px 12px; align-items: center; padding: 4px 0; }
.span .name { overflow-wrap: anywhere; } .span.within .name { padding-left: 14px; color: var(--soft); }
.track { position: relative; height: 12px; background: var(--card); border: 1px solid var(--rule); border-radius: 3px; }
.track i { position: absolute; top: 0; bottom: 0; min-width: 2px; background: var(--bar); border-radius: 2px; }
.within .track i { background: var(--part); }
.took { text-align: right; white-space: nowrap; } .note { grid-column: 2 / 4; color: var(--soft); }
.note:empty { display: none; }
@media (max-width: 640px) {
  main { padding: 18px 14px 40px; } h1 { font-size: 1.4rem; }
  .tiles { grid-template-columns: repeat(2, 1fr); } .tiles b { font-size: 1.1rem; }
  th, td { padding-right: 8px; } th { white-space: normal; } td.number:has(.bar) { min-width: 70px; }
  dl { grid-template-columns: 1fr; } dd { margin-bottom: 6px; }
  .span { grid-template-columns: 1fr auto; } .span .track { grid-column: 1 / 3; grid-row: 2; }
  .note { grid-column: 1 / 3; }
}
@media print { section { break-inside: avoid; } }
"""
