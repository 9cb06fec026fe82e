"""Counts lines of comments and Markdown that match patterns of hard-to-read prose (CONTRIBUTING.md, "Prose").

The check fails if more than MOST lines match in the whole tree, on a single line of a FORBIDDEN kind, and on a function
(most of all a test) whose name begins with "who" or has a pronoun for a person. MOST only
shrinks. The count is a smoke alarm: a sentence that passes and must be read twice is still to be rewritten.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

MOST = 100

PATTERNS = {
    "who without a noun": r"(^|[.;:,(] |\b(?i:of|for|by|to|with|from|than|and|or|that|is|wakes?|tells?|as|if|whatever|after"
    r"|before|how|on|at|in|unwinds|keeps|lets) )([Ww]ho|[Ww]hoever|whom) ",
    "he, him or his": r"\b(he|him|his|himself)\b",
    "somebody or nobody": r"\b([Ss]omebody|[Nn]obody|[Aa]nybody|[Ee]verybody)\b",
    "What opens a sentence": r"(^|\. )What ",
    "what as a noun": r"\b(of|for|to|with|by|in|from|on|and|or|than|as|takes?|gives?|puts?|says?|tells?|drops?|calls?"
    r"|wakes?) what (?!ever)",
    "is told or said": r"\b(is|are|was|be|were) (told|said)\b|\btells? of\b|\bsays? so\b",
    "so many or much": r"\b[Ss]o (many|much|long|often|few)\b(?! that| as)",
}
NAME = "who, he or him in a name"
FORBIDDEN = {"who without a noun", "he, him or his", NAME}
NAMED = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?(?:async )?fn ((?:who|whoever)_\w+|(?:\w+_)?(?:he|him|his|himself)(?:_\w+)?)\b")
COMPILED = {kind: re.compile(pattern) for kind, pattern in PATTERNS.items()}


def sentences(path):
    """The lines of prose of a file, with their numbers: comments of Rust, lines of Markdown outside of code blocks."""
    in_code = False
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        if path.suffix == ".md":
            text = line
        else:
            match = re.match(r"\s*//[/!]?\s?(.*)", line) or re.search(r"\s//\s(.*)$", line)
            if not match:
                continue
            text = match.group(1)
        text = text.strip()
        if text.startswith("```"):
            in_code = not in_code
        elif text and not in_code:
            yield number, text


def matches(paths):
    """Each line that matches: path, number, kinds, text."""
    for path in paths:
        if path.suffix == ".rs":
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                if NAMED.match(line):
                    yield path, number, [NAME], line.strip()
        for number, text in sentences(path):
            kinds = [kind for kind, pattern in COMPILED.items() if pattern.search(text)]
            if kinds:
                yield path, number, kinds, text


def tracked():
    listed = subprocess.run(["git", "ls-files", "*.rs", "*.md"], check=True, capture_output=True, text=True)
    return [Path(name) for name in listed.stdout.splitlines() if Path(name).is_file()]


def check(paths, most, quiet=False):
    """Whether the files pass, and the number of lines that match."""
    found = list(matches(paths))
    forbidden = [match for match in found if FORBIDDEN.intersection(match[2])]
    if not quiet:
        for path, number, kinds, text in forbidden:
            print(f"{path}:{number}: {', '.join(kinds)}: {text[:120]}")
    return not forbidden and len(found) <= most, len(found)


def self_test():
    """Plants a riddle in a file of its own, and sees it found; a plain sentence passes."""
    planted = [
        ("/// Nobody owns what he has not been polled for.", MOST, False),
        ("/// Wakes who waits.", MOST, False),
        ("/// What is returned is told more by its methods.", 0, False),
        ("/// A released permit stays free until a waiter is polled and takes it.", 0, True),
        ("#[test]\nfn who_is_slow_has_to_prove_himself_anew() {}", MOST, False),
        ("#[test]\nfn the_client_whose_whole_this_is() {}", 0, True),
    ]
    with tempfile.TemporaryDirectory() as folder:
        for line, most, passes in planted:
            path = Path(folder) / "planted.rs"
            path.write_text(line + "\nfn planted() {}\n")
            if check([path], most, quiet=True)[0] != passes:
                sys.exit(f"ci/prose: self-test: {line!r} should {'pass' if passes else 'fail'}")
    print(f"ci/prose: self-test: {len(planted)} of {len(planted)} as expected")


def main():
    words = sys.argv[1:]
    if words[:1] == ["-v"]:
        paths = [Path(word) for word in words[1:]] or tracked()
        files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*")))]
        for path, number, kinds, text in matches(file for file in files if file.suffix in (".rs", ".md")):
            print(f"{path}:{number}: {', '.join(kinds)}: {text[:140]}")
        return
    if words:
        sys.exit("usage: ci/prose [-v [PATH...]]")
    passed, number = check(tracked(), MOST)
    print(f"{number} lines match a pattern of hard-to-read prose (at most {MOST}); `ci/prose -v` prints them")
    if not passed:
        sys.exit("ci/prose: rewrite the lines above, or `ci/prose -v` for all; CONTRIBUTING.md has the rules")
    self_test()


main()
