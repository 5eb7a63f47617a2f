"""Instructions of PTX as statements of C++, which call the functions of ptx.h."""

from parse import BITS, Unknown, split

INTEGERS = {f"{letter}{width}" for letter in "bus" for width in (8, 16, 32, 64)}
FLOATS = {"f16", "bf16", "f32", "f64", "f16x2", "bf16x2"}
SMALL_FLOATS = {"e4m3x2", "e5m2x2"}
SCOPES = ("cta", "cluster", "gpu", "sys")
ROUNDINGS = ("rn", "rz", "rm", "rp", "rna")
TO_INTEGER = ("rni", "rzi", "rmi", "rpi")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


class Instruction:
    """`mods` holds what no one has taken yet; what is left in the end is an error."""

    def __init__(self, body, opcode, mods, operands, text):
        self.body, self.opcode, self.mods, self.operands, self.text = body, opcode, list(mods), operands, text

    def has(self, name):
        if name in self.mods:
            self.mods.remove(name)
            return True
        return False

    def one_of(self, names, otherwise=None):
        found = next((each for each in self.mods if each in names), otherwise)
        if found in self.mods:
            self.mods.remove(found)
        return found

    def needed(self, names):
        found = self.one_of(names)
        if found is None:
            raise Unknown(self.text)
        return found

    def kind(self, allowed=None):
        """The last modifier is the type."""
        if not self.mods or self.mods[-1] not in (allowed or BITS):
            raise Unknown(self.text)
        return self.mods.pop()

    def values(self, kind, begin=1, end=None):
        return ", ".join(self.body.value(each, kind) for each in self.operands[begin:end])

    def to(self, expression, kind=None):
        return self.body.set(self.operands[0], expression, kind)

    def value(self, number, kind):
        return self.body.value(self.operands[number], kind)


def space_of(i):
    for each in list(i.mods):
        name = each.split(":")[0]
        if name in ("param", "shared", "global", "local", "const"):
            if each not in (name, "shared:cta", "param:entry", "param:func"):
                raise Unknown(i.text)
            i.mods.remove(each)
            return name
    return ""


def order_of(i, otherwise):
    """The memory order, and takes the scope, which threads of one computer need not distinguish."""
    found = i.one_of(("weak", "relaxed", "acquire", "release", "acq_rel", "volatile", "mmio"), otherwise)
    scope = i.one_of(SCOPES)
    if found in ("acquire", "release") and scope is None and i.opcode in ("ld", "st"):
        raise Unknown(i.text)
    return "relaxed" if found in ("volatile", "mmio") else found


def take_hints(i):
    for each in list(i.mods):
        if each in ("ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "uni", "noftz") or each.startswith(("L1:", "L2:", "level:")):
            i.mods.remove(each)


def registers(i, operand, count):
    found = split(i.operands[operand].strip("{}")) if count > 1 else [i.operands[operand]]
    if len(found) != count:
        raise Unknown(i.text)
    return found


def load(i):
    order, space = order_of(i, "weak"), space_of(i)
    take_hints(i)
    count, kind = int(i.one_of(("v2", "v4", "v8"), "v1")[1]), i.kind(INTEGERS | FLOATS)
    size = BITS[kind] // 8
    if order == "weak" and count == 1:
        return i.to(f"at<{kind}>(self, {i.body.address(i.operands[1], space)})", kind)
    code = f"const u64 a = aligned(self, {i.body.address(i.operands[1], space)}, {size * count}); "
    if order == "weak":
        return code + " ".join(i.body.set(each, f"wide<{kind}>(self, a + {size * n})", kind) for n, each in enumerate(registers(i, 0, count)))
    return code + " ".join(i.body.set(each, f"load<{kind}, Order::{order}>(self, a + {size * n})", kind)
                           for n, each in enumerate(registers(i, 0, count)))


def store(i):
    order, space = order_of(i, "weak"), space_of(i)
    take_hints(i)
    count, kind = int(i.one_of(("v2", "v4", "v8"), "v1")[1]), i.kind(INTEGERS | FLOATS)
    size = BITS[kind] // 8
    if order == "weak" and count == 1:
        return f"at<{kind}>(self, {i.body.address(i.operands[0], space)}) = {i.value(1, kind)};"
    code = f"const u64 a = aligned(self, {i.body.address(i.operands[0], space)}, {size * count}); "
    if order == "weak":
        return code + " ".join(f"wide<{kind}>(self, a + {size * n}) = {i.body.value(each, kind)};" for n, each in enumerate(registers(i, 1, count)))
    return code + " ".join(f"store<{kind}, Order::{order}>(self, a + {size * n}, {i.body.value(each, kind)});"
                           for n, each in enumerate(registers(i, 1, count)))


def atomic(i):
    order, space = order_of(i, "relaxed"), space_of(i)
    take_hints(i)
    operation = i.needed(("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"))
    kind = i.kind(INTEGERS | FLOATS)
    if order == "weak" or BITS[kind] < 16:
        raise Unknown(i.text)
    i.has("rn")
    first = 0 if i.opcode == "red" else 1
    size = BITS[kind] // 8
    call = (f"atomic_{operation}<{kind}, Order::{order}>(self, aligned(self, {i.body.address(i.operands[first], space)}, {size}), "
            f"{i.values(kind, first + 1)})")
    return i.to(call) if first else f"{call};"


def fence(i):
    if i.opcode == "membar":
        i.needed(("cta", "gl", "sys"))
        return "fence<Order::seq_cst>();"
    order = i.one_of(("sc", "acq_rel", "acquire", "release"), "acq_rel")
    i.needed(SCOPES)
    return f"fence<Order::{'seq_cst' if order == 'sc' else order}>();"


def move(i):
    kind, first, second = i.kind(INTEGERS | FLOATS | {"pred", "b128"}), *i.operands
    if second.startswith("{"):
        parts = split(second.strip("{}"))
        width = BITS[kind] // len(parts)
        return i.to(" | ".join(f"u64(low<{width}>({i.body.raw(each)})) << {n * width}" for n, each in enumerate(parts)))
    if first.startswith("{"):
        parts = split(first.strip("{}"))
        width = BITS[kind] // len(parts)
        return f"const u64 v = {i.body.raw(second)}; " + " ".join(
            i.body.set(each, f"low<{width}>(v >> {n * width})") for n, each in enumerate(parts) if each != "_")
    if kind == "pred":
        return i.to(i.value(1, kind))
    return f"{i.body.register(first)} = u{BITS[kind]}({i.body.raw(second)});"


def convert_address(i):
    to, space = i.has("to"), space_of(i)
    kind = i.kind(("u64", "u32"))
    if space != "shared":
        return i.to(i.value(1, kind))
    return i.to(f"{'to_shared' if to else 'in_shared'}(self, {i.value(1, 'u64')})")


def barrier(i):
    if i.has("warp"):
        i.needed(("sync",))
        return f"self.meet({i.value(0, 'u32')}, 0);"
    i.has("cta")
    i.has("aligned")
    operation = i.needed(("sync", "arrive", "red"))
    if operation == "red":
        reduction = i.needed(("popc", "and", "or"))
        i.kind(("pred", "u32"))
        threads = i.value(2, "u32") if len(i.operands) > 3 else "0"
        count = f"threads_at_barrier(self, {threads})"
        call = f"self.synchronize({i.value(1, 'u32')}, {threads}, {i.value(len(i.operands) - 1, 'pred')})"
        return i.to({"popc": call, "and": f"{call} == {count}", "or": f"{call} != 0"}[reduction])
    number, threads = i.value(0, "u32"), i.value(1, "u32") if len(i.operands) > 1 else "0"
    if operation == "arrive":
        return f"self.arrive({number}, {threads});"
    return f"self.synchronize({number}, {threads}, false);"


def shuffle(i):
    i.needed(("sync",))
    mode = i.needed(("up", "down", "bfly", "idx"))
    i.kind(("b32",))
    name, _, found = i.operands[0].partition("|")
    code = (f"bool inside = false; const u32 r = shuffle(self, Lane::{mode}, {i.values('u32')}, inside); "
            + i.body.set(name.strip(), "r"))
    return code + (" " + i.body.set(found.strip(), "inside") if found else "")


def vote(i):
    i.needed(("sync",))
    mode = i.needed(("all", "any", "uni", "ballot"))
    i.kind(("b32",) if mode == "ballot" else ("pred",))
    return i.to(f"vote_{mode}(self, {i.value(1, 'pred')}, {i.value(2, 'u32')})")


def match(i):
    mode = i.needed(("any", "all"))
    i.needed(("sync",))
    kind = i.kind(("b32", "b64"))
    name, _, found = i.operands[0].partition("|")
    if mode == "any":
        return i.to(f"match_any(self, {i.value(1, kind)}, {i.value(2, 'u32')})")
    code = f"const u32 r = match_all(self, {i.value(1, kind)}, {i.value(2, 'u32')}); " + i.body.set(name.strip(), "r")
    return code + (" " + i.body.set(found.strip(), "r != 0") if found else "")


def reduce_in_warp(i):
    i.needed(("sync",))
    operation, kind = i.needed(("add", "min", "max", "and", "or", "xor")), i.kind(("u32", "s32", "b32"))
    return i.to(f"reduce_in_warp(self, {i.value(1, kind)}, {i.value(2, 'u32')}, "
                f"[]({kind} x, {kind} y) {{ return arithmetic_{operation}(x, y); }})")


def arithmetic(i):
    if i.has("cc") or i.opcode in ("addc", "subc"):
        raise Unknown(i.text)
    kind = i.kind(INTEGERS | FLOATS)
    saturated = i.has("sat")
    if kind in INTEGERS and not saturated:
        same = f"u{BITS[kind]}"
        return i.to(f"{same}({i.value(1, same)} {'+' if i.opcode == 'add' else '-'} {i.value(2, same)})", same)
    if kind in FLOATS:
        i.has("rn")
    call = f"arithmetic_{i.opcode}({i.values(kind)})"
    if not saturated:
        return i.to(call, kind)
    if kind == "s32" and i.opcode in ("add", "sub"):
        sign = "+" if i.opcode == "add" else "-"
        return i.to(f"saturated<s32>(s64({i.value(1, kind)}) {sign} s64({i.value(2, kind)}))")
    if kind == "f32":
        return i.to(f"between_0_and_1({call})")
    raise Unknown(i.text)


def divide(i):
    kind = i.kind(INTEGERS | {"f32", "f64"})
    if kind in FLOATS:
        i.needed(("rn",))
    return i.to(f"{'quotient' if i.opcode == 'div' else 'remainder'}({i.values(kind)})")


def minimum(i):
    kind = i.kind(INTEGERS | FLOATS)
    name = "nan_" if i.has("NaN") else ""
    return i.to(f"arithmetic_{name}{i.opcode}({i.values(kind)})")


def logic(i):
    kind = i.kind(INTEGERS | {"pred"})
    sign = {"and": "&", "or": "|", "xor": "^"}[i.opcode]
    return i.to(f"{i.value(1, kind)} {sign} {i.value(2, kind)}", kind)


def invert(i):
    kind = i.kind(INTEGERS | {"pred"})
    return i.to(f"!{i.value(1, kind)}" if kind == "pred" else f"{kind}(~{i.value(1, kind)})")


def shift(i):
    kind = i.kind(INTEGERS)
    if i.operands[2].isdigit() and int(i.operands[2]) < BITS[kind]:
        if i.opcode == "shl":
            kind = f"u{BITS[kind]}"
        return i.to(f"{i.value(1, kind)} {'<<' if i.opcode == 'shl' else '>>'} {i.operands[2]}", kind)
    return i.to(f"shift_{'left' if i.opcode == 'shl' else 'right'}({i.value(1, kind)}, {i.value(2, 'u32')})")


def unary(i):
    kind = i.kind(INTEGERS | FLOATS)
    return i.to(f"arithmetic_{i.opcode}({i.value(1, kind)})")


def bit_function(i):
    shiftamt = i.has("shiftamt")
    kind = i.kind(INTEGERS)
    if shiftamt:
        raise Unknown(i.text)
    return i.to(f"bits_{i.opcode}({i.values(kind)})")


def exact_function(i):
    """Only those whose results are exact: approximations differ from one GPU to another."""
    kind = i.kind(("f32", "f64"))
    i.needed(("rn",))
    return i.to(f"{'square_root' if i.opcode == 'sqrt' else 'reciprocal'}({i.value(1, kind)})")


def multiply(i):
    kind = i.kind(INTEGERS | FLOATS)
    if kind in FLOATS:
        i.has("rn")
        call = f"product({i.values(kind)})"
        return i.to(f"between_0_and_1({call})" if i.has("sat") and kind == "f32" else call, kind)
    part = i.needed(("lo", "hi", "wide"))
    if part == "wide":
        return i.to(f"{WIDER[kind]}({i.value(1, kind)}) * {i.value(2, kind)}", WIDER[kind])
    if part == "lo" and BITS[kind] >= 32:
        same = f"u{BITS[kind]}"
        return i.to(f"{i.value(1, same)} * {i.value(2, same)}", same)
    return i.to(f"product_{part}({i.values(kind)})", kind)


def multiply_add(i):
    kind = i.kind(INTEGERS | FLOATS)
    if kind in FLOATS:
        i.needed(("rn",))
        call = f"fused({i.values(kind)})"
        if i.has("relu"):
            call = f"not_negative({call})"
        return i.to(f"between_0_and_1({call})" if i.has("sat") and kind == "f32" else call)
    part = i.needed(("lo", "hi", "wide"))
    sum_kind = WIDER[kind] if part == "wide" else kind
    if part == "lo" and BITS[kind] >= 32:
        same = f"u{BITS[kind]}"
        return i.to(f"{i.value(1, same)} * {i.value(2, same)} + {i.value(3, same)}", same)
    return i.to(f"arithmetic_add(product_{part}({i.values(kind, 1, 3)}), {i.value(3, sum_kind)})")


def combine(i, boolean, compared):
    other = i.value(3, "pred")
    return {"and": f"({compared}) && {other}", "or": f"({compared}) || {other}", "xor": f"({compared}) != {other}"}[boolean]


OPERATORS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def compare(i, comparison, kind):
    if comparison in OPERATORS and kind in INTEGERS | {"f32", "f64"} and (comparison != "ne" or kind in INTEGERS):
        return f"{i.value(1, kind)} {OPERATORS[comparison]} {i.value(2, kind)}"
    return f"compare_{comparison}({i.values(kind, 1, 3)})"


def set_predicate(i):
    comparison, kind = i.needed(COMPARISONS), i.kind(INTEGERS | FLOATS)
    boolean = i.one_of(("and", "or", "xor"))
    first, _, second = i.operands[0].partition("|")
    if kind in ("f16x2", "bf16x2"):
        code = f"const auto x = {i.value(1, kind)}, y = {i.value(2, kind)}; "
        halves = [f"compare_{comparison}(x.{half}, y.{half})" for half in ("low", "high")]
        if boolean:
            halves = [combine(i, boolean, each) for each in halves]
        return code + i.body.set(first.strip(), halves[0]) + " " + i.body.set(second.strip(), halves[1])
    compared = compare(i, comparison, kind)
    if not second and not boolean:
        return i.to(compared, "pred")
    code = f"const bool c = {compared}; "
    code += i.body.set(first.strip(), combine(i, boolean, "c") if boolean else "c")
    if second:
        code += " " + i.body.set(second.strip(), combine(i, boolean, "!c") if boolean else "!c")
    return code


def set_value(i):
    comparison, kind = i.needed(COMPARISONS), i.kind(INTEGERS | FLOATS)
    result = i.kind(("u32", "s32", "f32", "u16", "s16", "f16", "bf16", "f16x2", "bf16x2"))
    if kind in ("f16x2", "bf16x2"):
        one = "0xffffu" if result in ("u32", "s32") else "0x3c00u" if result == "f16x2" else "0x3f80u"
        return (f"const auto x = {i.value(1, kind)}, y = {i.value(2, kind)}; "
                + i.to(f"(compare_{comparison}(x.low, y.low) ? {one} : 0u) | (compare_{comparison}(x.high, y.high) ? {one} : 0u) << 16"))
    one = {"f32": "0x3f800000u", "f16": "u16(0x3c00)", "bf16": "u16(0x3f80)"}.get(result, f"u{BITS[result]}(~0u)")
    return i.to(f"compare_{comparison}({i.values(kind, 1, 3)}) ? {one} : {one.split('(')[0] + '(0)' if '(' in one else '0u'}")


def select(i):
    kind = i.kind(INTEGERS | FLOATS)
    same = f"u{BITS[kind]}"
    return i.to(f"{i.value(3, 'pred')} ? {i.value(1, same)} : {i.value(2, same)}", same)


def funnel(i):
    direction, mode = i.needed(("l", "r")), i.needed(("wrap", "clamp"))
    i.kind(("b32",))
    return i.to(f"funnel_{'left' if direction == 'l' else 'right'}({i.values('u32')}, {'true' if mode == 'wrap' else 'false'})")


def logic_3(i):
    i.kind(("b32",))
    return i.to(f"logic<{i.operands[4]}>({i.values('u32', 1, 4)})")


def extract(i):
    kind = i.kind(("u32", "s32", "u64", "s64"))
    return i.to(f"extract({i.value(1, kind)}, {i.values('u32', 2)})")


def insert(i):
    kind = i.kind(("b32", "b64"))
    return i.to(f"insert({i.values(kind, 1, 3)}, {i.values('u32', 3)})")


def permute(i):
    i.kind(("b32",))
    return i.to(f"permute({i.values('u32')})")


def copy_sign(i):
    kind = i.kind(("f32", "f64"))
    return i.to(f"std::copysign({i.value(2, kind)}, {i.value(1, kind)})")


def test_property(i):
    name = i.needed(("finite", "infinite", "number", "notanumber", "normal", "subnormal"))
    kind = i.kind(("f32", "f64"))
    value = i.value(1, kind)
    return i.to({"finite": f"std::isfinite({value})", "infinite": f"std::isinf({value})", "number": f"!std::isnan({value})",
                 "notanumber": f"std::isnan({value})", "normal": f"std::isnormal({value})",
                 "subnormal": f"std::fpclassify({value}) == FP_SUBNORMAL"}[name])


def convert(i):
    kinds = INTEGERS | FLOATS | SMALL_FLOATS
    source, result = i.kind(kinds), i.kind(kinds)
    rounding, to_integer = i.one_of(ROUNDINGS), i.one_of(TO_INTEGER)
    saturated, relu, finite = i.has("sat"), i.has("relu"), i.has("satfinite")
    if source in SMALL_FLOATS or result in SMALL_FLOATS or result in ("f16x2", "bf16x2"):
        return convert_two(i, result, source, rounding, relu, finite)
    if relu or (finite and result not in ("f16", "bf16")):
        if not (relu and rounding == "rn" and result in ("f16", "bf16")):
            raise Unknown(i.text)
    value = i.value(1, source)
    if source in INTEGERS and result in INTEGERS:
        return i.to(f"saturated<{result}>({value})" if saturated else f"{result}({value})", result)
    if result in INTEGERS:
        mode = to_integer or "rzi"
        return i.to(f"to_integer<{result}, Rounding::{mode[:2]}>({value})")
    if to_integer:
        if source != result:
            raise Unknown(i.text)
        call = f"integral<Rounding::{to_integer[:2]}>({value})"
    else:
        call = f"to_float<{result}, Rounding::{rounding or 'rn'}, {'true' if finite else 'false'}>({value})"
    if relu:
        call = f"not_negative({call})"
    if saturated:
        if result not in ("f32", "f64"):
            raise Unknown(i.text)
        call = f"between_0_and_1({call})"
    return i.to(call, result)


def convert_two(i, result, source, rounding, relu, finite):
    """The first of two operands becomes the upper half."""
    options = f"{'true' if relu else 'false'}, {'true' if finite else 'false'}"
    if rounding not in ("rn", "rz") or (rounding == "rz" and result in SMALL_FLOATS):
        raise Unknown(i.text)
    if source == "f32":
        return i.to(f"two<{result}, Rounding::{rounding}, {options}>({i.value(2, 'f32')}, {i.value(1, 'f32')})")
    if source == "f16x2" and result in SMALL_FLOATS:
        return (f"const f16x2 x = {i.value(1, 'f16x2')}; "
                + i.to(f"two<{result}, Rounding::rn, {options}>(to_f32(x.low), to_f32(x.high))"))
    if source in SMALL_FLOATS and result == "f16x2":
        return (f"const u16 x = {i.value(1, 'u16')}; "
                + i.to(f"two<f16x2, Rounding::rn, {options}>({source}::value(u8(x)), {source}::value(u8(x >> 8)))"))
    raise Unknown(i.text)


def branch(i):
    i.has("uni")
    return f"goto {i.body.label(i.operands[0])};"


def branch_by_index(i):
    i.needed(("idx",))
    i.has("uni")
    table = i.body.tables.get(i.operands[1])
    if table is None:
        raise Unknown(i.text)
    cases = " ".join(f"case {n}: goto {i.body.label(each)};" for n, each in enumerate(table))
    return f'switch ({i.value(0, "u32")}) {{ {cases} default: self.fail("brx.idx beyond its table"); }}'


def call(i):
    i.has("uni")
    operands = i.operands
    results = split(operands.pop(0).strip("()")) if operands[0].startswith("(") else []
    name = operands.pop(0)
    arguments = split(operands[0].strip("()")) if operands and operands[0].startswith("(") else []
    pointers = {what: ", ".join(f"reinterpret_cast<std::byte*>({i.body.raw(each)})" for each in names) or "nullptr"
                for what, names in (("results", results), ("arguments", arguments))}
    code = f"std::byte* const r[] = {{{pointers['results']}}}; std::byte* const a[] = {{{pointers['arguments']}}}; "
    if name in i.body.functions:
        return code + f"{i.body.functions[name]}(self, r, a);"
    if name == "vprintf":
        return code + "print(a, r);"
    if name == "__assertfail":
        return code + "assertion_failed(self, a);"
    if name.startswith("%"):
        return code + f"reinterpret_cast<DeviceFunction>({i.body.raw(name)})(self, r, a);"
    raise Unknown(i.text)


def leave(i):
    i.has("uni")
    return "return;"


def nothing(i):
    i.mods.clear()
    return ""


HANDLERS = {
    "ld": load, "ldu": load, "st": store, "atom": atomic, "red": atomic, "fence": fence, "membar": fence, "mov": move,
    "cvta": convert_address, "bar": barrier, "barrier": barrier, "shfl": shuffle, "vote": vote, "match": match,
    "redux": reduce_in_warp, "add": arithmetic, "sub": arithmetic, "min": minimum, "max": minimum, "div": divide, "rem": divide,
    "and": logic, "or": logic, "xor": logic, "not": invert, "shl": shift, "shr": shift, "neg": unary, "abs": unary,
    "popc": bit_function, "clz": bit_function, "brev": bit_function, "bfind": bit_function, "sqrt": exact_function,
    "rcp": exact_function, "mul": multiply, "mad": multiply_add, "fma": multiply_add, "setp": set_predicate, "set": set_value,
    "selp": select, "shf": funnel, "lop3": logic_3, "bfe": extract, "bfi": insert, "prmt": permute, "copysign": copy_sign,
    "testp": test_property, "cvt": convert, "bra": branch, "brx": branch_by_index, "call": call, "ret": leave, "exit": leave,
    "trap": lambda i: 'self.fail("trap");', "activemask": lambda i: i.kind(("b32",)) and i.to("1u << self.number % 32"),
    "nanosleep": lambda i: i.kind(("u32",)) and "self.pause();", "prefetch": nothing, "prefetchu": nothing,
    "griddepcontrol": nothing, "discard": nothing, "applypriority": nothing,
    "isspacep": lambda i: i.to(f"in_space(self, {i.value(1, 'u64')})") if i.one_of(("shared", "shared:cta")) else None,
}


def translate(body, opcode, modifiers, operands, text):
    if opcode not in HANDLERS:
        raise Unknown(text)
    instruction = Instruction(body, opcode, modifiers, operands, text)
    try:
        code = HANDLERS[opcode](instruction)
    except (IndexError, KeyError, ValueError) as error:
        raise Unknown(text) from error
    if code is None or instruction.mods:
        raise Unknown(text)
    return code
