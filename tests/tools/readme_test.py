#!/usr/bin/env python3
"""Checks that README.md agrees with the project.

usage: tests/tools/readme_test.py <the project's folder> <tutti-info>
"""

import pathlib
import re
import subprocess
import sys
import unittest

PROJECT, TUTTI_INFO = map(pathlib.Path, sys.argv[1:3])
README = (PROJECT / "README.md").read_text(encoding="utf-8")


class Readme(unittest.TestCase):
    def test_what_has_a_setting_is_not_called_missing(self):
        printed = subprocess.run([TUTTI_INFO, "--config"], check=True, capture_output=True, text=True).stdout
        settings = set(re.findall(r"^TUTTI_(\S+)", printed, re.M))
        self.assertIn("TLS", settings)
        table = re.search(r"^\|  *\| works \| not yet \|$(.*?)^$", README, re.M | re.S)[1]
        missing = [row.split("|")[3] for row in table.strip().splitlines()[1:]]
        self.assertGreater(len(missing), 5)
        for each in missing:
            for word in re.findall(r"\w+", each):
                self.assertNotIn(word.upper(), settings)

    def test_a_page_says_how_a_library_is_found_in_either_place(self):
        page = (PROJECT / "docs/installing.md").read_text(encoding="utf-8")
        for word in ("ldconfig", "--prefix", "PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH", "LD_LIBRARY_PATH", "-Wl,-rpath"):
            self.assertIn(word, page)

    def test_every_page_is_named_there(self):
        for page in (PROJECT / "docs").glob("*.md"):
            self.assertIn(f"(docs/{page.name})", README)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
