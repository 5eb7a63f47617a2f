#!/usr/bin/env python3
"""Translates the PTX that nvcc has written into C++ that executes it (kernel.h says how).

usage: translate.py OUT.cpp IN.ptx...

An instruction, or a part of one, that is not known is an error: it names the file and the line.
"""

import math
import re
import sys

import parse
from function import Body, plain
from parse import Unknown

SIGNATURE = "[[maybe_unused]] Thread& self, [[maybe_unused]] std::byte* const* results, [[maybe_unused]] std::byte* const* arguments"


def variables_of(module, variables, symbols):
    """Returns the definitions of a module's variables, and the end of its static shared memory."""
    code, shared_end = [], 0
    for each in variables:
        if each.space == "shared":
            if each.count == 0:
                symbols[each.name] = ("address", "u64(self.static_shared)")
                continue
            begin = math.ceil(shared_end / each.align) * each.align
            symbols[each.name] = ("address", f"u64({begin})")
            shared_end = begin + each.bytes
            continue
        name = f"g{module}_{plain(each.name)}"
        symbols[each.name] = ("address", f"address({name})")
        values = each.values.strip()
        if not re.fullmatch(r"[-\s\w{},.]*", values) or re.search(r"[g-wyzG-WYZ]", values.replace("0x", "").replace("0X", "")):
            raise Unknown(f"the value of {each.name}: {values[:40]}")
        numbers = ", ".join(f"as<{each.kind}>({n})" if "f" in each.kind else f"{each.kind}({n}ull)" if n[0] != "-" else f"{each.kind}({n})"
                            for n in (literal(n) for n in re.sub(r"[{}]", " ", values).replace(",", " ").split()))
        code.append(f"alignas({max(each.align, 16)}) {each.kind} {name}[{max(each.count, 1)}] = {{{numbers}}};")
    return code, shared_end


def literal(text):
    if found := re.fullmatch(r"0[fFdD]([0-9a-fA-F]+)", text):
        return f"0x{found[1]}"
    return text


def layout(parameters):
    """The offsets of a kernel's parameters."""
    offsets, end = [], 0
    for each in parameters:
        begin = math.ceil(end / each.align) * each.align
        offsets.append(begin)
        end = begin + each.bytes
    return offsets


def most_threads(directives):
    if found := re.search(r"\.(?:maxntid|reqntid)\s+(\d+)\s*(?:,\s*(\d+))?\s*(?:,\s*(\d+))?", directives):
        return math.prod(int(n or 1) for n in found.groups())
    return 1024


def kernel(function, body, module):
    offsets = layout(function.parameters)
    for each, offset in zip(function.parameters, offsets):
        body.scopes[0][each.name] = ("address", f"u64(address(parameters) + {offset})")
    text = body.translate()
    name = f"k{module}_{plain(function.name)}"
    table = ", ".join(f"{{{offset}, {each.bytes}}}" for each, offset in zip(function.parameters, offsets)) or "{0, 0}"
    shared = math.ceil(body.shared_end / 16) * 16
    record = f'{{"{function.name}", {name}, p{name}, {len(offsets)}, {shared}, {most_threads(function.directives)}}}'
    code = (f"constexpr Parameter p{name}[] = {{{table}}};\n"
            f"void {name}([[maybe_unused]] Thread& self, [[maybe_unused]] const std::byte* parameters) {{\n{text}\n}}\n")
    return code, record


def device_function(function, body, module):
    for number, each in enumerate(function.results):
        body.scopes[0][each.name] = ("address", f"address(results[{number}])")
    for number, each in enumerate(function.parameters):
        body.scopes[0][each.name] = ("address", f"address(arguments[{number}])")
    return f"void f{module}_{plain(function.name)}({SIGNATURE}) {{\n{body.translate()}\n}}\n"


def translate(path, module):
    """Returns the C++ of a file, the records of its kernels, and its target."""
    text = open(path, encoding="utf-8").read()
    functions, variables = parse.module(text)
    symbols, files = {}, dict(re.findall(r'(?m)^\s*\.file\s+(\d+)\s+"([^"]*)"', text))
    code, shared_end = variables_of(module, variables, symbols)
    names = {each.name: f"f{module}_{plain(each.name)}" for each in functions if not each.is_kernel and each.body is not None}
    code += [f"void {name}({SIGNATURE});" for name in names.values()]
    symbols |= {each: ("address", f"u64(&{name})") for each, name in names.items()}
    records = []
    for each in functions:
        if each.body is None or each.is_kernel:
            continue
        body = Body(each, symbols, names, shared_end, files)
        code.append(device_function(each, body, module))
        shared_end = body.shared_end
    for each in functions:
        if each.body is not None and each.is_kernel:
            translated, record = kernel(each, Body(each, symbols, names, shared_end, files), module)
            code.append(translated)
            records.append(record)
    return code, records, int(re.search(r"\.target\s+sm_(\d+)", text)[1])


def main(out, *paths):
    code, records, target = [], [], 0
    for module, path in enumerate(paths):
        try:
            translated, kernels, target = translate(path, module)
        except Unknown as error:
            sys.exit(f"{path}:{error.line or 1}: not translated: {error}")
        code += translated
        records += kernels
    with open(out, "w", encoding="utf-8") as file:
        file.write('#include "tests/cuda/ptx/ptx.h"\n\nnamespace tutti::stand_in::ptx {\nnamespace {\n\n')
        file.write("\n".join(code))
        file.write(f"\nconstexpr Kernel kKernels[] = {{\n  " + ",\n  ".join(records or ["{}"]) + "};\n")
        file.write(f"constexpr Kernels kAll = {{kKernels, {len(records)}, {target}}};\n\n}}  // namespace\n}}\n\n")
        file.write('extern "C" __attribute__((visibility("default"))) const tutti::stand_in::Kernels* stand_in_kernels() {\n'
                   "  return &tutti::stand_in::ptx::kAll;\n}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
