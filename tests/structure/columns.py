#!/usr/bin/env python3
"""columns.py TOP: lines of more than 100 columns in the documents, tables and scripts of the
repository. In a script, a line that is one quoted string (a pattern that a test looks for) may be
longer: it has no place to break. C and CUDA are checked by clang-format."""
import pathlib
import re
import sys

WIDEST = 100
top = pathlib.Path(sys.argv[1])
one_string = re.compile(r"""(\w+=)?(\$?'[^']*'|"[^"]*")\)*(;? \\| &&| \|\|)?$""")
bad = 0
for folder in ("", "compiler", "runtime", "templates", "tests", "docs", "plans"):
    for ending in ("md", "def", "sh"):
        for path in sorted((top / folder).glob(f"*.{ending}" if not folder else f"**/*.{ending}")):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if len(line) <= WIDEST or ending == "sh" and one_string.match(line.strip()):
                    continue
                print(f"{path.relative_to(top)}:{number} has {len(line)} columns")
                bad += 1
sys.exit(1 if bad else 0)
