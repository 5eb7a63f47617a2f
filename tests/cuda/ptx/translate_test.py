#!/usr/bin/env python3
"""What the translator does not know is an error that names the file and the line."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent

FRAME = """.version 9.0
.target sm_90
.address_size 64
// a comment
.visible .entry kernel(.param .u64 kernel_param_0)
{{
	.reg .b32 	%r<4>;
	.reg .pred 	%p<2>;

	{}
	ret;
}}
"""


def translate(instruction):
    with tempfile.TemporaryDirectory() as folder:
        ptx = pathlib.Path(folder) / "some.ptx"
        ptx.write_text(FRAME.format(instruction), encoding="utf-8")
        done = subprocess.run([sys.executable, HERE / "translate.py", pathlib.Path(folder) / "out.cpp", ptx], capture_output=True,
                              text=True, check=False)
        return done.returncode, done.stderr


class Translator(unittest.TestCase):
    def test_an_instruction_that_it_knows_is_translated(self):
        self.assertEqual(translate("add.s32 %r1, %r2, 7;"), (0, ""))

    def test_what_it_does_not_know_is_named_with_file_and_line(self):
        for unknown in ("frobnicate.s32 %r1, %r2;", "add.ftz.f32 %r1, %r2, %r3;", "ex2.approx.f32 %r1, %r2;", "ld.acquire.u32 %r1, [%r2];",
                        "add.s32 %r1, %r9, 1;", "setp.within.s32 %p1, %r1, %r2;", "call.uni nowhere, ();", "mov.u32 %r1, %ctaid.w;",
                        "atom.global.frob.u32 %r1, [%r2], 1;", "fence.proxy.async;", "cp.async.ca.shared.global [%r1], [%r2], 16;"):
            with self.subTest(unknown):
                status, said = translate(unknown)
                self.assertNotEqual(status, 0)
                self.assertRegex(said, r"some\.ptx:10: not translated: ")
                self.assertIn(unknown.split()[0].split(".")[0] if "%r9" not in unknown and "ctaid" not in unknown else "%", said)


if __name__ == "__main__":
    unittest.main()
