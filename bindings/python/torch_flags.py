"""Prints the flags with which an extension for the interpreter's PyTorch is compiled and linked, one word a line.

Exits with 1, and with the reason on standard error, if there is no PyTorch with torch.distributed.
"""

import sys

try:
    import torch
    import torch.distributed
    from torch.utils import cpp_extension
except ImportError as error:
    sys.exit(f"no PyTorch: {error}")
if not torch.distributed.is_available():
    sys.exit("this PyTorch has no torch.distributed")

for folder in cpp_extension.include_paths():
    print("-isystem" + folder)
print(f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}")
# Before 2.9 pybind11 told its own types apart by compiler, too, so the extension has to name torch's compiler.
for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI"):
    value = getattr(torch._C, "_PYBIND11_" + name, None)
    if value is not None:
        print(f'-DPYBIND11_{name}="{value}"')
print("--")
for folder in cpp_extension.library_paths():
    print("-L" + folder)
for library in ("c10", "torch_cpu", "torch_python"):
    print("-l" + library)
