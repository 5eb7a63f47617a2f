"""One function of PTX as a function of C++: its registers, its variables and its control flow."""

import math
import re

import instructions
from parse import BITS, Unknown, split, variable

RAW = {1: "bool", 8: "u16", 16: "u16", 32: "u32", 64: "u64"}
SPECIAL = {f"%{name}.{axis}": f"self.{member}.{axis}" for name, member in
           (("tid", "index"), ("ntid", "block_size"), ("ctaid", "block"), ("nctaid", "grid_size")) for axis in "xyz"}
SPECIAL |= {
    "%laneid": "(self.number % 32)", "%warpid": "(self.number / 32)",
    "%nwarpid": "u32((self.block_size.count() + 31) / 32)", "%smid": "self.block.x", "WARP_SZ": "32u",
    "%clock": "u32(clock(self))", "%clock64": "clock(self)", "%globaltimer": "clock(self)",
    "%lanemask_eq": "(1u << self.number % 32)", "%lanemask_lt": "((1u << self.number % 32) - 1)",
    "%lanemask_le": "((2u << self.number % 32) - 1)", "%lanemask_gt": "~((2u << self.number % 32) - 1)",
    "%lanemask_ge": "~((1u << self.number % 32) - 1)", "%dynamic_smem_size": "self.dynamic_shared",
    "%total_smem_size": "(self.static_shared + self.dynamic_shared)",
}


def plain(name):
    return re.sub(r"\W", "_", name)


class Body:
    """Translates a function. `symbols` maps names of the module to expressions of addresses."""

    def __init__(self, function, symbols, functions, shared_begin, files):
        self.function, self.functions, self.files = function, functions, files
        self.scopes = [dict(symbols)]
        self.registers, self.declarations, self.code = {}, [], []
        self.shared_end = shared_begin
        self.counter = 0
        self.tables = {}
        self.line = function.line

    # Names.
    def lookup(self, name):
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    def register(self, name):
        found = self.lookup(name)
        if found is None or found[0] != "register":
            raise Unknown(f"register {name}")
        return found[1]

    def declare_registers(self, kind, names):
        if kind not in BITS:
            raise Unknown(f"registers of type {kind}")
        for name in split(names):
            many = re.fullmatch(r"(.*)<(\d+)>", name)
            for each in [many[1] + str(n) for n in range(int(many[2]))] if many else [name]:
                self.counter += 1
                unique = f"v{self.counter}_{plain(each)}"
                self.scopes[-1][each] = ("register", unique, BITS[kind])
                self.registers.setdefault(RAW[BITS[kind]], []).append(unique)

    def declare_variable(self, declared):
        if declared.space == "shared":
            begin = math.ceil(self.shared_end / declared.align) * declared.align
            self.scopes[-1][declared.name] = ("address", f"u64({begin})")
            self.shared_end = begin + declared.bytes
        elif declared.space in ("local", "param"):
            self.counter += 1
            unique = f"m{self.counter}_{plain(declared.name)}"
            self.scopes[-1][declared.name] = ("address", f"address({unique})")
            self.declarations.append(f"  alignas({max(declared.align, 8)}) std::byte {unique}[{max(declared.bytes, 1)}];")
        else:
            raise Unknown(f"a variable in the space {declared.space} in a function")

    # Operands.
    def raw(self, operand):
        """The bits of an operand, and how many these are; None for a number."""
        if operand in SPECIAL:
            return SPECIAL[operand]
        if found := self.lookup(operand):
            return found[1]
        if re.fullmatch(r"-?\d+U?", operand):
            return f"{operand.rstrip('U')}{'ull' if operand[0] != '-' else 'll'}" if operand != "-9223372036854775808" \
                else "(-9223372036854775807ll - 1)"
        if re.fullmatch(r"-?0[xX][0-9a-fA-F]+U?", operand):
            return f"{operand.rstrip('U')}ull"
        if found := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", operand):
            return f"0x{found[1]}u"
        if found := re.fullmatch(r"0[dD]([0-9a-fA-F]{16})", operand):
            return f"0x{found[1]}ull"
        if found := re.fullmatch(r"(?:generic\()?([\w$]+)\)?\s*\+\s*(-?\w+)", operand):
            return f"({self.raw(found[1])} + ({found[2]}))"
        raise Unknown(f"operand {operand}")

    def value(self, operand, kind):
        """The operand as a value of a PTX type, which has the same name in C++."""
        if kind == "pred":
            return f"!{self.value(operand[1:].strip(), kind)}" if operand.startswith("!") else f"bool({self.raw(operand)})"
        if operand.startswith("-") and operand[1:].startswith("%"):
            raise Unknown(f"operand {operand}")
        text = self.raw(operand)
        found = self.lookup(operand)
        exact = found is not None and found[0] == "register" and found[2] == BITS.get(kind)
        if "f" in kind:
            return f"__builtin_bit_cast({kind}, {text})" if exact else f"as<{kind}>({text})"
        return text if exact and kind[0] != "s" else f"{kind}({text})"

    def set(self, name, expression, kind=None):
        """Code that is compiled fast matters, since there is much of it: most instructions are
        written as operators, and only what these cannot say calls a template. `kind` is the type of
        the expression, where it is known."""
        if name == "_":
            return f"(void)({expression});"
        register = self.register(name)
        if kind is None or self.lookup(name)[2] != BITS[kind]:
            return f"set({register}, {expression});"
        if "f" in kind:
            return f"{register} = __builtin_bit_cast(u{BITS[kind]}, {expression});"
        return f"{register} = {expression};"

    def address(self, operand, space):
        found = re.fullmatch(r"\[\s*([^\s+\]]+)\s*(?:\+\s*(-?\w+))?\s*\]", operand)
        if not found:
            raise Unknown(f"address {operand}")
        base, offset = found[1], int(found[2] or "0", 0)
        text = self.value(base, "u64")
        if offset:
            text = f"{text} + {offset}"
        return f"in_shared(self, {text})" if space == "shared" else text

    def label(self, name):
        return "L_" + plain(name)

    # Statements.
    def translate(self):
        self.find_tables()
        for statement in self.function.body:
            self.line = statement.line
            try:
                self.statement(statement.text)
            except Unknown as error:
                raise Unknown(str(error), error.line or statement.line) from error
        # They have no values at first: what nvcc writes reads no register before it is written.
        registers = [f"  {kind} {', '.join(names)};" for kind, names in self.registers.items()]
        return "\n".join(registers + self.declarations) + "\n" + self.lines()

    def lines(self):
        """All of a line of the source is on one line, so that the compiler and what reads its tables
        (a debugger, a sanitizer) name the line of the kernel."""
        if not self.files:
            return "\n".join(self.code)
        text = "".join(f"\n{each}\n" if each.startswith("#line") else each + " " for each in self.code)
        return f'{text}\n#line 1 "translated"'

    def find_tables(self):
        label = None
        for statement in self.function.body:
            if found := re.match(r"\.branchtargets\s+(.*)", statement.text):
                self.tables[label] = split(found[1])
            label = statement.text[:-1] if statement.text.endswith(":") else None

    def statement(self, text):
        if text == "{":
            self.scopes.append({})
        elif text == "}":
            self.scopes.pop()
        elif text.endswith(":"):
            self.code.append(f"{self.label(text[:-1])}:;")
        elif found := re.match(r"\.reg\s+\.(\w+)\s+(.*)", text):
            self.declare_registers(found[1], found[2])
        elif found := re.match(r"\.loc\s+(\d+)\s+(\d+)", text):
            if found[2] != "0" and found[1] in self.files:
                self.code.append(f'#line {found[2]} "{self.files[found[1]]}"')
        elif re.match(r"\.(pragma|branchtargets|callprototype)\b", text):
            pass
        elif text.startswith("."):
            declared = variable(text, self.line)
            if declared is None:
                raise Unknown(text)
            self.declare_variable(declared)
        else:
            self.instruction(text)

    def instruction(self, text):
        guard = ""
        if found := re.match(r"@(!?)\s*([%\w$]+)\s+(.*)", text):
            guard, text = f"if ({found[1]}{self.register(found[2])}) ", found[3]
        found = re.match(r"([a-z][\w.:]*)\s*(.*)", text)
        if not found:
            raise Unknown(text)
        opcode, *modifiers = found[1].replace("::", ":").split(".")
        translated = instructions.translate(self, opcode, modifiers, split(found[2]), text)
        self.code.append(f"  {guard}{{ {translated} }}")
