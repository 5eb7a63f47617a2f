#!/usr/bin/env python3
"""Tests that the shape check can fail: each test breaks one rule of a small sound tree."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "watchdog"))
import watched  # noqa: E402

SHAPE = pathlib.Path(__file__).with_name("shape.py")

SOUND = {
    "include/tutti/tutti.hpp": "#include <string>\n#include <tutti/types.hpp>\n",
    "include/tutti/types.hpp": "#pragma once\n",
    "common/README.md": "ground\n",
    "common/text.h": "#pragma once\nint f();\n",
    "common/text.cpp": '#include "common/text.h"\nint f() { return 1; }\n',
    "transport/README.md": "seam\n",
    "transport/channel.h": "#pragma once\nclass A { virtual int f() = 0; };\n",
    "transport/shm/README.md": "shared memory\n",
    "transport/shm/shm.h": '#pragma once\n#include "transport/channel.h"\n',
    "transport/tcp/README.md": "sockets\n",
    "transport/tcp/tcp.h": '#pragma once\n#include "transport/channel.h"\n',
    "runtime/README.md": "engine\n",
    "runtime/engine.h": '#pragma once\n#include "common/text.h"\n',
}


class Shape(unittest.TestCase):
    def check(self, changes, objects=()):
        """Returns the exit status and output of the check on the sound tree with `changes`."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path, text in {**SOUND, **changes}.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            built = []
            for source in objects:
                built.append(root / (source.replace("/", "_") + ".o"))
                subprocess.run(["c++", "-std=c++20", "-fPIC", "-c", root / source, "-o", built[-1]], check=True)
            command = [sys.executable, SHAPE, "--root", root, *(["--objects", *built] if built else [])]
            ended = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(ended.stderr, "")
            return ended.returncode, ended.stdout

    def assert_found(self, expected, changes, objects=()):
        status, output = self.check(changes, objects)
        self.assertIn(expected, output)
        self.assertEqual(status, 1)

    def test_a_sound_tree_passes(self):
        status, output = self.check({})
        self.assertEqual(status, 0, output)

    def test_a_floor_that_includes_a_floor_above_is_named_with_its_line(self):
        self.assert_found("common/text.h:2: common includes runtime/engine.h, which is above it",
                          {"common/text.h": '#pragma once\n#include "runtime/engine.h"\n',
                           "runtime/engine.h": "#pragma once\n"})

    def test_a_commented_include_is_not_an_include(self):
        status, output = self.check({"common/text.h": '#pragma once\n// #include "runtime/engine.h"\n'})
        self.assertEqual(status, 0, output)

    def test_transport_and_topology_are_strangers(self):
        self.assert_found("topology/graph.h:1: topology and transport do not include each other",
                          {"topology/README.md": "", "topology/graph.h": '#include "transport/channel.h"\n'})

    def test_a_folder_that_is_no_floor_is_refused(self):
        self.assert_found("utils/misc.h:1: is on no floor",
                          {"utils/README.md": "", "utils/misc.h": "#pragma once\n"})

    def test_a_transport_that_includes_another_is_named(self):
        self.assert_found("transport/tcp/tcp.h:1: transport tcp includes transport shm",
                          {"transport/tcp/tcp.h": '#include "transport/shm/shm.h"\n'})

    def test_a_cycle_of_files_is_shown(self):
        self.assert_found("include cycle: common/a.h -> common/b.h -> common/a.h",
                          {"common/a.h": '#include "common/b.h"\n', "common/b.h": '#include "common/a.h"\n'})

    def test_a_cycle_of_floors_without_a_cycle_of_files_is_shown(self):
        self.assert_found("include cycle of folders: common -> runtime -> common",
                          {"common/a.h": '#include "runtime/b.h"\n', "runtime/b.h": "",
                           "runtime/c.h": '#include "common/text.h"\n'})

    def test_a_public_header_that_includes_a_private_one_is_named(self):
        self.assert_found("include/tutti/types.hpp:1: a public header includes <fmt/format.h>, which is not public",
                          {"include/tutti/types.hpp": "#include <fmt/format.h>\n"})

    def test_an_example_that_looks_inside_is_named(self):
        self.assert_found("examples/digits/main.cpp:1: an example includes common/text.h, which is not public",
                          {"examples/digits/main.cpp": '#include "common/text.h"\n'})

    def test_a_long_function_is_named_with_its_line(self):
        body = "  f();\n" * 80
        self.assert_found("common/text.cpp:2: 82 lines; at most 70: int g(int a)",
                          {"common/text.cpp": f"\nint g(int a) {{\n{body}}}\n"})

    def test_a_long_constructor_with_braced_initialisers_is_named(self):
        body = "  f();\n" * 80
        self.assert_found("82 lines; at most 70: A::A(int n)",
                          {"common/text.cpp": f"A::A(int n) : b_{{n}}, c_{{n, n}} {{\n{body}}}\n"})

    def test_a_long_method_in_a_class_template_is_named(self):
        body = "  f();\n" * 80
        self.assert_found("common/a.h:3: 82 lines; at most 70: void run() const",
                          {"common/a.h": f"namespace t {{\ntemplate <typename T> class [[nodiscard]] A {{ public:\n"
                                             f"void run() const {{\n{body}}}\n}};\n}}\n"})

    def test_a_long_table_is_not_a_function(self):
        rows = "  {1, 2},\n" * 80
        status, output = self.check({"common/text.cpp": f"constexpr Row kRows[] = {{\n{rows}}};\n"})
        self.assertEqual(status, 0, output)

    def test_too_many_functions_over_sixty_lines_are_named(self):
        f = "int f() {\n" + "  g();\n" * 62 + "}\n"
        self.assert_found("64 lines, one of too many over 60", {"common/text.cpp": f + f})

    def test_a_name_that_two_sources_define_for_themselves_is_named(self):
        one = "namespace tutti {\nnamespace {\nconstexpr int kLine = 1;\nint f(int a) { return a; }\nclass Reader { int b; };\n}\n}\n"
        self.assert_found("common/two.cpp:3: kLine is defined in common/one.cpp, too", {"common/one.cpp": one, "common/two.cpp": one})
        self.assert_found("common/two.cpp:4: f(int) is defined", {"common/one.cpp": one, "common/two.cpp": one})
        self.assert_found("common/two.cpp:5: Reader is defined", {"common/one.cpp": one, "common/two.cpp": one})
        header = "#pragma once\nnamespace tutti {\ninline constexpr int kLine = 2;\n}\n"
        self.assert_found("common/one.cpp:3: kLine is defined in common/two.h, too", {"common/one.cpp": one, "common/two.h": header})
        status, output = self.check({"common/one.cpp": one, "common/two.h": header.replace("tutti", "tutti::net")})
        self.assertEqual(status, 0, output)
        for other in (one.replace("tutti", "tutti::net"), "namespace tutti {\nnamespace {\nint f(long b) { int kLine = 2; return kLine; }\n}\n}\n"):
            status, output = self.check({"common/one.cpp": one, "common/two.cpp": other})
            self.assertEqual(status, 0, output)

    def test_long_files_are_named(self):
        self.assert_found("common/text.cpp:601: 700 lines; at most 600", {"common/text.cpp": "\n" * 700})
        self.assert_found("common/text.h:351: 450 lines; at most 350", {"common/text.h": "\n" * 450})
        self.assert_found("common/README.md:61: 70 lines; at most 60", {"common/README.md": "\n" * 70})
        self.assert_found("include/tutti/tutti.hpp:251: 300 lines; at most 250",
                          {"include/tutti/tutti.hpp": "\n" * 300})

    def test_a_main_header_that_pulls_in_too_much_is_named(self):
        headers = {f"include/tutti/h{i}.hpp": "\n" * 300 for i in range(5)}
        headers["include/tutti/tutti.hpp"] = "".join(f"#include <tutti/h{i}.hpp>\n" for i in range(5))
        self.assert_found("include/tutti/tutti.hpp:1: pulls in 1505 lines; at most 1300", headers)

    def test_the_c_abi_may_include_what_c_needs_and_nothing_else(self):
        status, output = self.check({"include/tutti/tutti.h": "#include <stddef.h>\n#include <stdint.h>\n"})
        self.assertEqual(status, 0, output)
        self.assert_found("include/tutti/tutti.h:1: a public header includes <stdlib.h>, which is not public",
                          {"include/tutti/tutti.h": "#include <stdlib.h>\n"})

    def test_the_text_of_a_threads_last_error_is_the_one_variable_that_may_change(self):
        text = "namespace tutti::c { namespace { thread_local char last_error[9], other[9]; }\n" \
               "char* f() { return last_error; }\nchar* g() { return other; } }\n"
        status, output = self.check({"bindings/c/README.md": "C\n", "bindings/c/guarded.cpp": text}, ["bindings/c/guarded.cpp"])
        self.assertEqual(status, 1, output)
        self.assertIn("mutable variable tutti::c::(anonymous namespace)::other", output)
        self.assertNotIn("::last_error", output)

    def test_a_seam_that_asks_too_much_of_a_transport_is_named(self):
        methods = "".join(f"virtual int f{i}(int) = 0;\n" for i in range(19))
        self.assert_found("transport/channel.h:1: asks 19 functions of a transport",
                          {"transport/channel.h": f"class A {{\n{methods}}};\n"})

    def test_a_way_of_an_all_reduce_that_is_gone_or_too_long_is_named(self):
        self.assert_found("docs/architecture.md:1: the way of an all-reduce names gone.cpp, which is not there",
                          {"docs/architecture.md": "1. `gone.cpp` was here\n"})
        self.assert_found("the way of an all-reduce takes 21 files",
                          {"docs/architecture.md": "1. `common/text.h` again\n" * 21})

    def test_a_folder_without_readme_is_named(self):
        self.assert_found("ddp:1: has no README.md", {"ddp/bucket.h": "#pragma once\n"})

    def test_a_planted_fault_that_no_longer_applies_is_named(self):
        patch = ("What is wrong.\nWhere it shows.\n\n--- a/common/text.cpp\n+++ b/common/text.cpp\n@@ -1,2 +1,2 @@\n"
                 ' #include "common/text.h"\n-int f() { return %d; }\n+int f() { return 7; }\n')
        planted = "tests/worlds/faults/seven.patch"
        self.assertEqual(self.check({planted: patch % 1})[0], 0)
        self.assert_found(f"{planted}:1: no longer applies to the tree: patch failed: common/text.cpp:1", {planted: patch % 2})

    def test_mutable_variables_are_named_and_constants_are_not(self):
        source = ("namespace tutti {\n"
                  "int counter = 1;\n"
                  "static const char* name = \"a\";\n"
                  "const char* const kName = \"b\";\n"
                  "thread_local int mine;\n"
                  "int f();\n"
                  "int g() {\n"
                  "  static int calls;\n"
                  "  static const int kStart = f();\n"
                  "  return ++calls + kStart + mine + name[0];\n"
                  "}\n"
                  "}\n")
        status, output = self.check({"common/text.cpp": source}, ["common/text.cpp"])
        self.assertEqual(status, 1)
        found = [line.split(" (")[0] for line in output.splitlines() if "mutable variable" in line]
        self.assertEqual(found, ["common/text.cpp:2: mutable variable tutti::counter",
                                 "common/text.cpp:3: mutable variable tutti::name",
                                 "common/text.cpp:5: mutable variable tutti::mine",
                                 "common/text.cpp:8: mutable variable tutti::g()::calls"])


if __name__ == "__main__":
    watched.main(sys.argv)
