"""Splits PTX into functions, variables, and the statements of a function's body."""

import dataclasses
import re


class Unknown(Exception):
    """Something that is not translated. `line` is that of the PTX."""

    def __init__(self, what, line=None):
        super().__init__(what)
        self.line = line


BITS = {"pred": 1}
for letter in "bus":
    BITS |= {f"{letter}{width}": width for width in (8, 16, 32, 64)}
BITS |= {"f16": 16, "bf16": 16, "f32": 32, "f16x2": 32, "bf16x2": 32, "f64": 64}


def split(text):
    """The operands, at the commas that are outside of braces and brackets."""
    operands, depth, current = [], 0, ""
    for letter in text:
        depth += (letter in "{[(") - (letter in "}])")
        if letter == "," and depth == 0:
            operands.append(current.strip())
            current = ""
        else:
            current += letter
    return operands + ([current.strip()] if current.strip() else [])


@dataclasses.dataclass
class Statement:
    """`text` is "{" or "}" for a scope, ends in ":" for a label, and else is a directive or an
    instruction without its semicolon."""

    line: int
    text: str


@dataclasses.dataclass
class Variable:
    space: str
    align: int
    kind: str
    name: str
    count: int
    values: str = ""

    @property
    def bytes(self):
        return BITS[self.kind] // 8 * self.count


@dataclasses.dataclass
class Function:
    line: int
    name: str
    is_kernel: bool
    results: list
    parameters: list
    directives: str
    body: list  # of statements; None for a declaration


VARIABLE = re.compile(
    r"(?:\.(?:visible|extern|weak|common)\s+)*\.(global|const|shared|local|param)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+"
    r"(?:\.ptr\s+(?:\.\w+\s+)*?(?:\.align\s+\d+\s+)?)?([\w$%]+)((?:\[\d*\])*)\s*(?:=\s*(.*))?$", re.S)


def variable(text, line):
    """A declaration of one variable; None if it is something else."""
    found = VARIABLE.match(text.strip())
    if not found:
        return None
    space, align, kind, name, dimensions, values = found.groups()
    if kind not in BITS:
        raise Unknown(f"type {kind} of {name}", line)
    count = 1
    for size in re.findall(r"\[(\d*)\]", dimensions):
        count *= int(size or 0)
    return Variable(space, int(align or BITS[kind] // 8), kind, name, count, values or "")


def without_comments(text):
    def blank(found):
        return re.sub(r"[^\n]", " ", found[0])

    return re.sub(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', lambda found: found[0] if found[0][0] == '"' else blank(found),
                  text, flags=re.S)


def statements(text, line):
    """Splits a body, whose first line has that number."""
    found, current, depth, begin = [], "", 0, line
    for letter in text:
        if not current.strip():
            begin, current = line, ""
        line += letter == "\n"
        if letter in "{}" and not current.strip():
            found.append(Statement(begin, letter))
        elif letter == ";" and depth == 0:
            if current.strip():
                found.append(Statement(begin, " ".join(current.split())))
            current = ""
        elif letter == ":" and re.fullmatch(r"\s*[\w$]+\s*", current):
            found.append(Statement(begin, current.strip() + ":"))
            current = ""
        else:
            depth += (letter == "{") - (letter == "}")
            current += letter
    if current.strip():
        raise Unknown(f"a statement without an end: {current.strip()[:60]}", begin)
    return found


def end_of_braces(text, begin):
    depth = 0
    for at in range(begin, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return at
    raise Unknown("a brace is not closed")


FUNCTION = re.compile(
    r"(?:\.(?:visible|extern|weak)\s+)*\.(entry|func)\s*(?:\(([^()]*)\)\s*)?([\w$]+)\s*(?:\(((?:[^()]|\([^()]*\))*)\))?([^{;]*)([{;])")
HEADER = re.compile(r"\.(version|target|address_size)\s[^\n]*|\.file\s[^\n]*")


def module(text):
    """Returns the functions and the variables of a module."""
    text = re.sub(r"(?m)^(\s*\.loc\s[^\n]*)$", r"\1;", without_comments(text))  # The one statement that a line ends.
    functions, variables, at = [], [], 0
    while True:
        begin = re.compile(r"\S").search(text, at)
        if begin is None:
            return functions, variables
        at, line = begin.start(), text.count("\n", 0, begin.start()) + 1
        if header := HEADER.match(text, at):
            at = header.end()
        elif section := re.compile(r"\.section[^{]*\{").match(text, at):
            at = end_of_braces(text, section.end() - 1) + 1
        elif found := FUNCTION.match(text, at):
            kind, results, name, parameters, directives, end = found.groups()
            body, at = None, found.end()
            if end == "{":
                close = end_of_braces(text, found.end() - 1)
                body = statements(text[found.end():close], text.count("\n", 0, found.end()) + 1)
                at = close + 1
            functions.append(Function(line, name, kind == "entry", declared(results, line), declared(parameters, line),
                                      directives, body))
        else:
            end = text.find(";", at)
            declaration = variable(text[at:end], line) if end >= 0 else None
            if declaration is None:
                raise Unknown(text[at:at + 60].split("\n")[0], line)
            variables.append(declaration)
            at = end + 1


def declared(text, line):
    found = [variable(each, line) for each in split(text or "")]
    if None in found:
        raise Unknown(f"parameters: {text}", line)
    return found
