"""The public surface of the library crates, read from rustdoc's JSON.

    ci/api                       compares it with the stored texts in docs/api, and looks for types without an example
    ci/api --write               writes the stored texts anew
    ci/api --examples            lists public types and functions whose documentation has no example that runs
    ci/api --sample CRATE [SEED] prints twenty doc comments drawn at random, without the code (see CONTRIBUTING.md, "Prose")

A change of the surface shows up as a difference of docs/api in the same commit: a reviewer sees a line that went, or
whose types changed. Traits that a type gets from `impl` blocks for all types are left out.
"""

import difflib
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

CRATES = {
    "dapple": ["-p", "dapple", "--lib", "--all-features"],
    "dapple-http": ["-p", "dapple-http", "--lib", "--all-features"],
    "dapple-macros": ["-p", "dapple-macros", "--lib"],
    # A program has no public surface. Its doc comments are read all the same.
    "dapple-cli": ["-p", "dapple-cli", "--bin", "dapple"],
}
LIBRARIES = ["dapple", "dapple-http"]
FORMAT = 57  # of rustdoc's JSON in Rust 1.95
STORED = Path("docs/api")
AUTO = {"Send", "Sync", "Unpin", "UnwindSafe", "RefUnwindSafe", "Freeze"}
NOT_RUN = 77


def load(crate):
    """The JSON of a crate. It is made by the stable toolchain, whose unstable options are opened for this command."""
    flags = ["--", "-Z", "unstable-options", "--output-format", "json"]
    if crate == "dapple-cli":
        flags.append("--document-private-items")
    environment = os.environ | {"RUSTC_BOOTSTRAP": "1"}
    command = ["cargo", "rustdoc", "--quiet", "--locked", *CRATES[crate], *flags]
    made = subprocess.run(command, env=environment, capture_output=True, text=True)
    if made.returncode != 0:
        if "unstable-options" in made.stderr or "RUSTC_BOOTSTRAP" in made.stderr:
            print("not run: this rustdoc writes no JSON")
            sys.exit(NOT_RUN)
        sys.exit(f"ci/api: {' '.join(command)} failed:\n{made.stderr}")
    name = {"dapple-cli": "dapple"}.get(crate, crate).replace("-", "_")
    target = Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    doc = json.loads((target / "doc" / f"{name}.json").read_text())
    if doc["format_version"] != FORMAT:
        print(f"not run: rustdoc's JSON has format {doc['format_version']}, and this lane reads {FORMAT} (Rust 1.95)")
        sys.exit(NOT_RUN)
    return doc


class Surface:
    """The items that a user can name, each with its paths."""

    def __init__(self, crate):
        self.doc = load(crate)
        self.index = self.doc["index"]
        self.items = {}  # path -> item
        root = self.index[str(self.doc["root"])]
        self.walk(root, root["name"], set())

    def walk(self, module, path, above):
        for id in module["inner"]["module"]["items"]:
            item = self.index.get(str(id))
            if item is None or not is_shown(item):
                continue
            kind, inner = kind_of(item)
            name = item["name"]
            if kind == "use":
                target = self.index.get(str(inner["id"]))
                if target is None or target["crate_id"] != 0:
                    self.items.setdefault(f"{path}::{inner['name']}", item)
                    continue
                item, name = target, inner["name"]
                kind, _ = kind_of(item)
                if inner["is_glob"]:
                    self.walk(item, path, above | {item["id"]})
                    continue
            if item["id"] in above:
                continue
            self.items[f"{path}::{name}"] = item
            if kind == "module":
                self.walk(item, f"{path}::{name}", above | {item["id"]})

    def get(self, id):
        return self.index.get(str(id))

    def impls(self, item):
        """The `impl` blocks of a type that are its own: inherent ones, and those of traits that are not blanket."""
        _, inner = kind_of(item)
        for id in inner.get("impls", []):
            block = self.get(id)
            if block is None:
                continue
            block = block["inner"]["impl"]
            if block["blanket_impl"] is None and not block["is_synthetic"]:
                yield block

    def methods(self, item):
        """Public functions in inherent `impl` blocks, or of a trait."""
        kind, inner = kind_of(item)
        if kind == "trait":
            ids = inner["items"]
        else:
            ids = [id for block in self.impls(item) if block["trait"] is None for id in block["items"]]
        for id in ids:
            method = self.get(id)
            if method is not None and is_shown(method) and (kind == "trait" or method["visibility"] == "public"):
                yield method


def kind_of(item):
    return next(iter(item["inner"].items()))


def is_shown(item):
    return not any("doc(hidden)" in str(attribute) or "hidden" in str(attribute) for attribute in item["attrs"])


# Types as text.


def text(kind):
    """A type, as it is written."""
    if kind is None:
        return "_"
    if kind == "infer":
        return "_"
    name, inner = next(iter(kind.items()))
    match name:
        case "resolved_path":
            return inner["path"].rsplit("::", 1)[-1] + arguments(inner["args"])
        case "generic" | "primitive":
            return inner
        case "tuple":
            return "(" + ", ".join(map(text, inner)) + ("," if len(inner) == 1 else "") + ")"
        case "slice":
            return f"[{text(inner)}]"
        case "array":
            return f"[{text(inner['type'])}; {inner['len']}]"
        case "impl_trait":
            return "impl " + bounds(inner)
        case "dyn_trait":
            parts = [poly(bound) for bound in inner["traits"]] + ([inner["lifetime"]] if inner["lifetime"] else [])
            return "dyn " + " + ".join(parts)
        case "borrowed_ref":
            lifetime = f"{inner['lifetime']} " if inner["lifetime"] else ""
            return f"&{lifetime}{'mut ' if inner['is_mutable'] else ''}{text(inner['type'])}"
        case "raw_pointer":
            return f"*{'mut' if inner['is_mutable'] else 'const'} {text(inner['type'])}"
        case "qualified_path":
            trait = inner.get("trait")
            own = text(inner["self_type"])
            of = f"<{own} as {trait['path'].rsplit('::', 1)[-1]}{arguments(trait['args'])}>" if trait and trait["path"] else own
            return f"{of}::{inner['name']}{arguments(inner['args'])}"
        case "function_pointer":
            return "fn" + signature(inner["sig"])
        case _:
            return json.dumps(kind)


def arguments(args):
    if args is None:
        return ""
    if "parenthesized" in args:
        inner = args["parenthesized"]
        output = f" -> {text(inner['output'])}" if inner["output"] else ""
        return "(" + ", ".join(map(text, inner["inputs"])) + ")" + output
    if "angle_bracketed" not in args:
        return "(..)"
    inner, parts = args["angle_bracketed"], []
    for argument in inner["args"]:
        if argument == "infer":
            parts.append("_")
        elif "lifetime" in argument:
            parts.append(argument["lifetime"])
        elif "type" in argument:
            parts.append(text(argument["type"]))
        else:
            parts.append(argument["const"]["expr"])
    for constraint in inner["constraints"]:
        binding = constraint["binding"]
        if "equality" in binding:
            term = binding["equality"]
            parts.append(f"{constraint['name']} = {text(term['type']) if 'type' in term else term['constant']['expr']}")
        else:
            parts.append(f"{constraint['name']}: {bounds(binding['constraint'])}")
    return f"<{', '.join(parts)}>" if parts else ""


def poly(bound):
    of = ", ".join(parameter["name"] for parameter in bound["generic_params"])
    trait = bound["trait"]
    return (f"for<{of}> " if of else "") + trait["path"].rsplit("::", 1)[-1] + arguments(trait["args"])


def bounds(parts):
    words = []
    for bound in parts:
        if "trait_bound" in bound:
            inner = bound["trait_bound"]
            words.append({"none": "", "maybe": "?", "maybe_const": "~const "}[inner["modifier"]] + poly(inner))
        elif "outlives" in bound:
            words.append(bound["outlives"])
        else:
            words.append("use<..>")
    return " + ".join(words)


def generics(inner):
    """The parameters, and the `where` clause."""
    words, clauses = [], []
    for parameter in inner["params"]:
        kind, of = next(iter(parameter["kind"].items()))
        if kind == "lifetime":
            words.append(parameter["name"] + (f": {' + '.join(of['outlives'])}" if of["outlives"] else ""))
        elif kind == "const":
            words.append(f"const {parameter['name']}: {text(of['type'])}")
        elif not of["is_synthetic"]:
            default = f" = {text(of['default'])}" if of["default"] else ""
            words.append(parameter["name"] + (f": {bounds(of['bounds'])}" if of["bounds"] else "") + default)
    for clause in inner["where_predicates"]:
        kind, of = next(iter(clause.items()))
        if kind == "bound_predicate":
            clauses.append(f"{text(of['type'])}: {bounds(of['bounds'])}")
        elif kind == "lifetime_predicate":
            clauses.append(f"{of['lifetime']}: {' + '.join(of['outlives'])}")
        else:
            clauses.append(f"{text(of['lhs'])} == {of['rhs']}")
    return (f"<{', '.join(words)}>" if words else ""), (f" where {', '.join(clauses)}" if clauses else "")


def signature(sig):
    inputs = []
    for name, kind in sig["inputs"]:
        own = text(kind)
        if name == "self":
            inputs.append({"Self": "self", "&Self": "&self", "&mut Self": "&mut self"}.get(own, f"self: {own}"))
        else:
            inputs.append(f"{name}: {own}")
    output = f" -> {text(sig['output'])}" if sig["output"] else ""
    return f"({', '.join(inputs)}){output}"


def function(path, item):
    inner = item["inner"]["function"]
    header, (parameters, where) = inner["header"], generics(inner["generics"])
    words = "".join(f"{word} " for word in ("const", "async", "unsafe") if header[f"is_{word}"])
    return f"{words}fn {path}{parameters}{signature(inner['sig'])}{where}"


def lines(surface):
    """The public surface as lines of text, sorted."""
    found, first = [], {}
    for path, item in sorted(surface.items.items(), key=lambda pair: (pair[0].count("::"), pair[0])):
        kind, inner = kind_of(item)
        if first.setdefault(item["id"], path) != path:
            found.append(f"use {path} = {first[item['id']]}")
            continue
        if kind == "use":
            found.append(f"use {path} = {inner['source']}")
            continue
        if kind == "module":
            found.append(f"mod {path}")
            continue
        if kind == "function":
            found.append(function(path, item))
            continue
        if kind in ("proc_macro", "macro"):
            found.append(f"macro {path}")
            continue
        if kind == "constant":
            found.append(f"const {path}: {text(inner['type'])}")
            continue
        if kind == "type_alias":
            found.append(f"type {path}{generics(inner['generics'])[0]} = {text(inner['type'])}")
            continue
        parameters, where = generics(inner["generics"])
        open_end = "#[non_exhaustive] " if any("non_exhaustive" in str(attribute) for attribute in item["attrs"]) else ""
        supers = f": {bounds(inner['bounds'])}" if kind == "trait" and inner["bounds"] else ""
        found.append(f"{open_end}{kind} {path}{parameters}{supers}{where}")
        for field in fields(surface, item):
            found.append(f"{path}::{field}")
        for method in surface.methods(item):
            of, _ = kind_of(method)
            if of == "function":
                given = " { .. }" if kind == "trait" and method["inner"]["function"]["has_body"] else ""
                found.append(function(f"{path}::{method['name']}", method) + given)
            elif of == "assoc_type":
                own = method["inner"]["assoc_type"]
                found.append(f"type {path}::{method['name']}" + (f": {bounds(own['bounds'])}" if own["bounds"] else ""))
            else:
                found.append(f"{of} {path}::{method['name']}")
        if kind != "trait":
            for block in surface.impls(item):
                if block["trait"] is not None and not block["is_negative"]:
                    own, of = generics(block["generics"])
                    trait = block["trait"]["path"].rsplit("::", 1)[-1] + arguments(block["trait"]["args"])
                    if trait != "StructuralPartialEq":
                        found.append(f"impl{own} {trait} for {path}{arguments_of(block)}{of}")
            for trait in sorted(auto_traits(surface, item)):
                found.append(f"auto {trait} for {path}")
    return sorted(set(found))


def arguments_of(block):
    kind = block["for"]
    return arguments(kind["resolved_path"]["args"]) if "resolved_path" in kind else f" (as {text(kind)})"


def auto_traits(surface, item):
    """`Send`, `Sync` and the like, with a `?` if they depend on the parameters, and `!` if they are not there."""
    for id in kind_of(item)[1].get("impls", []):
        block = surface.get(id)
        if block is None or not block["inner"]["impl"]["is_synthetic"]:
            continue
        block = block["inner"]["impl"]
        trait = block["trait"]["path"].rsplit("::", 1)[-1]
        if trait in ("Send", "Sync"):
            yield f"{'!' if block['is_negative'] else ''}{trait}{generics(block['generics'])[1]}"


def fields(surface, item):
    kind, inner = kind_of(item)
    if kind == "enum":
        for id in inner["variants"]:
            variant = surface.get(id)
            of = variant["inner"]["variant"]["kind"]
            if of == "plain":
                yield variant["name"]
            elif "tuple" in of:
                types = [text(surface.get(field)["inner"]["struct_field"]) if field else "_" for field in of["tuple"]]
                yield f"{variant['name']}({', '.join(types)})"
            else:
                names = [surface.get(field) for field in of["struct"]["fields"]]
                yield variant["name"] + " { " + ", ".join(
                    f"{field['name']}: {text(field['inner']['struct_field'])}" for field in names) + " }"
    elif kind == "struct":
        of = inner["kind"]
        ids = of["plain"]["fields"] if isinstance(of, dict) and "plain" in of else []
        if isinstance(of, dict) and "tuple" in of:
            ids = [field for field in of["tuple"] if field is not None]
        for id in ids:
            field = surface.get(id)
            if field is not None and field["visibility"] == "public" and is_shown(field):
                yield f"{field['name']}: {text(field['inner']['struct_field'])}"


# Examples.


def has_example(docs):
    """Whether a doc comment has a block of code that is compiled, and run unless it says `no_run`."""
    opened = re.findall(r"^\s*```([^\n`]*)\n(?:.*?)^\s*```", docs or "", re.MULTILINE | re.DOTALL)
    return any(not re.search(r"text|ignore|compile_fail|sh\b|toml|json", words) for words in opened)


def without_example(surface):
    """Public types, and public functions, without an example. A type has one if its docs do, or one of its methods, or a
    function that returns it: a future is shown by the function that makes it."""
    makers, shown = {}, {}
    for path, item in surface.items.items():
        functions = [item] if kind_of(item)[0] == "function" else []
        if kind_of(item)[0] in ("struct", "enum", "union", "trait"):
            functions += [method for method in surface.methods(item) if kind_of(method)[0] == "function"]
        for maker in functions:
            if has_example(maker["docs"]):
                for id in re.findall(r'"id": (\d+)', json.dumps(maker["inner"]["function"]["sig"])):
                    makers.setdefault(int(id), path)
        # A type that is named in an example of its module is shown there: the arguments of a trait's methods.
        for shower in [item, *functions]:
            if has_example(shower["docs"]):
                shown.setdefault(path.rsplit("::", 1)[0], []).append(shower["docs"])
    seen, types, functions = set(), [], []
    for path, item in sorted(surface.items.items(), key=lambda pair: len(pair[0])):
        kind, _ = kind_of(item)
        if item["id"] in seen:
            continue
        seen.add(item["id"])
        if kind in ("struct", "enum", "trait"):
            methods = [method for method in surface.methods(item) if kind_of(method)[0] == "function"]
            if not (has_example(item["docs"]) or any(has_example(method["docs"]) for method in methods)
                    or item["id"] in makers or is_named(path, shown)):
                types.append((path, kind))
            functions += [(f"{path}::{method['name']}", "method") for method in methods if not has_example(method["docs"])]
        elif kind in ("function", "proc_macro") and not has_example(item["docs"]):
            functions.append((path, kind))
    return types, functions


def is_named(path, shown):
    module, name = path.rsplit("::", 1)
    return any(re.search(rf"^\s*```[^\n]*\n(?:(?!```).*\n)*?.*\b{name}\b", docs, re.MULTILINE) for docs in shown.get(module, []))


# Samples.


def sample(crate, seed):
    surface = Surface(crate)
    pool = {}
    if crate == "dapple-cli":
        for id, item in surface.index.items():
            if item["crate_id"] == 0 and item["docs"] and item["name"]:
                pool[id] = (f"{item['span']['filename'] if item['span'] else ''} {kind_of(item)[0]} {item['name']}", item)
    else:
        for path, item in surface.items.items():
            kind, _ = kind_of(item)
            if kind == "use":
                continue
            pool.setdefault(item["id"], (f"{kind} {path}", item))
            if kind in ("struct", "enum", "trait"):
                for method in surface.methods(item):
                    pool.setdefault(method["id"], (f"{kind_of(method)[0]} {path}::{method['name']}", method))
            if kind == "enum":
                for id in item["inner"]["enum"]["variants"]:
                    pool.setdefault(id, (f"variant {path}::{surface.get(id)['name']}", surface.get(id)))
    pool = sorted(pool.values(), key=lambda entry: entry[0])
    drawn = random.Random(seed).sample(pool, min(20, len(pool)))
    for number, (name, item) in enumerate(drawn, 1):
        docs = re.sub(r"^```.*?^```$", "(an example)", item["docs"] or "(nothing)", flags=re.MULTILINE | re.DOTALL)
        print(f"--- {number}. {name}\n{docs}\n")


def main():
    words = sys.argv[1:]
    if words[:1] == ["--sample"]:
        crate, seed = words[1], int(words[2]) if len(words) > 2 else 21
        return sample(crate, seed)
    if words[:1] == ["--examples"]:
        for crate in words[1:] or LIBRARIES:
            types, functions = without_example(Surface(crate))
            for path, kind in types:
                print(f"{kind} {path}")
            for path, kind in functions:
                print(f"  {kind} {path}")
            print(f"{crate}: {len(types)} types, {len(functions)} functions without an example")
        return
    failed = False
    for crate in LIBRARIES:
        surface = Surface(crate)
        now, stored = lines(surface), STORED / f"{crate}.txt"
        if words == ["--write"]:
            STORED.mkdir(exist_ok=True)
            stored.write_text("\n".join(now) + "\n")
            continue
        before = stored.read_text().splitlines() if stored.exists() else []
        changed = [line for line in difflib.unified_diff(before, now, str(stored), crate, lineterm="", n=0)
                   if not line.startswith("@@")]
        for line in changed:
            print(line)
        failed |= bool(changed)
        types, functions = without_example(surface)
        for path, kind in types:
            print(f"{kind} {path} has no example: nor have its methods, or a function that returns it")
        failed |= bool(types)
        print(f"{crate}: {len(now)} lines of public surface; {len(functions)} functions have no example of their own")
    if failed:
        sys.exit("ci/api: if the change is meant, `ci/api --write`, and a line in CHANGELOG.md if a user has to act")


if __name__ == "__main__":
    main()
