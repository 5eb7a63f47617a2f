#!/usr/bin/env python3
"""Checks the shape of the tree: who may include whom, how long things are, what is mutable, which planted faults apply.

usage: tests/shape/shape.py [--root <folder>] [--objects <archive or object> ...]

Prints what it measured beside its limit, then every violation as "file:line: what is wrong"; the
exit status is 1 when there is one. Mutable variables are looked for in built objects.
"""

import argparse
import collections
import dataclasses
import pathlib
import re
import statistics
import subprocess
import sys

# The rooms of the library, from the ground up. A room may include itself and those before it.
FLOORS = ["common", "devices", "compute", "net", "rendezvous", "transport", "topology", "collectives", "runtime",
          "ddp", "bindings/c"]
# Pairs of rooms of which neither includes the other.
SEPARATE_ROOMS = [{"transport", "topology"}, {"compute", "collectives"}, {"ddp", "bindings/c"}]

# Limits. They may be tightened; whoever loosens one gives the reason in the commit.
FUNCTION_LINES = 70
LONG_FUNCTION_LINES, LONG_FUNCTION_SHARE = 60, 0.005
SOURCE_LINES, HEADER_LINES, README_LINES = 600, 350, 60
MAIN_HEADER_LINES, MAIN_HEADER_CLOSURE_LINES = 250, 1300
TRANSPORT_FUNCTIONS = 14
READING_FILES, READING_LINES = 20, 3500

C_HEADERS = {"<stddef.h>", "<stdint.h>"}  # what the C ABI needs
# C has no exception that carries the text of an error, so the text is kept for each thread, as errno is.
LAST_ERROR = "tutti::c::(anonymous namespace)::last_error"
# A signal handler has no argument, so what it counts has to be a variable that it finds by its name.
DUMP_SIGNAL = "tutti::(anonymous namespace)::dump_signal"
# A peer may still write memory of a GPU when every communicator of the process is gone.
EXPORTS = "tutti::GpuExports::of_process()::exports"
# A graph may give pinned memory back when every communicator is gone, in a thread in which the driver cannot be called to free it.
LEFT_BLOCKS = "tutti::(anonymous namespace)::left_blocks()::left"
# Streams of the program may wait for words, and may still have kernels to launch, when every communicator is gone; the communicators
# of a process share a GPU's kernels.
GPU_WORDS = "tutti::GpuWords::of_process()::words"
OPEN_GPUS = "tutti::(anonymous namespace)::open_gpus()::gpus"
# What a thread's waits ask: which scope of the program the thread is in, and the function that a program in C has given for it.
INTERRUPTIBLES = ("tutti::(anonymous namespace)::innermost_interruptible", "tutti::c::(anonymous namespace)::interrupting")
MAIN_HEADER = "include/tutti/tutti.hpp"
SEAM = "transport/channel.h"
NO_TRANSPORTS = {"mesh", "queue_pair", "ring"}  # the folders of transport/ that transports share
READING = "docs/architecture.md"  # its numbered list names the files through which an all-reduce goes
APART = ("collectives/algorithms/", "compute/float.cpp", "compute/integer.cpp")  # their sources are never compiled with others
OUTSIDE = ["include", "bindings", "tools", "examples", "perf", "tests"]  # the folders beside the library's rooms
LIBRARY = ("include/", *(f"{floor}/" for floor in FLOORS))
CPP = {".cpp", ".h", ".hpp"}
HEADERS = {".h", ".hpp"}


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    path: str
    line: int
    message: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.message}"


@dataclasses.dataclass(frozen=True)
class Function:
    path: str
    line: int
    lines: int
    head: str


class File:
    """One source file: its text, and its code with comments, literals and directives blanked."""

    _BLANK = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"' r"|(?<!\w)'(?:\\.|[^'\\\n])+'", re.S)
    _DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.M)

    def __init__(self, root, path):
        self.path = path.relative_to(root).as_posix()
        self.suffix = path.suffix
        self.text = path.read_text(encoding="utf-8")
        self.lines = self.text.count("\n") + (not self.text.endswith("\n"))
        self.code = ""
        self.includes = []  # (line, "<name>" or '"name"')
        if path.suffix in CPP:
            blank = lambda match: re.sub(r"[^\n]", " ", match.group())
            self.code = self._DIRECTIVE.sub(blank, self._BLANK.sub(blank, self.text))
            for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*([<"][^>"\n]+[>"])', self.text, re.M):
                self.includes.append((self.text.count("\n", 0, match.start()) + 1, match.group(1)))

    def floor(self):
        return next((floor for floor in FLOORS if self.path.startswith(f"{floor}/")), None)


class Tree:
    """The files of a source tree by path, and which of them each file includes."""

    def __init__(self, root):
        self.root = root
        folders = [p for p in root.iterdir() if p.is_dir() and p.name != "build" and not p.name.startswith(".")]
        paths = [p for folder in folders for p in folder.rglob("*") if p.is_file()]
        self.files = {}
        for path in sorted(paths):
            if path.suffix in CPP or path.suffix == ".py" or path.name == "README.md":
                file = File(root, path)
                self.files[file.path] = file
        reading = root / READING
        self.reading = re.findall(r"^\d+\. `([^`]+)`", reading.read_text() if reading.exists() else "", re.M)
        self.edges = {path: self._resolve(file) for path, file in self.files.items()}

    def _resolve(self, file):
        """Returns the (line, path) of each include that is a file of this tree."""
        found = []
        here = file.path.rsplit("/", 1)[0]
        top = file.path.split("/", 1)[0]
        for line, name in file.includes:
            for base in ([here, "", top] if name[0] == '"' else ["include"]):
                path = f"{base}/{name[1:-1]}".removeprefix("/")
                if path in self.files:
                    found.append((line, path))
                    break
        return found

    def cpp(self, *tops):
        return [f for f in self.files.values() if f.suffix in CPP and f.path.startswith(tops)]

    def closure(self, path):
        seen, todo = set(), [path]
        while todo:
            at = todo.pop()
            if at not in seen:
                seen.add(at)
                todo += [target for _, target in self.edges[at]]
        return seen


def functions(file):
    """Returns the functions of a file: blocks at namespace or class scope whose head has a '('."""
    code, found = file.code, []
    start, parens, i = 0, 0, 0
    while i < len(code):
        c = code[i]
        if c in "()":
            parens += 1 if c == "(" else -1
        elif c == "{" and parens > 0:
            i = closing_brace(code, i)
        elif c == "{":
            head = code[start:i]
            if is_container(head):
                start = i + 1
            else:
                end = closing_brace(code, i)
                if not re.match(r"\s*[,{]", code[end + 1:]):  # otherwise it is a member initialiser: Type() : a_{1} {
                    if "(" in head:
                        found.append(function(file, start, end, head))
                    start = end + 1
                i = end
        elif c in "};" and parens == 0:
            start = i + 1
        i += 1
    return found


def function(file, start, end, head):
    text = re.sub(r"^(\s|(public|private|protected)\s*:)+", "", head)
    first = file.code.count("\n", 0, start + len(head) - len(text)) + 1
    last = file.code.count("\n", 0, end) + 1
    return Function(file.path, first, last - first + 1, " ".join(text.split())[:60])


def closing_brace(code, opening):
    depth = 0
    for i in range(opening, len(code)):
        depth += {"{": 1, "}": -1}.get(code[i], 0)
        if depth == 0:
            return i
    return len(code) - 1


def is_container(head):
    """Returns whether a block opens a namespace or a type, in which functions may stand."""
    head = re.sub(r"\[\[.*?\]\]|alignas\s*\([^)]*\)|template\s*<[^{]*?>\s*(?=\w)", " ", head, flags=re.S)
    head = re.sub(r"^(\s|(public|private|protected)\s*:)+", "", head)
    if re.match(r"(inline\s+)?namespace\b|extern\s*$", head):
        return True
    return bool(re.match(r"(class|struct|union|enum)\b", head)) and "(" not in head


def check_floors(tree):
    for file in tree.cpp(""):
        floor = file.floor()
        if floor is None:
            if file.path.split("/")[0] not in OUTSIDE:
                yield Finding(file.path, 1, f"is on no floor; the floors are {', '.join(FLOORS)}")
            continue
        for line, target in tree.edges[file.path]:
            other = tree.files[target].floor()
            if other not in FLOORS:
                continue
            if FLOORS.index(other) > FLOORS.index(floor):
                yield Finding(file.path, line, f"{floor} includes {target}, which is above it")
            elif {floor, other} in SEPARATE_ROOMS:
                yield Finding(file.path, line, f"{floor} and {other} do not include each other")


def check_transports(tree):
    def transport(path):
        parts = path.split("/")
        return parts[1] if path.startswith("transport/") and len(parts) > 2 and parts[1] not in NO_TRANSPORTS else None

    for file in tree.cpp("transport/"):
        for line, target in tree.edges[file.path]:
            mine, other = transport(file.path), transport(target)
            if mine and other and mine != other:
                yield Finding(file.path, line, f"transport {mine} includes transport {other}")


def check_public(tree):
    """Checks that public headers and examples include only public headers and the standard library."""
    for file in tree.cpp("include/"):
        for line, name in file.includes:
            public = name[0] == "<" and (name[1:-1].startswith("tutti/") or "." not in name or name in C_HEADERS)
            if not public:
                yield Finding(file.path, line, f"a public header includes {name}, which is not public")
    for file in tree.cpp("examples/"):
        for line, target in tree.edges[file.path]:
            if tree.files[target].floor():
                yield Finding(file.path, line, f"an example includes {target}, which is not public")


def cycles(edges):
    """Returns a cycle through each node that is on one, as a list of nodes; each set of nodes occurs once."""
    found = {}
    for origin in sorted(edges):
        paths = collections.deque([[origin]])
        seen = set()
        while paths:
            path = paths.popleft()
            for target in sorted(edges.get(path[-1], ())):
                if target == origin:
                    found.setdefault(frozenset(path), path + [origin])
                    paths.clear()
                    break
                if target not in seen:
                    seen.add(target)
                    paths.append(path + [target])
    return list(found.values())


def module(file):
    return file.floor() or "/".join(file.path.split("/")[:2])


def module_cycles(tree):
    edges = collections.defaultdict(set)
    for file in tree.cpp(*LIBRARY):
        for _, target in tree.edges[file.path]:
            if module(tree.files[target]) != module(file):
                edges[module(file)].add(module(tree.files[target]))
    return cycles(edges)


def check_cycles(tree):
    for cycle in cycles({path: {target for _, target in edge} for path, edge in tree.edges.items()}):
        line = next(line for line, target in tree.edges[cycle[0]] if target == cycle[1])
        yield Finding(cycle[0], line, f"include cycle: {' -> '.join(cycle)}")
    for cycle in module_cycles(tree):
        yield Finding(cycle[0], 1, f"include cycle of folders: {' -> '.join(cycle)}")


def check_lengths(tree):
    for file in tree.files.values():
        if file.path.endswith("README.md"):
            limit = README_LINES
        elif file.path == MAIN_HEADER:
            limit = MAIN_HEADER_LINES
        else:
            limit = HEADER_LINES if file.suffix in HEADERS else SOURCE_LINES
        if file.lines > limit:
            yield Finding(file.path, limit + 1, f"{file.lines} lines; at most {limit}")
        for f in functions(file):
            if f.lines > FUNCTION_LINES:
                yield Finding(f.path, f.line, f"{f.lines} lines; at most {FUNCTION_LINES}: {f.head}")


def named_around(file, at):
    """Returns the name of the namespace at a place of the file."""
    named = [(m.start(), closing_brace(file.code, m.end() - 1), m.group(1))
             for m in re.finditer(r"\bnamespace\s+([\w:]+)\s*\{", file.code)]
    return "::".join(name for start, end, name in named if start < at < end)


def shared_constants(file):
    """Yields (namespace, name) of the constants that a header defines."""
    for match in re.finditer(r"\binline constexpr [\w:<>, ]+?\b(k[A-Z]\w*)\s*[={]", file.code):
        yield named_around(file, match.start()), match.group(1)


def unnamed_namespaces(file):
    """Yields (namespace around it, offset of its text, text) of each unnamed namespace; the text has nothing within braces."""
    for match in re.finditer(r"\bnamespace\s*\{", file.code):
        around = named_around(file, match.start())
        depth, text = 0, []
        for c in file.code[match.end():closing_brace(file.code, match.end() - 1)]:
            depth -= c == "}"
            text.append(c if depth == 0 or c == "\n" else " ")
            depth += c == "{"
        yield around, match.end(), "".join(text)


def own_names(file):
    """Yields (line, namespace, name) of what unnamed namespaces define; functions have the types of their parameters in the name."""
    kind = r"(?:class|struct|union|enum(?:\s+class|\s+struct)?)"
    patterns = (rf"\b{kind}\s+(?P<name>\w+)\b[^;(){{]*\{{", r"\busing\s+(?P<name>\w+)\s*=",
                r"(?<![\w:.>])(?P<name>\w+)\((?P<types>(?:[^()]|\([^()]*\))*)\)[\w\s:<>*&,-]*\{",
                r"^(?:inline |static |thread_local )*(?:constexpr|constinit|const) [^=(){};]*?\b(?P<name>\w+)(?:\[\w*\])?\s*[={]")
    for around, at, text in unnamed_namespaces(file):
        for pattern in patterns:
            for match in re.finditer(pattern, text, re.M):
                name, types = match.group("name"), match.groupdict().get("types")
                if types is not None:
                    types = re.split(r",(?![^<]*>)", re.sub(r"\s*=[^,]*", "", types))
                    name += f"({', '.join(' '.join(re.sub(r'(?<=[ &*>])[a-z_]+[ ]*$', '', t).split()) for t in types)})"
                yield file.code.count("\n", 0, at + match.start("name")) + 1, around, name


def check_unique(tree):
    """Finds names that several sources, or a source and a header, define: a build that compiles several sources as one refuses those."""
    first = {constant: file.path for file in tree.cpp(*LIBRARY) if file.suffix in HEADERS for constant in shared_constants(file)}
    for file in tree.cpp(*LIBRARY, "bindings/"):
        if file.suffix == ".cpp" and not file.path.startswith(APART):
            for line, around, name in own_names(file):
                other = first.setdefault((around, name), file.path)
                if other != file.path:
                    yield Finding(file.path, line, f"{name} is defined in {other}, too")


def check_readmes(tree):
    for folder in sorted({file.path.rsplit("/", 1)[0] for file in tree.cpp(*LIBRARY[1:])}):
        if f"{folder}/README.md" not in tree.files:
            yield Finding(folder, 1, "has no README.md that says what lives here")


def check_planted_faults(tree):
    for patch in sorted(tree.root.glob("tests/*/faults/*.patch")):
        applied = subprocess.run(["git", "apply", "--check", patch], cwd=tree.root, capture_output=True, text=True)
        if applied.returncode != 0:
            why = applied.stderr.splitlines()[0].removeprefix("error: ")
            yield Finding(patch.relative_to(tree.root).as_posix(), 1, f"no longer applies to the tree: {why}")


def check_mutable(tree, objects):
    """Finds the variables that can change, in the writable sections of built objects. Names tell ours from others'."""
    foreign = re.compile(r"(std|__gnu_cxx|spdlog|fmt|hwy|testing|nlohmann|CLI)(::|\[)|guard variable for |__tls_guard|DW\.ref\.")
    path = "objects"
    for line in read_symbols(objects):
        if match := re.match(r"(\S+):\s+file format", line):
            path = source_of(tree, match.group(1))
        match = re.match(r"[0-9a-f]+ .{7} (\S+)\s+[0-9a-f]+\s+(?:\.\w+ )?(.+)$", line)
        if not match:
            continue
        section, name = match.groups()
        writable = re.match(r"\.(data|bss|tdata|tbss)(\.|$)", section) and not section.startswith(".data.rel.ro")
        if writable and name not in (LAST_ERROR, DUMP_SIGNAL, EXPORTS, LEFT_BLOCKS, GPU_WORDS, OPEN_GPUS, *INTERRUPTIBLES) and not foreign.match(name) and not name.startswith("."):
            line, constant = declaration(tree, path, name)
            if not constant:
                yield Finding(path, line, f"mutable variable {name} (in {section})")


def read_symbols(objects):
    if not objects:
        return []
    command = ["objdump", "--syms", "--demangle", *map(str, objects)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def source_of(tree, member):
    """Returns the source of an object that meson named common_log.cpp.o, or the object's own name."""
    name = pathlib.PurePath(member).name.removesuffix(".o")
    return next((p for p in tree.files if p.replace("/", "_") == name), member)


def declaration(tree, path, name):
    """Returns the line that declares a variable and whether it is const, since constants that need relocation or
    initialisation are in writable sections, too."""
    word = re.escape(name.split("::")[-1].split("[")[0])
    code = tree.files[path].code if path in tree.files else ""
    for match in re.finditer(rf"\b{word}\b\s*[\[{{=(;]", code):
        head = re.split(r"[;{}]", code[:match.start()])[-1]
        while re.search(r"<[^<>]*>", head):
            head = re.sub(r"<[^<>]*>", "", head)
        if len(head.split()) > 0 and not head.rstrip().endswith(("return", ".", "->", "::", "(", ",")):
            constant = re.search(r"\bconstexpr\b|\bconst\b[^*&]*$", head) is not None
            return code.count("\n", 0, match.start()) + 1, constant
    return 1, False


def figures(tree, mutable):
    """Yields (what, measured, limit) to be read by people; the checks above enforce the limits."""
    ours = [f for file in tree.cpp(*LIBRARY, "tools/", "examples/", "perf/") for f in functions(file)]
    library = [f for f in ours if f.path.startswith(LIBRARY)]
    every = ours + [f for file in tree.cpp("tests/") for f in functions(file)]
    longest = max(every, key=lambda f: f.lines, default=Function("-", 1, 0, ""))
    share = sum(f.lines > LONG_FUNCTION_LINES for f in every) / max(len(every), 1)
    yield "longest function", f"{longest.lines} ({longest.path}:{longest.line})", f"<= {FUNCTION_LINES}"
    yield f"functions over {LONG_FUNCTION_LINES} lines", f"{share:.1%} of {len(every)}", f"<= {LONG_FUNCTION_SHARE:.1%}"
    for what, suffixes, limit in (("largest source", {".cpp"}, SOURCE_LINES), ("largest header", HEADERS, HEADER_LINES)):
        file = max((f for f in tree.cpp("") if f.suffix in suffixes), key=lambda f: f.lines, default=None)
        yield what, f"{file.lines} ({file.path})" if file else "-", f"<= {limit}"
    if MAIN_HEADER in tree.files:
        closure = sum(tree.files[p].lines for p in tree.closure(MAIN_HEADER))
        yield "main public header; with what it includes", f"{tree.files[MAIN_HEADER].lines}; {closure}", \
            f"<= {MAIN_HEADER_LINES}; <= {MAIN_HEADER_CLOSURE_LINES}"
    yield "modules on an include cycle", str(len({m for cycle in module_cycles(tree) for m in cycle})), "0"
    yield "mutable namespace-scope variables", mutable, "0"
    if SEAM in tree.files:
        yield "functions a transport implements", str(transport_functions(tree)), f"<= {TRANSPORT_FUNCTIONS}"
    if tree.reading:
        yield "an all-reduce read end to end: files; lines", f"{len(tree.reading)}; {reading_lines(tree)}", \
            f"<= {READING_FILES}; <= {READING_LINES}"
    asserts = sum(len(re.findall(r"\b(?:static_)?assert\s*\(", f.code)) for f in tree.cpp(*LIBRARY))
    yield "assertions a function (library)", f"{asserts / max(len(library), 1):.2f}", ">= 1 wished"
    lines = lambda *tops: sum(bool(line.strip()) for f in tree.cpp(*tops) for line in f.code.splitlines())
    code = lines(*LIBRARY, "tools/", "examples/", "perf/")
    yield "test lines to code lines", f"{lines('tests/') / max(code, 1):.2f} of {code}", ">= 0.8 wished"
    names = re.findall(r"\bTEST(?:_[FP])?\(\s*\w+,\s*(\w+)", "".join(f.text for f in tree.cpp("tests/")))
    words = statistics.median([len(re.findall(r"[A-Z0-9][^A-Z]*", name)) for name in names] or [0])
    yield "tests; words in a test's name", f"{len(names)}; {words:g}", ">= 6 wished"


def transport_functions(tree):
    return len(re.findall(r"\bvirtual\b[^;{]*=\s*0\s*;", tree.files[SEAM].code))


def reading_lines(tree):
    return sum(tree.files[path].lines for path in tree.reading if path in tree.files)


def check_figures(tree):
    """Checks the limits on the tree as a whole."""
    every = [f for file in tree.files.values() for f in functions(file)]
    long = [f for f in every if f.lines > LONG_FUNCTION_LINES]
    if len(long) > LONG_FUNCTION_SHARE * len(every) and len(long) > 1:
        for f in long:
            yield Finding(f.path, f.line, f"{f.lines} lines, one of too many over {LONG_FUNCTION_LINES}: {f.head}")
    if MAIN_HEADER in tree.files:
        closure = sum(tree.files[p].lines for p in tree.closure(MAIN_HEADER))
        if closure > MAIN_HEADER_CLOSURE_LINES:
            yield Finding(MAIN_HEADER, 1, f"pulls in {closure} lines; at most {MAIN_HEADER_CLOSURE_LINES}")
    if SEAM in tree.files and transport_functions(tree) > TRANSPORT_FUNCTIONS:
        yield Finding(SEAM, 1, f"asks {transport_functions(tree)} functions of a transport; at most {TRANSPORT_FUNCTIONS}")
    for path in tree.reading:
        if path not in tree.files:
            yield Finding(READING, 1, f"the way of an all-reduce names {path}, which is not there")
    if len(tree.reading) > READING_FILES or reading_lines(tree) > READING_LINES:
        yield Finding(READING, 1, f"the way of an all-reduce takes {len(tree.reading)} files, {reading_lines(tree)} "
                                  f"lines; at most {READING_FILES}, {READING_LINES}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--objects", type=pathlib.Path, nargs="*", default=[])
    args = parser.parse_args()
    tree = Tree(args.root)
    mutable = list(check_mutable(tree, args.objects))
    for row in figures(tree, str(len(mutable)) if args.objects else "not looked at"):
        print(f"{row[0]:<44}{row[1]:<52}{row[2]}")
    findings = list(mutable)
    for check in (check_floors, check_transports, check_public, check_cycles, check_lengths, check_readmes, check_unique,
                  check_planted_faults, check_figures):
        findings += check(tree)
    for finding in sorted(set(findings)):
        print(finding)
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
