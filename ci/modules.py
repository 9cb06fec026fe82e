"""The module tree of a crate, from its sources: modules, names, `use` trees, paths. No compiler takes part.

Code for tests and for loom is left out: an item whose `cfg` is false without both of them. Names that a macro makes of
its arguments are not seen.
"""

import bisect
import re

TOKEN = re.compile(
    r"""(?P<space>\s+)
    | (?P<line>//[^\n]*)
    | (?P<block>/\*)
    | (?P<raw>(?:br|cr|r)(?P<fence>\#*)".*?"(?P=fence)(?!\#))
    | (?P<string>[bc]?"(?:\\.|[^"\\])*")
    | (?P<char>b?'(?:\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.)|[^\\'\n])')
    | (?P<lifetime>'(?:r\#)?\w+)
    | (?P<ident>(?:r\#)?[^\W\d]\w*)
    | (?P<number>\d(?:[\w]|\.(?=\d))*)
    | (?P<op>::|->|=>|\.\.\.|\.\.=?|.)""",
    re.X | re.S,
)
OPEN, CLOSE = set("([{"), set(")]}")
TYPES = {"struct", "enum", "trait", "type", "union"}


class Source:
    """One file: its tokens, without what tests and loom see alone, and its comments."""

    def __init__(self, text):
        self.comments = []  # (line, text, whether it has its line for itself)
        starts = [0] + [match.end() for match in re.finditer("\n", text)]
        line_of = lambda at: bisect.bisect_right(starts, at)
        tokens, at = [], 0
        while at < len(text):
            match = TOKEN.match(text, at)
            kind, found = match.lastgroup, match.group()
            if kind == "fence":
                kind = "raw"
            end = match.end()
            if kind == "block":
                depth, end = 1, at + 2
                while depth:
                    step = re.compile(r"/\*|\*/").search(text, end)
                    depth += 1 if step.group() == "/*" else -1
                    end = step.end()
            elif kind == "line":
                line = line_of(at)
                self.comments.append((line, found, not text[starts[line - 1] : at].strip()))
            elif kind != "space":
                if kind == "ident" and found.startswith("r#"):
                    found = found[2:]
                tokens.append((kind, found, line_of(at), line_of(end - 1)))
            at = end
        self.everything = tokens
        self.tokens = without_tests(tokens)
        # A string may have several lines; a comment is none.
        self.code_lines = len({line for token in self.tokens for line in range(token[2], token[3] + 1)})
        self.words = {token[1] for token in tokens if token[0] == "ident"}


def holds(tokens):
    """Whether a `cfg` holds outside of tests and of loom: True, False, or None if that depends."""

    def parse(at):
        name = tokens[at][1]
        if at + 1 < len(tokens) and tokens[at + 1][1] == "(":
            values, at = [], at + 2
            while tokens[at][1] != ")":
                value, at = parse(at)
                values.append(value)
                at += tokens[at][1] == ","
            if name == "not":
                value = None if values[0] is None else not values[0]
            elif name == "all":
                value = False if False in values else None if None in values else True
            else:
                value = True if True in values else None if None in values else False
            return value, at + 1
        at += 1
        if at < len(tokens) and tokens[at][1] == "=":
            return None, at + 2
        return (False if name in ("test", "loom") else None), at

    return parse(0)[0]


def closing(tokens, at):
    """The place behind the bracket that closes the one at `at`."""
    depth = 0
    while at < len(tokens):
        depth += (tokens[at][1] in OPEN and tokens[at][0] == "op") - (tokens[at][1] in CLOSE and tokens[at][0] == "op")
        at += 1
        if depth == 0:
            break
    return at


def item_end(tokens, at):
    """The place behind the item, field, arm or statement at `at`."""
    first = at
    while first < len(tokens) and tokens[first][1] in ("pub", "unsafe", "async", "extern", "const", "default"):
        if tokens[first][1] == "const" and tokens[first + 1][1] not in ("fn", "unsafe", "extern", "async"):
            break
        first += 1
        if tokens[first][1] == "(" and tokens[first - 1][1] == "pub":
            first = closing(tokens, first)
        elif tokens[first][0] == "string":
            first += 1
    word = tokens[first][1] if first < len(tokens) else ""
    to_semicolon = word in ("use", "let", "static", "type", "const")
    is_item = word in ("fn", "mod", "struct", "enum", "trait", "impl", "union", "macro_rules")
    angles = 0
    while at < len(tokens):
        kind, text = tokens[at][:2]
        if kind == "op" and text in OPEN:
            at = closing(tokens, at)
            if text == "{" and not to_semicolon:
                # An arm's comma belongs to it.
                return at + (not is_item and at < len(tokens) and tokens[at][1] == ",")
            continue
        if kind == "op" and text in CLOSE:
            return at
        angles += (text == "<") - (text == ">")
        at += 1
        if kind == "op" and (text == ";" or text == "," and not is_item and not to_semicolon and angles <= 0):
            return at
    return at


def without_tests(tokens):
    kept, at = [], 0
    while at < len(tokens):
        if tokens[at][1] == "#" and at + 1 < len(tokens) and tokens[at][0] == "op":
            inner = tokens[at + 1][1] == "!"
            bracket = at + 1 + inner
            if bracket < len(tokens) and tokens[bracket][1] == "[":
                end = closing(tokens, bracket)
                body = tokens[bracket + 1 : end - 1]
                is_out = bool(body) and (
                    body[0][1] == "test" and len(body) == 1
                    or body[0][1] == "cfg" and len(body) > 2 and holds(body[2:-1]) is False
                )
                if is_out and inner:
                    return kept
                if is_out:
                    # The attributes around it go with it.
                    at = end
                    while tokens[at][1] == "#":
                        at = closing(tokens, at + 1)
                    at = item_end(tokens, at)
                    continue
                if body and body[0][1] == "path":
                    kept.append(("path", body[2][1].strip('"'), body[2][2], body[2][3]))
                at = end
                continue
        kept.append(tokens[at])
        at += 1
    return kept


class Module:
    def __init__(self, crate, path, file):
        self.crate, self.path, self.file = crate, path, file
        self.modules = {}  # name -> Module
        self.items = {}  # name -> line
        self.uses = []  # (path, name or None for a glob or `_`, line)
        self.globs = []  # paths
        self.bound = {}  # name -> path
        self.paths = []  # (path, line): in code
        self.singles = []  # (name, line): in code, if there is a glob


class Crate:
    def __init__(self, root, folder):
        self.name = folder.name
        self.root_folder, self.src = root, folder / "src"
        self.files = {}  # file -> Source
        self.types = []  # (name, kind, file, line)
        self.named = []  # (kind, name, file, line): modules, types and functions
        self.root = None
        for name in ("lib.rs", "main.rs"):
            file = self.src / name
            if file.exists():
                module = Module(self, (), file)
                if self.root is None:
                    self.root = module
                self.read(module, file, self.src)
                if module is not self.root:  # a program beside a library
                    self.root.modules.update(module.modules)
                    self.root.bound.update(module.bound)
                    self.root.paths += module.paths
                    self.root.uses += module.uses

    def shown(self, file):
        return file.relative_to(self.root_folder).as_posix()

    def read(self, module, file, folder):
        source = read_source(file)
        self.files[file] = source
        Reader(self, module, file, folder, source.tokens).items()

    def all(self, module=None):
        module = module or self.root
        yield module
        for child in module.modules.values():
            yield from self.all(child)


CACHE = {}


def read_source(file):
    text = file.read_text()
    if text not in CACHE:
        CACHE[text] = Source(text)
    return CACHE[text]


class Reader:
    """Fills the modules from the tokens of one file."""

    def __init__(self, crate, module, file, folder, tokens):
        self.crate, self.module, self.file, self.folder, self.tokens = crate, module, file, folder, tokens

    def items(self):
        tokens, at = self.tokens, 0
        stack = []  # what each open brace belongs to
        pending, path, nested = "other", None, 0
        text = lambda place: tokens[place][1] if place < len(tokens) else ""
        kind = lambda place: tokens[place][0] if place < len(tokens) else ""
        while at < len(tokens):
            what, word, line = tokens[at][:3]
            before = text(at - 1) if at else ""
            if what == "path":
                path = word
            elif what == "op":
                if word in "([":
                    nested += 1
                elif word in ")]":
                    nested -= 1
                elif word == "{":
                    stack.append((pending, self.module, self.folder, nested))
                    if isinstance(pending, Module):
                        self.module = pending
                        self.folder = self.folder / pending.path[-1]
                    pending, nested = "other", 0
                elif word == "}":
                    if stack:
                        _, self.module, self.folder, nested = stack.pop()
                    pending = "other"
                elif word == ";" and nested == 0:
                    pending = "other"
            elif what == "ident":
                is_name = kind(at + 1) == "ident" and before not in (".", "::", "$")
                if word == "pub" and text(at + 1) == "(":
                    at = closing(tokens, at + 1)
                    continue
                if word == "use" and before not in (".", "<", "+", "$") and text(at + 1) != "<":
                    at = self.use(at + 1)
                    continue
                if word == "mod" and is_name:
                    child = self.child(text(at + 1), line)
                    if text(at + 2) == "{":
                        pending = child
                    else:
                        self.file_of(child, path)
                    path = None
                    at += 2
                    continue
                if word in ("impl", "trait") and pending != "fn" and nested == 0 and before not in ("->", ":", "=", "<", "&"):
                    pending = word
                if word == "fn" and is_name:
                    pending = "fn"
                    self.name("fn", text(at + 1), line, not (stack and stack[-1][0] in ("impl", "trait")))
                    at += 2
                    continue
                if word == "macro_rules" and text(at + 1) == "!" and kind(at + 2) == "ident":
                    self.module.items[text(at + 2)] = line
                    at += 3
                    continue
                in_impl = bool(stack) and stack[-1][0] in ("impl", "trait")
                if word in TYPES and is_name and not (word == "type" and in_impl) and (word != "union" or text(at + 2) in "{<"):
                    name = text(at + 1)
                    self.name("type", name, line, True)
                    self.crate.types.append((name, word, self.file, line))
                    at += 2
                    continue
                if word in ("const", "static") and is_name and not in_impl and text(at + 2 + (text(at + 1) == "mut")) == ":":
                    name = at + 1 + (text(at + 1) == "mut")
                    self.module.items.setdefault(text(name), line)
                    at = name + 1
                    continue
                if text(at + 1) == "::" and kind(at + 2) == "ident" and before not in (".", "::"):
                    found, at = [word], at + 1
                    while text(at) == "::" and kind(at + 1) == "ident":
                        found.append(text(at + 1))
                        at += 2
                    self.module.paths.append((tuple(found), line))
                    continue
                if before not in (".", "::", "$"):
                    self.module.singles.append((word, line))
            at += 1

    def name(self, kind, name, line, in_module):
        if in_module:
            self.module.items.setdefault(name, line)
        self.crate.named.append((kind, name, self.file, line))

    def child(self, name, line):
        if name not in self.module.modules:
            self.module.modules[name] = Module(self.crate, self.module.path + (name,), self.file)
            self.crate.named.append(("mod", name, self.file, line))
        return self.module.modules[name]

    def file_of(self, child, path):
        name = child.path[-1]
        choices = [self.file.parent / path] if path else [self.folder / f"{name}.rs", self.folder / name / "mod.rs"]
        for file in choices:
            if file.exists():
                child.file = file
                self.crate.read(child, file, self.folder / name)
                return
        raise SystemExit(f"ci/layers: {self.crate.shown(self.file)}: no file for `mod {name};`")

    def use(self, at):
        """Reads a `use` tree, up to its semicolon."""
        tokens = self.tokens

        def tree(at, prefix):
            path = list(prefix)
            while True:
                what, word, line = tokens[at][:3]
                if word == "{":
                    at += 1
                    while tokens[at][1] != "}":
                        at = tree(at, path)
                        at += tokens[at][1] == ","
                    return at + 1
                if word == "*":
                    self.module.globs.append(tuple(path))
                    self.module.uses.append((tuple(path), None, line))
                    return at + 1
                if word == "::":
                    if not path:
                        path = ["::"]
                    at += 1
                    continue
                if what != "ident":
                    return at + 1
                if not (word == "self" and path):
                    path.append(word)
                at += 1
                if tokens[at][1] == "::":
                    continue
                name = path[-1]
                if tokens[at][1] == "as":
                    name = tokens[at + 1][1]
                    at += 2
                self.module.uses.append((tuple(path), None if name == "_" else name, line))
                if name != "_":
                    self.module.bound.setdefault(name, []).append(tuple(path))
                return at

        while tokens[at][1] != ";":
            at = tree(at, [])
        return at + 1


def resolve(module, path, seen=frozenset()):
    """The modules that a path leads through where it ends or is redirected; empty for another crate's."""
    crate, rest = module.crate, list(path)
    first, here = rest[0], module
    if first in ("crate", "$crate"):
        here = crate.root
        rest.pop(0)
    elif first == "self":
        rest.pop(0)
    elif first == "super":
        while rest and rest[0] == "super":
            here = walk(crate, here.path[:-1])
            rest.pop(0)
    elif first == "::":
        return []
    else:
        return lookup(here, rest, seen, True)
    return lookup(here, rest, seen, False)


def walk(crate, path):
    here = crate.root
    for name in path:
        here = here.modules[name]
    return here


def lookup(here, rest, seen, is_local):
    if not rest:
        return [here]
    name = rest[0]
    if name in here.modules:
        return lookup(here.modules[name], rest[1:], seen, False)
    if name in here.items:
        return [here]
    if (here, name) in seen:
        return []
    seen = seen | {(here, name)}
    for path in here.bound.get(name, []):
        if path[0] == name:
            continue  # a crate of that name
        found = resolve(here, path + tuple(rest[1:]), seen)
        if found:
            return ([] if is_local else [here]) + found
        if not is_local:
            return [here]
    for path in here.globs:
        target = resolve(here, path, seen)
        if target and target[-1] is not here:
            found = lookup(target[-1], rest, seen, True)
            if found:
                return ([] if is_local else [here]) + found
    return [] if is_local else [here]
