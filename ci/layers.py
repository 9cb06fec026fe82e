"""Reads the sources in crates/*/src, without a compiler, and fails on:

* an edge upward: a module that uses a layer which is not above its own in the list of its crate in ARCHITECTURE.md,
  or a cycle among layers of one row of that list. `use` trees, paths in code and re-exports count; a re-export counts
  for its module and for the module that it leads to. A public module at the root may re-export names of layers above
  for users of the crate: below a comment `// Facade: ...` such a `pub use` counts as one of lib.rs, and no path inside
  of the crate may lead through it.
* a type name (struct, enum, trait, alias) with several definitions, beyond MOST_DOUBLE of them
* a module, type or function with a private word (WORDS) for a name
* a named invariant with several definitions, a reference to none or to one in another file than it says, and a table in
  ARCHITECTURE.md that is out of date

ci/layers.allow lists the faults that are known. An entry that does not occur any more has to be removed.
Code for tests and for loom is left out, as are comments and strings. Files of more than LONG lines of code are named.
"""

import functools
import pathlib
import re
import shutil
import sys
import tempfile

from modules import Crate, read_source, resolve

# How many there are today. These numbers only go down.
MOST_DOUBLE = 15  # RecvError and TryRecvError of `broadcast` can say that messages were missed
MOST_ALLOWED = {"edge": 0, "word": 2, "invariant": 0}
LONG = 500

# Words of this project alone, for things that have a name in the field. The first may be no part of a name
# (`StrandRef`), the second no whole name (`Link`).
WORDS_ANYWHERE = """bell crowd desk dice flights get_up hammer holder hub lie_down lobby mains relieve shelf
    stand_in strand weather""".split()
WORDS_ALONE = "chain flight here home link post reach row ticket window woken".split()
# Names that the documentation promises, or that the standard library has for the same.
PROMISED = {("fn", "post"), ("fn", "chain"), ("type", "Chain")}

# Words in capitals that are no invariants.
NO_INVARIANT = re.compile(r"A-Z|UTF-\d+|SHA-\d+|SIG[A-Z]+|EADDRINUSE|EMFILE|INVAL|HTTP|TODO")

START, END = "<!-- invariants: written by `ci/layers --write` -->", "<!-- end of invariants -->"


FACADE = "// Facade:"


def facade_lines(module):
    """The lines of the re-exports of a module below a comment `// Facade:`."""
    found, is_inside = set(), False
    for number, line in enumerate(module.file.read_text().splitlines(), 1):
        is_inside = is_inside or line.strip().startswith(FACADE)
        if is_inside:
            found.add(number)
        is_inside = is_inside and not line.rstrip().endswith(";")
    return found


class Layers:
    """The ordered list of a crate."""

    def __init__(self, crate, rows):
        self.crate = crate
        self.rows = {}  # module path -> (row, shown)
        for number, row in enumerate(rows):
            for shown in row:
                self.rows[tuple(shown.removesuffix(".rs").strip("/").split("/"))] = (number, shown.removesuffix(".rs").strip("/"))
        self.used = set()

    def of(self, module):
        for length in range(len(module.path), 0, -1):
            if module.path[:length] in self.rows:
                self.used.add(module.path[:length])
                return module.path[:length]
        return module.path[:1]


def read_layers(text):
    lists = {}
    for match in re.finditer(r"<!-- layers: (\S+) -->\n(.*?)<!-- end of layers -->", text, re.S):
        rows = []
        for line in match.group(2).splitlines():
            cells = line.split("|")
            names = re.findall(r"`([^`]+)`", cells[1]) if len(cells) > 2 else []
            if names:
                rows.append(names)
        lists[match.group(1)] = rows
    return lists


def snake(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


ANYWHERE = re.compile(rf"(?:^|_)({'|'.join(WORDS_ANYWHERE)})s?(?:_|$)")


@functools.cache
def private_word(kind, name):
    if (kind, name) in PROMISED:
        return None
    flat = snake(name)
    found = ANYWHERE.search(flat)
    if found:
        return found.group(1)
    return flat if flat in WORDS_ALONE or flat.removesuffix("s") in WORDS_ALONE else None


NAME = r"[A-Z][A-Z0-9]+(?:-[A-Z0-9]+)*"
DEFINED = re.compile(rf"^//! \* (\*\*{NAME}\*\*(?:(?:,| and) \*\*{NAME}\*\*)*):\s*(.*)$")


def invariants(source):
    """(names, text, line) of each definition in the head comment; a reference (`see ...`) is left out."""
    found = []
    head = [(line, text) for line, text, _ in source.comments if text.startswith("//!")]
    at = 0
    while at < len(head):
        line, text = head[at]
        match = DEFINED.match(text)
        at += 1
        if not match:
            continue
        says = [match.group(2)]
        while at < len(head) and head[at][0] == head[at - 1][0] + 1 and re.match(r"//!  +\S", head[at][1]):
            says.append(head[at][1][3:].strip())
            at += 1
        says = " ".join(says)
        if not re.match(r"see `", says):
            found.append((re.findall(NAME, match.group(1)), says, line))
    return found


def sentence(says):
    """The first sentence, without links, for a cell of a table."""
    says = re.sub(r"\[(`[^`]+`)\](?:\([^)]*\))?", r"\1", says)
    says = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", says)
    for match in re.finditer(r"\.(?=\s+[A-Z`\[]|$)", says):
        before = says[: match.start()]
        if before.count("(") == before.count(")") and not re.search(r"\b(?:e\.g|i\.e|cf)$", before):
            says = before
            break
    return says.replace("|", "\\|").strip()


def referred(source, known_words):
    """(name, line) of what comments refer to as an invariant."""
    in_safety = False
    previous = 0
    for line, text, alone in source.comments:
        if line != previous + 1 or not alone:
            in_safety = False
        previous = line
        body = re.sub(r"`[^`]*`", "", text.lstrip("/!").strip())
        in_safety = in_safety or body.startswith("SAFETY")
        for match in re.finditer(rf"(?<![\w-]){NAME}(?![\w-])", body):
            name = match.group()
            if "-" in name:
                yield name, line
            elif in_safety and len(name) >= 4 and name != "SAFETY" and name not in known_words:
                yield name, line
        if not in_safety and not text.startswith(("///", "//!")):
            match = re.match(rf"({NAME}(?:, {NAME})*)(?: in\b|[.:,]|$)", body)
            for name in re.findall(NAME, match.group(1)) if match else []:
                if "-" not in name and len(name) >= 4 and name not in known_words:
                    yield name, line


def placed(source):
    """(name, where, line) of references that say where the invariant is defined, as in "NAME in `folder::file`"."""
    run, previous = [], 0
    for line, text, alone in [*source.comments, (0, "", False)]:
        if run and not (alone and line == previous + 1):
            joined = "\n".join(text.lstrip("/!").strip() for _, text in run)
            for match in re.finditer(rf"(?<![\w-])({NAME}),?\s+in\s+`([\w:/.]+)`", joined):
                yield match[1], match[2], run[0][0] + joined[: match.start()].count("\n")
            run = []
        run.append((line, text))
        previous = line


class Check:
    def __init__(self, root, crates=()):
        """With `crates` that were read already, and did not change since."""
        self.root = pathlib.Path(root)
        self.architecture = self.root / "ARCHITECTURE.md"
        self.allow_file = self.root / "ci" / "layers.allow"
        self.allowed = {}  # entry -> line
        self.occurs = set()
        self.faults, self.notes = [], []
        for number, line in enumerate(self.allow_file.read_text().splitlines() if self.allow_file.exists() else [], 1):
            entry = line.split("#")[0].strip()
            if entry:
                self.allowed[" ".join(entry.split())] = number
        known = {crate.name: crate for crate in crates}
        folders = [source.parent for source in sorted(self.root.glob("crates/*/src"))]
        self.crates = [known.get(folder.name) or Crate(self.root, folder) for folder in folders]
        self.edges = []  # (crate, file, line, from, to, path)
        self.most_double = MOST_DOUBLE

    def fault(self, entry, message):
        """A fault, unless it is known. Of several with one entry the first is named."""
        if entry not in self.occurs and entry not in self.allowed:
            self.faults.append(message)
        self.occurs.add(entry)

    def run(self):
        self.layers()
        self.names()
        self.words()
        self.check_invariants()
        self.sizes()
        for entry, line in self.allowed.items():
            if entry not in self.occurs:
                self.faults.append(f"ci/layers.allow:{line}: does not occur any more: remove it: {entry}")
        for kind, most in MOST_ALLOWED.items():
            count = sum(entry.startswith(kind + " ") for entry in self.allowed)
            if count > most:
                self.faults.append(f"ci/layers.allow: {count} entries `{kind}`, and at most {most} are allowed: the list only shrinks")
        return self

    def layers(self):
        lists = read_layers(self.architecture.read_text())
        for crate in self.crates:
            single = all(not module.modules for module in crate.root.modules.values()) and crate.name not in lists
            if crate.name not in lists:
                if not single:
                    self.faults.append(f"ARCHITECTURE.md: no list of layers for {crate.name}")
                continue
            layers = Layers(crate, lists[crate.name])
            same_row = {}
            facades = {}  # a public module of the root -> (lines, names) that are for users of the crate
            for module in crate.root.modules.values():
                lines = facade_lines(module)
                names = {name for _, name, line in module.uses if line in lines}
                if names and not re.search(rf"^pub mod {module.path[-1]}\b", crate.root.file.read_text(), re.M):
                    self.faults.append(f"{crate.shown(module.file)}: a facade in a module that is not public")
                elif names:
                    facades[module] = lines, names
            for module in crate.all():
                source = layers.of(module)
                if module.file.parent == crate.src and module.file.name in ("lib.rs", "main.rs"):
                    continue  # these are above all
                if source not in layers.rows:
                    self.faults.append(f"{crate.shown(module.file)}: `{source[0]}` is not in the list of layers of {crate.name} in ARCHITECTURE.md")
                    continue
                targets = [(path, line) for path, _, line in module.uses] + module.paths
                if module.globs:
                    own = set(module.items) | set(module.bound) | set(module.modules)
                    targets += [((name,), line) for name, line in module.singles if name not in own]
                own_lines = facades.get(module, ((), ()))[0]
                for path, line in targets:
                    if line in own_lines:
                        continue  # counts as one of lib.rs
                    resolved = resolve(module, path)
                    through = [other for other in resolved if other in facades and facades[other][1].intersection(path)]
                    if through and len(resolved) > 1:
                        shown = crate.shown(module.file)
                        self.faults.append(f"{shown}:{line}: `{'::'.join(path)}` leads through a facade for users of the crate: name where it is defined")
                    for target in resolved:
                        to = layers.of(target)
                        if to == source or to not in layers.rows:
                            continue
                        self.edges.append((crate, module.file, line, layers.rows[source][1], layers.rows[to][1], "::".join(path)))
                        mine, other = layers.rows[source][0], layers.rows[to][0]
                        if other > mine:
                            shown = crate.shown(module.file)
                            self.fault(
                                f"edge {shown} -> {layers.rows[to][1]}",
                                f"{shown}:{line}: an edge upward: {layers.rows[source][1]} -> {layers.rows[to][1]}, by `{'::'.join(path)}`",
                            )
                        elif other == mine:
                            same_row.setdefault((source, to), (crate.shown(module.file), line, "::".join(path)))
            for (source, to), (file, line, path) in sorted(same_row.items()):
                if reaches(to, source, same_row):
                    names = layers.rows[source][1], layers.rows[to][1]
                    self.fault(f"edge {file} -> {names[1]}", f"{file}:{line}: an edge in a cycle: {names[0]} -> {names[1]}, by `{path}`")
            for path, (_, shown) in layers.rows.items():
                if path not in layers.used:
                    self.faults.append(f"ARCHITECTURE.md: the layer `{shown}` of {crate.name} does not exist")
            folder = f"edge crates/{crate.name}/"
            count = sum(entry.startswith(folder) for entry in self.occurs)
            self.notes.append(f"{crate.name}: {len(layers.rows)} layers, {count} edges upward from a file to a layer")

    def doubles(self):
        where = {}
        for crate in self.crates:
            for name, _, file, line in crate.types:
                where.setdefault(name, set()).add((crate.shown(file), line))
        return {name: sorted(places) for name, places in sorted(where.items()) if len(places) > 1}, len(where)

    def names(self):
        double, count = self.doubles()
        for name, places in double.items():
            self.notes.append(f"    {name}: " + " ".join(f"{file.removeprefix('crates/')}:{line}" for file, line in places))
        self.notes.append(f"{len(double)} of {count} type names are defined more than once (at most {self.most_double})")
        if len(double) > self.most_double:
            self.faults.append(f"{len(double)} type names are defined more than once, and at most {self.most_double} may be: see the list above")

    def words(self):
        count = 0
        for crate in self.crates:
            for kind, name, file, line in crate.named:
                word = private_word(kind, name)
                if word:
                    count += 1
                    shown = crate.shown(file)
                    self.fault(f"word {kind} {name} {shown}", f"{shown}:{line}: `{name}` has the private word `{word}`: name it by a word of the field")
        self.notes.append(f"{count} modules, types and functions are named by a private word")

    def every_file(self):
        for folder in sorted(self.root.glob("crates/*/src")) + sorted(self.root.glob("crates/*/tests")):
            yield from sorted(folder.rglob("*.rs"))

    def check_invariants(self):
        self.defined = {}  # name -> [(file, line, text)]
        for crate in self.crates:
            for file, source in crate.files.items():
                for names, says, line in invariants(source):
                    for name in names:
                        self.defined.setdefault(name, []).append((crate.shown(file), line, says))
        for name, places in sorted(self.defined.items()):
            if len(places) > 1:
                where = " ".join(f"{file}:{line}" for file, line, _ in places)
                self.fault(f"invariant {name} x{len(places)}", f"{places[1][0]}:{places[1][1]}: the invariant {name} is defined more than once: {where}")
        sources = {file: read_source(file) for file in self.every_file()}
        known_words = set().union(*(source.words for source in sources.values()))
        for file, source in sources.items():
            for name, line in referred(source, known_words):
                if name not in self.defined and not NO_INVARIANT.fullmatch(name):
                    shown = file.relative_to(self.root).as_posix()
                    self.fault(f"invariant {name} {shown}", f"{shown}:{line}: no head comment defines the invariant {name}")
            for name, where, line in placed(source):
                at = self.defined.get(name)
                end = "/" + re.sub(r"\.rs$|/mod\.rs$|^crate/", "", where.replace("::", "/"))
                if at and not any(re.sub(r"(/mod)?\.rs$", "", path).endswith(end) for path, _, _ in at):
                    shown = file.relative_to(self.root).as_posix()
                    self.fault(f"place {name} {shown}", f"{shown}:{line}: {name} is not defined in `{where}`, but in {at[0][0]}")
        double = sum(len(places) > 1 for places in self.defined.values())
        self.notes.append(f"{len(self.defined)} invariants are named, {double} of these names are used for several")
        text = self.architecture.read_text()
        if START not in text or END not in text:
            self.faults.append(f"ARCHITECTURE.md: no place for the table of invariants: {START} ... {END}")
        elif self.with_table(text) != text:
            self.faults.append("ARCHITECTURE.md: the table of invariants is out of date: `ci/layers --write` writes it")

    def table(self):
        lines = ["| name | where | says |", "|---|---|---|"]
        lists = read_layers(self.architecture.read_text())
        order = {}
        for crate in lists:
            for number, row in enumerate(lists[crate]):
                for shown in row:
                    order[f"crates/{crate}/src/{shown}"] = number
        ranked = lambda file: max(((len(prefix), number) for prefix, number in order.items() if file.startswith(prefix)), default=(0, -1))[1]
        crates = [f"crates/{crate}/" for crate in lists]
        crate_of = lambda file: next((number for number, prefix in enumerate(crates) if file.startswith(prefix)), len(crates))
        rows = [(crate_of(file), ranked(file), file, line, name, says) for name, places in self.defined.items() for file, line, says in places]
        for _, _, file, _, name, says in sorted(rows):
            crate, _, path = file.removeprefix("crates/").partition("/src/")
            where = f"`{path}`" if crate == "dapple" else f"`{crate}: {path}`"
            lines.append(f"| {name} | {where} | {sentence(says)} |")
        return "\n".join(lines)

    def with_table(self, text):
        before, rest = text.split(START, 1)
        after = rest.split(END, 1)[1]
        return f"{before}{START}\n{self.table()}\n{END}{after}"

    def sizes(self):
        for crate in self.crates:
            for file, source in sorted(crate.files.items()):
                if source.code_lines > LONG:
                    self.notes.append(f"warning: {crate.shown(file)}: {source.code_lines} lines of code, without comments and tests (about {LONG} is long)")

    def report(self):
        print("\n".join(self.notes))
        print("\n".join(sorted(set(self.faults))) or "ci/layers: layers point down, names and invariants are in order")
        return bool(self.faults)


def reaches(start, goal, edges):
    found, left = set(), [start]
    while left:
        at = left.pop()
        if at == goal:
            return True
        if at not in found:
            found.add(at)
            left += [to for source, to in edges if source == at]
    return False


def main(arguments):
    root = pathlib.Path(__file__).resolve().parent.parent
    if arguments == ["--self-test"]:
        return self_test(root)
    check = Check(root).run()
    if arguments == ["--write"]:
        check.architecture.write_text(check.with_table(check.architecture.read_text()))
        print(f"ARCHITECTURE.md: {len(check.defined)} invariants")
        return 0
    if arguments == ["--edges"]:
        for crate, file, line, source, to, path in check.edges:
            print(f"{source} -> {to}\t{crate.shown(file)}:{line}\t{path}")
        return 0
    if arguments == ["--prune"]:
        lines = check.allow_file.read_text().splitlines(keepends=True)
        stale = {line for entry, line in check.allowed.items() if entry not in check.occurs}
        check.allow_file.write_text("".join(line for number, line in enumerate(lines, 1) if number not in stale))
        print(f"ci/layers.allow: {len(stale)} entries removed")
        return 0
    if arguments:
        print("usage: ci/layers [--write | --prune | --edges | --self-test]", file=sys.stderr)
        return 2
    return check.report() or self_test(root)


def self_test(root):
    """Plants faults in a copy. Each has to be found, and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        for source in sorted(root.glob("crates/*/src")):
            shutil.copytree(source, copy / source.relative_to(root))
        (copy / "ci").mkdir()
        files = ["ARCHITECTURE.md", "ci/layers.allow"]
        for name in files:
            shutil.copyfile(root / name, copy / name)
        before = Check(copy).run()
        known, doubles = set(before.faults), len(before.doubles()[0])
        crate = next(crate for crate in before.crates if crate.name == "dapple")
        rows = [row[0].removesuffix(".rs").strip("/") for row in read_layers(before.architecture.read_text())["dapple"] if "/" not in row[0].strip("/")]
        low, middle, top = rows[0], rows[len(rows) // 2], rows[-1]
        file = lambda layer: crate.root.modules[layer].file
        type_name = next(name for name, kind, _, _ in crate.types if kind == "struct")
        invariant = next(iter(before.defined))
        above = next(path[0] for paths in (crate.root.bound[name] for name in sorted(crate.root.bound)) for path in paths if path[0] in rows[2:])
        exported = next(name for name, paths in sorted(crate.root.bound.items()) if paths[0][0] == above)
        merged = lambda text: re.sub(
            r"(<!-- layers: dapple -->.*?)\| `([^`\n]*)` (\|[^\n]*\n)\| (`[^`\n]*`) \|[^\n]*\n(<!-- end)", r"\1| `\2`, \4 \3\5", text, count=1, flags=re.S
        )

        opened = lambda text: re.sub(rf"^mod {middle};", f"pub mod {middle};", text, flags=re.M)
        planted = [
            ("an edge by `use`", [(low, f"use crate::{{{middle}::a, {top}::{{self as b}}}};")], f"{low} -> {top}"),
            ("an edge by a path in code", [(low, f"fn planted() {{ let x: super::{top}::A = todo!(); }}")], f"{low} -> {top}"),
            ("an edge by a path behind dots", [(low, f"fn planted() -> A {{ A {{ ..super::{top}::a() }} }}")], f"{low} -> {top}"),
            ("an edge by a path in a macro", [(low, f"macro_rules! planted {{ () => {{ $crate::{top}::a() }} }}")], f"{low} -> {top}"),
            ("an edge by a module in scope", [(low, f"use crate::{middle} as b; fn planted() {{ b::Planted::new(); }}"), (middle, f"pub(crate) use crate::{top}::Planted;")], f"{low} -> {top}"),
            ("an edge by the facade", [(low, f"use crate::{exported} as B;")], f"{low} -> {above}"),
            ("an edge by a glob", [(low, f"use crate::{middle}::*; fn planted() -> Planted {{ todo!() }}"), (middle, f"pub(crate) use crate::{top}::Planted;")], f"{low} -> {top}"),
            ("a cycle in a row", [(rows[-2], f"use crate::{top}::a;"), (top, f"use crate::{rows[-2]}::a;"), (None, merged)], "an edge in a cycle"),
            ("a path through a facade", [(middle, f"// Facade: planted.\npub use crate::{top}::Planted;"), (top, f"use crate::{middle}::Planted;"), ("crates/dapple/src/lib.rs", opened)], "leads through a facade"),
            ("a type name", [(low, f"struct {type_name}X;\nenum {type_name}X {{}}")], "type names are defined more than once"),
            ("a private word in a type", [(low, "struct StrandPlanted;")], "private word `strand`"),
            ("a private word for a function", [(low, "impl X { fn relieve(&self) {} }")], "private word `relieve`"),
            ("a doubly defined invariant", [(low, f"//! * **{invariant}**: is defined again.")], f"the invariant {invariant} is defined more than once"),
            ("an invariant that is not in the table", [(low, "//! * **PLANTED-HERE**: is new.")], "table of invariants is out of date"),
            ("a reference to no invariant", [(low, "// SAFETY: as PLANTED-HERE has it")], "no head comment defines the invariant PLANTED-HERE"),
            ("a short reference to no invariant", [(low, "// PLANTED")], "no head comment defines the invariant PLANTED"),
            ("a reference to the wrong file", [(low, f"// {invariant} in\n// `planted::nowhere`")], f"{invariant} is not defined in `planted::nowhere`"),
            ("a stale entry", [("ci/layers.allow", f"edge crates/dapple/src/planted.rs -> {top}")], "remove it"),
            ("a module that is in no list", [("crates/dapple/src/lib.rs", "mod planted { use crate::x; }"), ("crates/dapple/src/lib.rs", "mod planted_file;")], "`planted_file` is not in the list"),
            (None, [(middle, f"// Facade: planted.\n#[cfg(not(loom))]\npub use crate::{top}::{{\n    Planted,\n}};"), ("crates/dapple/src/lib.rs", opened)], None),
            (None, [(low, f"// use crate::{top}::a;"), (low, f'const A: &str = "crate::{top}::a"; const B: &str = r#"use crate::{top}::a;"#;')], None),
            (None, [(low, f"#[cfg(all(test, not(loom)))] mod planted {{ use crate::{top}::a; struct {type_name}; }}")], None),
            (None, [(low, f"#[cfg(loom)] use crate::{top}::a; #[test] fn planted() {{ crate::{top}::a(); }} pub(in crate::{top}) fn b() {{}}")], None),
            (None, [(top, f"use crate::{low}::a;"), (top, "fn planted() { super::super::x(); std::mem::take(); }")], None),
        ]
        (crate.src / "planted_file.rs").write_text("")
        wrong = 0
        for name, plants, expected in planted:
            saved = {}
            for where, text in plants:
                path = copy / "ARCHITECTURE.md" if where is None else file(where) if where in rows else copy / where
                saved.setdefault(path, path.read_text())
                old = path.read_text()
                path.write_text(text(old) if callable(text) else f"{text}\n{old}" if text.startswith("//!") else f"{old}\n{text}\n")
            check = Check(copy, [other for other in before.crates if other is not crate])
            check.most_double = doubles
            found = [fault for fault in check.run().faults if fault not in known]
            if expected is None and found:
                wrong += 1
                print(f"self-test: wrongly found: {found} for {plants}")
            elif expected is not None and not any(expected in fault for fault in found):
                wrong += 1
                print(f"self-test: not found: {name}; found: {found}")
            for path, text in saved.items():
                path.write_text(text)
        print(f"ci/layers: self-test: {len(planted) - wrong} of {len(planted)} as expected")
        return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
