#!/usr/bin/env python3
"""Checks that each tool's man page says what its --help says.

usage: tests/tools/man_test.py <folder of the tools> <folder of the pages>
"""

import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "watchdog"))
import watched  # noqa: E402

TOOLS_FOLDER, PAGES_FOLDER = map(pathlib.Path, sys.argv[1:3])
TOOLS = ["tutti-info", "tutti-perf", "tutti-plan", "tutti-run", "tutti-trace"]


def plain(page):
    """Returns a page's text without its requests, fonts and escapes."""
    page = re.sub(r"^\.(TP|PP|nf|fi|RS|RE|SH|SS|TH)\b ?", "", page, flags=re.M)
    return page.replace("\\fB", "").replace("\\fR", "").replace("\\-", "-").replace("\\&", "").replace("\\e", "\\")


class Man(unittest.TestCase):
    def each(self):
        for tool in TOOLS:
            shown = subprocess.run([TOOLS_FOLDER / tool, "--help"], check=True, capture_output=True, text=True).stdout
            with self.subTest(tool):
                yield tool, shown, (PAGES_FOLDER / f"{tool}.1").read_text()

    def test_every_option_that_help_prints_stands_in_bold_at_the_head_of_an_entry(self):
        for _, shown, page in self.each():
            options = re.findall(r"^  (-\S+)", shown, re.M)
            self.assertGreater(len(options), 2)
            for names in options:
                self.assertIn(".TP\n\\fB" + names.replace("-", "\\-") + "\\fR", page)

    def test_every_line_that_help_prints_is_there(self):
        for _, shown, page in self.each():
            text = " ".join(plain(page).split())
            for line in shown.splitlines()[1:]:
                if line not in ("Positionals:", "Options:", "Subcommands:") and not line.startswith("Usage: "):
                    self.assertIn(" ".join(line.split()).rstrip(":"), text)

    def test_every_page_names_its_tool_says_how_to_call_it_and_points_to_the_others(self):
        for tool, _, page in self.each():
            bold = "\\fB" + tool.replace("-", "\\-") + "\\fR"
            self.assertRegex(page, rf"\.SH NAME\n{re.escape(tool.replace('-', chr(92) + '-'))} \\- [a-z]")
            self.assertIn(f".SH SYNOPSIS\n{bold} ", page)
            for other in TOOLS:
                named = "\\fB" + other.replace("-", "\\-") + "\\fR(1)"
                self.assertEqual(named in page.split(".SH SEE ALSO")[1], other != tool)


if __name__ == "__main__":
    watched.main()
