#!/usr/bin/env python3
"""A report in a headless browser: at 1280 pixels, and at 390 on a dark screen, nothing is wider than
the window, and the console is silent.  browser.py CHROMIUM FILE.html"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

chromium, page = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
# A window of headless Chromium is never narrower than 500 pixels, so the page is put in a frame.
FRAME = """<!doctype html><iframe id="f" style="width:%dpx;height:900px;border:0"></iframe><script>
const f = document.getElementById('f');
f.onload = () => { const d = f.contentDocument, w = d.documentElement.clientWidth, out = [];
  for (const e of d.querySelectorAll('main *')) {
    if (e.closest('svg') || e.closest('.wide')) continue;
    const r = e.getBoundingClientRect();
    if (r.right > w + 1 || r.left < -1) out.push(e.tagName + ' ' + e.textContent.slice(0, 40));
  }
  document.title = 'seen ' + d.querySelectorAll('section').length + ' scroll ' +
    (d.documentElement.scrollWidth - w) + ' back ' +
    f.contentWindow.getComputedStyle(d.body).backgroundColor + ' over ' + out.slice(0, 3).join('; ');
};
f.srcdoc = %s;</script>"""
bad = []
for width, scheme, back in ((1280, 1, "rgb(255, 255, 255)"), (390, 0, "rgb(20, 23, 27)")):
    with tempfile.TemporaryDirectory() as folder:
        frame = pathlib.Path(folder) / "frame.html"
        inside = json.dumps(page.read_text(encoding="utf-8")).replace("</", "<\\/")
        frame.write_text(FRAME % (width, inside), encoding="utf-8")
        run = subprocess.run(
            [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile",
             f"--blink-settings=preferredColorScheme={scheme}", "--enable-logging=stderr", "--window-size=1400,1000", "--virtual-time-budget=3000",
             "--dump-dom", frame.as_uri()], capture_output=True, text=True, timeout=60)
    title = re.search(r"<title>seen (\d+) scroll (-?\d+) back ([^<]*) over ([^<]*)</title>", run.stdout)
    if not title or int(title[1]) < 3:
        bad.append(f"{width}: the page was not seen: {title and title[0]}")
    elif int(title[2]) > 0 or title[4].strip():
        bad.append(f"{width}: wider by {title[2]}: {title[4]}")
    elif title[3] != back:
        bad.append(f"{width}: the page is {title[3]}, not {back}")
    bad += [f"{width}: {line}" for line in run.stderr.splitlines() if "CONSOLE" in line]
print("; ".join(bad))
sys.exit(1 if bad else 0)
