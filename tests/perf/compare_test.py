#!/usr/bin/env python3
"""Tests how perf/compare evaluates samples, and that tutti's own side of it measures.

usage: tests/perf/compare_test.py <tutti-run> <tutti_bench> <loss_bench>
"""

import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import xml.etree.ElementTree as xml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "watchdog"))
import watched  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "perf" / "compare"))

import compare  # noqa: E402
import libraries  # noqa: E402
import machines  # noqa: E402
import plot  # noqa: E402
import results  # noqa: E402
from results import KI, LIMIT, MI, Cell  # noqa: E402

CELL = Cell("all_reduce", 2, 64 * KI)


def sample(side, time_us, one_way_ns=(60, 60), cell=CELL, number=0):
    return {"side": side, "round": number, **cell._asdict(), "time_us": time_us, "one_way_ns": list(one_way_ns)}


def summary_of(ours, theirs, cell=CELL, limit_us=None, phase="45-100 ns"):
    return results.Summary(cell, phase, 3, 60, {"tutti": ours, **theirs}, limit_us)


class Summaries(unittest.TestCase):
    def test_times_are_medians_of_each_side(self):
        samples = [sample("tutti", t) for t in (3, 1, 50)] + [sample("openmpi", t) for t in (10, 6, 8)]
        one = results.summarize(samples, CELL)
        self.assertEqual(one.time_us, {"tutti": 3, "openmpi": 8})
        self.assertEqual((one.rounds, one.one_way_ns), (3, 60))
        self.assertEqual(one.ratios, {"openmpi": 3 / 8})

    def test_a_measurement_under_which_the_phase_changed_is_not_used(self):
        samples = [sample("tutti", 3), sample("tutti", 900, (60, 240)), sample("openmpi", 6)]
        self.assertEqual(results.summarize(samples, CELL).time_us["tutti"], 3)
        self.assertIsNone(results.phase_of(samples[1]))

    def test_sides_are_compared_within_the_phase_that_both_were_measured_in(self):
        far = (240, 240)
        samples = [sample("tutti", 1), sample("tutti", 2), sample("tutti", 30, far), sample("openmpi", 40, far)]
        one = results.summarize(samples, CELL)
        self.assertEqual((one.phase, one.time_us), (">= 100 ns", {"tutti": 30, "openmpi": 40}))

    def test_of_two_phases_that_with_more_rounds_of_all_sides_counts(self):
        near = [sample(side, 1) for side in ("tutti", "openmpi") for _ in range(2)]
        far = [sample("tutti", 5, (240, 240)) for _ in range(9)] + [sample("openmpi", 9, (240, 240))]
        self.assertEqual(results.summarize(near + far, CELL).phase, "45-100 ns")

    def test_other_cells_do_not_count(self):
        other = [sample("tutti", 99, cell=CELL._replace(ranks=4)), sample("tutti", 99, cell=CELL._replace(size=8)),
                 sample("tutti", 99, cell=CELL._replace(operation="reduce"))]
        self.assertEqual(results.summarize([sample("tutti", 3), *other], CELL).time_us, {"tutti": 3})

    def test_without_us_there_is_nothing_to_say(self):
        self.assertIsNone(results.summarize([sample("openmpi", 3)], CELL))

    def test_the_limit_is_that_of_the_phase_for_operations_that_it_is_measured_for(self):
        limits = [sample(LIMIT, 2, [60], Cell("exchange", 2, CELL.size)),
                  sample(LIMIT, 7, [240], Cell("exchange", 2, CELL.size)),
                  sample(LIMIT, 9, [60], Cell("exchange", 2, MI))]
        self.assertEqual(results.summarize([sample("tutti", 3), *limits], CELL).limit_us, 2)
        for cell in (CELL._replace(operation="broadcast"), CELL._replace(ranks=4)):
            self.assertIsNone(results.summarize([sample("tutti", 3, cell=cell), *limits], cell).limit_us)

    def test_what_goes_one_way_has_the_limit_of_one_way_and_a_block_that_of_its_part(self):
        limits = [sample(LIMIT, 5, [60], Cell("one way", 2, CELL.size)), sample(LIMIT, 4, [60], Cell("one way", 2, 32 * KI))]
        for operation, limit_us in (("broadcast", 5), ("send_recv", 5), ("reduce_scatter", 4), ("barrier", None)):
            cell = CELL._replace(operation=operation)
            self.assertEqual(results.summarize([sample("tutti", 3, cell=cell), *limits], cell).limit_us, limit_us)

    def test_a_cell_wants_rounds_until_all_sides_have_enough_in_one_phase(self):
        samples = [sample("tutti", 1), sample("tutti", 1), sample("openmpi", 1), sample("openmpi", 1, (240, 240))]
        self.assertTrue(results.wants_more(samples, CELL, ["tutti", "openmpi"], 2))
        self.assertFalse(results.wants_more(samples, CELL, ["tutti"], 2))
        samples.append(sample("openmpi", 1))
        self.assertFalse(results.wants_more(samples, CELL, ["tutti", "openmpi"], 2))


class Goals(unittest.TestCase):
    def test_follow_size_and_ranks(self):
        expected = {(2, 8): 0.7, (2, 4 * KI): 0.7, (2, 64 * KI): 0.5, (2, MI): 0.45, (4, 8): 0.7, (8, 64 * KI): 0.45,
                    (8, 256 * MI): 0.45, (2, 8 * KI): None, (4, 512 * KI): None}
        found = {(ranks, size): results.goal(Cell("reduce", ranks, size)) for ranks, size in expected}
        self.assertEqual(found, expected)

    def test_are_about_the_fastest_peer(self):
        one = summary_of(4, {"openmpi": 100, "mpich": 5})
        self.assertEqual(one.best_peer, ("mpich", 0.8))
        self.assertEqual(results.verdict(one), "MISSED")
        self.assertEqual(results.verdict(summary_of(4, {"openmpi": 100, "mpich": 8})), "ok")

    def test_are_met_near_the_limit_of_the_machine(self):
        peers = {"openmpi": 5}
        self.assertEqual(results.verdict(summary_of(4, peers, limit_us=3)), "ok: near the limit")
        self.assertEqual(results.verdict(summary_of(4, peers, limit_us=2.9)), "MISSED")

    def test_about_the_limit_hold_for_an_all_reduce_in_the_phase_that_they_were_set_in(self):
        cell = CELL._replace(size=MI)
        texts = [results.limit_text(summary_of(ours, {}, cell, limit_us=10)) for ours in (13, 14)]
        self.assertEqual(texts, ["1.30 limits <= 1.35 ok", "1.40 limits <= 1.35 MISSED"])
        self.assertEqual(results.limit_text(summary_of(14, {}, cell, 10, ">= 100 ns")), "1.40 limits")
        self.assertEqual(results.limit_text(summary_of(14, {}, cell._replace(operation="all_gather"), 10)), "1.40 limits")
        self.assertEqual(results.limit_text(summary_of(14, {}, cell)), "")

    def test_are_not_judged_without_a_peer_or_between_the_classes(self):
        self.assertEqual(results.verdict(summary_of(4, {})), "")
        self.assertEqual(results.verdict(summary_of(4, {"openmpi": 1}, CELL._replace(size=8 * KI))), "")


    def test_between_machines_are_about_open_mpi_or_the_bare_program_where_that_takes_longer(self):
        def said(ours, theirs, cell=CELL):
            return results.machines_verdict(summary_of(ours, theirs, cell)).split()[-1]
        self.assertEqual(said(7, {"openmpi_tcp": 10, "bare": 5}), "ok")
        self.assertEqual(said(8, {"openmpi_tcp": 10, "bare": 5}), "MISSED")
        self.assertEqual(said(8, {"openmpi_tcp": 10, "bare": 7.5}), "ok")
        large = CELL._replace(size=16 * MI)
        self.assertEqual(said(6, {"openmpi_tcp": 10, "bare": 5}, large), "MISSED")
        self.assertEqual(said(6, {"openmpi_tcp": 10, "bare": 5.5}, large), "ok")
        one_way = Cell("send_recv", 2, 8)
        self.assertEqual([said(ours, {"bare": 10}, one_way) for ours in (11, 12)], ["ok", "MISSED"])
        self.assertEqual(results.machines_verdict(summary_of(1, {"bare": 10}, CELL._replace(operation="reduce"))), "")


class Tables(unittest.TestCase):
    def test_a_row_has_times_ratios_and_the_goal(self):
        row = results.table([summary_of(4, {"openmpi": 10, "mpich": 500})], ["tutti", "openmpi", "mpich"]).split("\n")[1]
        self.assertEqual(row.split(), "2 all_reduce 64 KiB 3 45-100 ns 4.00 10.00 0.40 500 .0080 - 0.40 <= 0.50 ok".split())

    def test_a_peer_that_was_not_measured_is_a_dash(self):
        row = results.table([summary_of(4, {"openmpi": 10})], ["tutti", "openmpi", "gloo"]).split("\n")[1]
        self.assertEqual(row.split()[8:12], ["10.00", "0.40", "-", "-"])

    def test_columns_stand_under_their_titles(self):
        lines = results.table([summary_of(4, {"openmpi": 10}, limit_us=1.25)], ["tutti", "openmpi"]).split("\n")
        for title, value in [("tutti us", "4.00"), ("openmpi us", "10.00"), ("ratio", "0.40"), ("limit", "1.25")]:
            end = lines[0].rindex(title) + len(title)
            self.assertEqual(lines[1][end - len(value):end], value)

    def test_what_is_behind_is_named_with_the_worst_first(self):
        lines = results.behind([summary_of(4, {"openmpi": 2}), summary_of(1, {"openmpi": 2}),
                                summary_of(9, {"mpich": 3}, Cell("barrier", 4, 0))])
        self.assertEqual(lines, ["barrier, 4 ranks: 3.00 times mpich (9.00 us, 3.00)",
                                 "all_reduce, 64 KiB, 2 ranks: 2.00 times openmpi (4.00 us, 2.00)"])


class Baseline(unittest.TestCase):
    KEPT = results.to_baseline([summary_of(4, {"openmpi": 10, "mpich": 8})])

    def test_keeps_ratios_and_phase(self):
        self.assertEqual(self.KEPT, {"all_reduce 2 65536": {"phase": "45-100 ns",
                                                            "ratios": {"openmpi": 0.4, "mpich": 0.5}}})

    def test_a_ratio_within_the_tolerance_passes_and_one_beyond_is_named(self):
        self.assertEqual(results.check([summary_of(5, {"openmpi": 10, "mpich": 8})], self.KEPT, 0.3), (2, [], []))
        compared, worse, _ = results.check([summary_of(6, {"openmpi": 10, "mpich": 13})], self.KEPT, 0.3)
        self.assertEqual((compared, worse), (2, ["all_reduce, 64 KiB, 2 ranks: 0.60 times openmpi, 0.40 in the baseline"]))

    def test_what_cannot_be_compared_is_named(self):
        measured = [summary_of(4, {"gloo": 10}), summary_of(4, {"openmpi": 1}, phase=">= 100 ns"),
                    summary_of(4, {"openmpi": 1}, CELL._replace(size=8))]
        compared, worse, skipped = results.check(measured, self.KEPT, 0.3)
        self.assertEqual((compared, worse), (0, []))
        self.assertEqual(skipped, ["all_reduce, 64 KiB, 2 ranks: gloo is not in the baseline",
                                   "all_reduce, 64 KiB, 2 ranks: phase >= 100 ns, in the baseline 45-100 ns",
                                   "all_reduce, 8 B, 2 ranks: not in the baseline"])

    def test_the_committed_one_has_the_cells_of_the_short_run(self):
        cells = json.loads(compare.BASELINE.read_text())["cells"]
        missing = [cell for cell in compare.short_cells() if "openmpi" not in
                   cells.get(results.cell_key(cell), {"ratios": {}})["ratios"]]
        self.assertEqual(missing, [])


class Plot(unittest.TestCase):
    TITLES = {"tutti": "tutti", "openmpi": "Open MPI <vader>"}

    def test_has_a_panel_for_each_operation_and_number_of_ranks_with_several_sizes(self):
        cells = [Cell("all_reduce", 2, 8), Cell("all_reduce", 2, MI), Cell("reduce", 2, 8), Cell("all_reduce", 4, 8),
                 Cell("all_reduce", 4, MI)]
        limit = {8: 0.1, MI: 50}
        picture = plot.to_svg([summary_of(4, {"openmpi": 10}, cell, limit[cell.size] if cell.ranks == 2 else None)
                               for cell in cells], self.TITLES, "a & b")
        tree = xml.fromstring(picture)
        texts = [text.text for text in tree.iter("{http://www.w3.org/2000/svg}text")]
        self.assertEqual([text for text in texts if "ranks: us" in text],
                         ["all_reduce, 2 ranks: us", "all_reduce, 4 ranks: us"])
        self.assertIn("Open MPI <vader>", texts)
        lines = list(tree.iter("{http://www.w3.org/2000/svg}polyline"))
        dashed = [line for line in lines if line.get("stroke-dasharray")]
        self.assertEqual((len(lines), len(dashed)), (5 + 3, 1 + 1))  # including the legend

    def test_there_is_none_of_single_sizes(self):
        self.assertIsNone(plot.to_svg([summary_of(4, {"openmpi": 10})], self.TITLES, ""))


class Libraries(unittest.TestCase):
    def test_have_names_and_programs_of_their_own_and_fit_the_colours(self):
        names = [library.name for library in libraries.LIBRARIES]
        self.assertEqual(len(set(names)), len(names))
        self.assertEqual(names[0], "tutti")
        self.assertLessEqual(len(names), len(plot.COLOURS))

    def test_one_that_is_not_there_names_its_packages(self):
        absent = libraries.Library("x", "X", ("no-such-program",), "some-package", (), "", (), None, (), "x")
        self.assertEqual(absent.missing(), "some-package")

    def test_those_from_pypi_name_the_command_that_installs_them_and_their_packages(self):
        by_name = {library.name: library for library in libraries.LIBRARIES}
        for name, package in (("oneccl", "oneccl-cpu-devel"), ("ucc", "nvidia-libcal-cu12")):
            absent = dataclasses.replace(by_name[name], needs=("/no/such/file",))
            self.assertIn(f"./dev bench --peers {name}", absent.missing())
            self.assertIn(package, absent.missing())

    def test_one_that_is_missing_is_named_with_what_to_install_and_the_others_are_measured(self):
        here = [dataclasses.replace(library, needs=("/no/such/file",)) if library.name in ("oneccl", "ucc") else library
                for library in libraries.LIBRARIES]
        with unittest.mock.patch.object(compare, "LIBRARIES", here):
            found, missing = compare.chosen_libraries(argparse.Namespace(machines=1, peers=["oneccl", "ucc"], full=False))
        self.assertEqual([library.name for library in found], ["tutti"])
        self.assertEqual([line.split(" is missing: install it with ")[0] for line in missing],
                         ["oneCCL over Intel MPI", "UCC"])

    def test_ranks_of_oneccl_are_not_bound_by_its_launcher_and_yield_where_they_share_cores(self):
        for crowded in (False, True):
            words = [str(word) for word in libraries.intel_mpi(4, crowded, None)]
            self.assertIn("I_MPI_PIN=off", words)
            self.assertEqual("CCL_YIELD=sched_yield" in words, crowded)
            self.assertEqual(words[-2:], ["-n", "4"])

    def test_lines_that_a_library_writes_itself_are_no_measurements(self):
        out = '2026:11:29 |CCL_WARN| a warning\n\n{"size": 8, "wrong": 0}\n{"size": 16, "wr'
        self.assertEqual(compare.measurements(out), [{"size": 8, "wrong": 0}])
        self.assertEqual(compare.measurements("a warning\n"), [])

    def test_more_ranks_than_a_peer_has_are_no_failure_of_it(self):
        measuring = compare.Measuring.__new__(compare.Measuring)
        measuring.samples, measuring.failures, measuring.rounds = [], {}, 1
        by_name = {library.name: library for library in libraries.LIBRARIES}
        measuring.programs = {by_name[name]: None for name in ("tutti", "bare")}
        measuring.measure(by_name["bare"], "all_reduce", 4, [8], 0)
        self.assertEqual(measuring.failures, {})
        self.assertFalse(by_name["bare"].serves(4))
        measuring.samples = [sample("tutti", 3, cell=CELL._replace(ranks=4))]
        self.assertEqual(measuring.unfinished([CELL, CELL._replace(ranks=4)]), {("all_reduce", 2): [CELL.size]})

    def test_a_peer_that_does_not_run_there_is_refused(self):
        for words in (["--peers", "bare"], ["--peers", "bare", "openmpi"]):
            done = subprocess.run([sys.executable, ROOT / "perf" / "compare" / "compare.py", *words], capture_output=True,
                                  text=True, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn("--peers bare: measured between machines alone", done.stderr)

    def test_a_command_without_end_is_ended_and_what_it_wrote_is_kept(self):
        with self.assertRaises(libraries.Failure) as caught:
            libraries.run(["sh", "-c", "echo written; exec sleep 60"], 0.5)
        self.assertEqual(caught.exception.output, "written\n")

    def test_of_several_commands_the_first_ones_output_counts_and_each_must_succeed(self):
        self.assertEqual(libraries.run_all([["echo", "one"], ["echo", "two"]], 10), "one\n")
        with self.assertRaisesRegex(libraries.Failure, "(?s)exit status 3.*the reason"):
            libraries.run_all([["echo", "one"], ["sh", "-c", "echo the reason >&2; exit 3"]], 10)

    def test_a_command_that_fails_says_why(self):
        with self.assertRaisesRegex(libraries.Failure, "(?s)exit status 3.*the reason"):
            libraries.run(["sh", "-c", "echo the reason >&2; exit 3"], 10)


class OurSide(unittest.TestCase):
    TUTTI_RUN, TUTTI_BENCH = "", ""

    def measure(self, ranks, operation, *sizes):
        with tempfile.TemporaryDirectory() as folder:
            out = libraries.run([self.TUTTI_RUN, "--no-tag", "--bind", "none", "-n", ranks, "--", self.TUTTI_BENCH, folder,
                                 operation, *sizes], 60)
        return [json.loads(line) for line in out.splitlines()]

    def test_measures_every_operation_with_any_number_of_ranks_and_finds_results_right(self):
        for operation in compare.OPERATIONS:
            with self.subTest(operation):
                lines = self.measure(3, operation, 8, 4 * KI)
                self.assertEqual([(line["size"], line["wrong"]) for line in lines], [(8, 0), (4 * KI, 0)])
                for line in lines:
                    self.assertGreater(min(line["time_us"], *line["one_way_ns"]), 0)

    def test_measures_between_machines_in_a_box_and_leaves_none_of_them(self):
        if why := machines.Machines.why_not():
            self.skipTest(why)
        with machines.Machines() as box, tempfile.TemporaryDirectory() as folder:
            starts = libraries.by_variables(box, 4, True, None)
            name = box.name(0)
            self.assertIn(name, subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout)
            out = libraries.run_all([[*words, self.TUTTI_BENCH, folder, "all_reduce", 8, 4 * KI] for words in starts], 60)
        self.assertEqual([json.loads(line)["wrong"] for line in out.splitlines()], [0, 0])
        self.assertNotIn(name, subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout)

    def test_four_machines_at_a_switch_reach_each_other(self):
        if why := machines.Machines.why_not():
            self.skipTest(why)
        with machines.Machines(4) as box, tempfile.TemporaryDirectory() as folder:
            out = libraries.run_all([[*words, self.TUTTI_BENCH, folder, "all_to_all", 4 * KI]
                                     for words in libraries.by_variables(box, 8, True, None)], 60)
        self.assertEqual([json.loads(line)["wrong"] for line in out.splitlines()], [0])

    def test_writes_what_is_sent_before_each_call_and_finds_results_right(self):
        for operation in compare.OPERATIONS:
            with self.subTest(operation):
                self.assertEqual([line["wrong"] for line in self.measure(2, operation + "+written", 64 * KI)], [0])

    def test_refuses_an_operation_that_there_is_not(self):
        with self.assertRaisesRegex(libraries.Failure, "no such operation: all_reduced"):
            self.measure(2, "all_reduced", 8)


class LossBench(unittest.TestCase):
    def test_says_what_is_wrong_with_its_arguments(self):
        for arguments, why in ((["carrier_pigeon"], "carrier_pigeon"), (["shm", "1"], "2 ranks at least"),
                               (["tcp", "4", "1000"], "256 threads"), (["shm", "2", "1", "x"], "1 time")):
            with self.subTest(arguments):
                run = subprocess.run([self.PROGRAM, *arguments], capture_output=True, text=True, check=False)
                self.assertEqual(run.returncode, 2, run.stderr)
                self.assertIn(why, run.stderr)
                self.assertIn("usage: loss_bench", run.stderr)


class TheirSide(unittest.TestCase):
    """The peers from PyPI, where `./dev bench --peers oneccl ucc` has installed them."""

    def check(self, name):
        library = {library.name: library for library in libraries.LIBRARIES}[name]
        if packages := library.missing():
            self.skipTest(f"{library.title} is missing: install {packages}")
        build = pathlib.Path(OurSide.TUTTI_BENCH).resolve().parent.parent
        program = library.build(build)
        cores = len(os.sched_getaffinity(0))
        for ranks in (2, 3):
            for operation in [*compare.OPERATIONS, "all_reduce+written"]:
                with self.subTest(f"{operation}, {ranks} ranks"), tempfile.TemporaryDirectory() as folder:
                    out = libraries.run([*library.launch(ranks, ranks > cores, build), program, folder, operation, 8,
                                         64 * KI], 60)
                    self.assertEqual([(line["size"], line["wrong"]) for line in compare.measurements(out)],
                                     [(8, 0), (64 * KI, 0)])

    def test_oneccl_measures_every_operation_and_its_results_are_right(self):
        self.check("oneccl")

    def test_ucc_measures_every_operation_and_its_results_are_right(self):
        self.check("ucc")


if __name__ == "__main__":
    OurSide.TUTTI_RUN, OurSide.TUTTI_BENCH, LossBench.PROGRAM = sys.argv[1:]
    watched.main()
