#!/usr/bin/env python3
"""Tests algorithms that a program writes in Python."""

import gc
import json
import tempfile
import unittest
import weakref

import numpy
import report
import scripts
from rank_threads import run

import tutti
from tutti import schedule


def star(request):
    """An all_reduce by way of rank 0."""
    plan = schedule.ScheduleBuilder(request)
    lane = plan.lane()
    if request.rank == 0:
        lane.reduce_copy_send(schedule.in_rank_order(request, 0), 0, list(range(1, request.ranks))).completes()
    else:
        lane.send(0, [0])
        lane.receive(0, 0)
    return plan.finish()


def ring(request):
    """An all_gather around a ring, on one lane."""
    plan = schedule.ScheduleBuilder(request, chunks=request.ranks)
    lane, ranks, rank = plan.lane(), request.ranks, request.rank
    lane.copy_send(rank, [(rank + 1) % ranks])
    for stage in range(1, ranks - 1):
        lane.receive_send((rank - 1) % ranks, (rank - stage) % ranks, [(rank + 1) % ranks])
    lane.receive((rank - 1) % ranks, (rank + 1) % ranks)
    return plan.finish()


def halves(request):
    """An all_reduce of two ranks, each of which reduces one half: two lanes, an order between them, and scratch."""
    plan = schedule.ScheduleBuilder(request, chunks=2, scratch_chunks=2)
    other, own = 1 - request.rank, request.rank
    reduce, gather = plan.lane(0, 0), plan.lane(1, 1)
    reduce.send(other, [other])
    reduce.step([schedule.input(own), schedule.peer(other)] if own == 0 else [schedule.peer(other), schedule.input(own)],
                [schedule.scratch(own)], own).completes()
    gather.step([schedule.scratch(own)], [schedule.output(own), schedule.peer(other)], own)
    gather.receive(other, other)
    gather.starts_after(reduce)
    return plan.finish()


class Schedules(unittest.TestCase):
    def test_algorithms_are_proved_and_run(self):
        def body(comm):
            comm.add_algorithm("star", star)
            comm.add_algorithm("my ring", ring)
            data = numpy.full(100_000, comm.rank + 1.0)
            for _ in range(3):
                out = numpy.empty_like(data)
                comm.all_reduce(data, output=out, algorithm="star")
                numpy.testing.assert_array_equal(out, 6.0)
            comm.all_reduce_async(data, algorithm="star").wait()
            numpy.testing.assert_array_equal(data, 6.0)
            gathered = numpy.empty(3 * 7, numpy.int32)
            comm.all_gather(numpy.full(7, comm.rank, numpy.int32), gathered, algorithm="my ring")
            numpy.testing.assert_array_equal(gathered, numpy.repeat(numpy.arange(3), 7))
            part = comm.dup()
            part.all_reduce(data, algorithm="star")
            part.close()

        run(3, body)

    def test_two_lanes_scratch_and_an_order(self):
        for in_place in (False, True):
            verdict = schedule.verify(schedule.of_all_ranks(halves, "all_reduce", 2), in_place=in_place)
            self.assertFalse(verdict)
            self.assertIn("scratch", verdict.why)

        def ordered(request):
            plan = schedule.ScheduleBuilder(request, chunks=2)
            other, own = 1 - request.rank, request.rank
            lane = plan.lane()
            lane.send(other, [other])
            operands = [schedule.input(own), schedule.peer(other)]
            lane.reduce_copy_send(operands if own == 0 else operands[::-1], own, [other]).completes()
            lane.receive(other, other)
            return plan.finish()

        for in_place in (False, True):
            all_ranks = schedule.of_all_ranks(ordered, "all_reduce", 2)
            self.assertTrue(schedule.verify(all_ranks, in_place=in_place), schedule.verify(all_ranks))

    def test_a_wrong_algorithm_is_refused_with_a_counter_example_on_every_rank(self):
        def forgetful(request):
            plan = schedule.ScheduleBuilder(request)
            lane = plan.lane()
            if request.rank == 0:
                lane.reduce_copy_send(schedule.in_rank_order(request, 0)[:-1], 0, [1, 2]).completes()
            else:
                lane.send(0, [0])
                lane.receive(0, 0)
            return plan.finish()

        def body(comm):
            comm.add_algorithm("forgetful", forgetful)
            data = numpy.ones(4)
            with self.assertRaisesRegex(tutti.UsageError, "'forgetful' is wrong .*misses the contribution of rank 2"):
                comm.all_reduce(data, algorithm="forgetful")
            numpy.testing.assert_array_equal(data, 1.0)
            comm.all_reduce(data)
            numpy.testing.assert_array_equal(data, 3.0)

        run(3, body)

    def test_what_a_planner_raises_or_returns_is_said(self):
        def divides(request):
            return request.rank // 0

        def body(comm):
            comm.add_algorithm("divides", divides)
            comm.add_algorithm("nothing", lambda request: None)
            comm.add_algorithm("other", lambda request: star(schedule.PlanRequest("all_reduce", 0, request.ranks)))
            data = numpy.ones(4)
            for name, text in (("divides", "'divides' cannot plan all_reduce for rank 0 of 2: ZeroDivisionError: "),
                               ("nothing", "it returned None, which is no Schedule"),
                               ("other", "it planned all_reduce for rank 0 of 2")):
                with self.assertRaisesRegex(tutti.UsageError, text):
                    comm.all_reduce(data, algorithm=name)
            with self.assertRaisesRegex(tutti.UsageError, "5 is no function"):
                comm.add_algorithm("five", 5)
            with self.assertRaisesRegex(tutti.UsageError, "was added before"):
                comm.add_algorithm("divides", star)

        run(2, body)

    def test_wrong_uses_are_errors(self):
        request = schedule.PlanRequest("all_reduce", 0, 2)
        self.assertEqual(repr(request), 'PlanRequest("all_reduce", rank=0, ranks=2, root=0)')
        for wrong in (("all_reduce", 2, 2), ("all_reduce", -1, 2), ("all_reduce", 0, 0), ("all_reduce", 0, 2, 2),
                      ("all_reduced", 0, 2), ("all_reduce", 0, 2, 0, [1])):
            with self.assertRaises(tutti.UsageError):
                schedule.PlanRequest(*wrong)
        plan, other = schedule.ScheduleBuilder(request), schedule.ScheduleBuilder(request)
        lane = plan.lane()
        step = lane.send(0, [1])
        with self.assertRaisesRegex(tutti.UsageError, "own schedule"):
            step.after(other.lane().send(0, [1]))
        with self.assertRaisesRegex(tutti.UsageError, "own schedule"):
            lane.starts_after(other.lane())
        plan.finish()
        for use in (plan.finish, plan.lane, lambda: lane.copy(0), step.completes, lambda: lane.starts_after(lane)):
            with self.assertRaisesRegex(tutti.UsageError, "is finished"):
                use()
        with self.assertRaises(TypeError):
            other.lane().send("first", [1])
        with self.assertRaises(tutti.UsageError):
            schedule.verify([], window=0)
        self.assertFalse(schedule.verify([]))
        wild = schedule.ScheduleBuilder(request, chunks=-5)
        wild.lane(-3, 99).send((7, -2), [12])
        self.assertFalse(schedule.verify([wild.finish(), wild_other()]))

    def test_schedules_are_shown_written_and_compared(self):
        all_ranks = schedule.of_all_ranks(star, "all_reduce", 3)
        self.assertEqual(repr(all_ranks[1]), "<Schedule of all_reduce, rank 1 of 3>")
        self.assertIn("chunk 0: input[0] -> rank 0", str(all_ranks[1]))
        self.assertEqual(all_ranks, schedule.of_all_ranks(star, "all_reduce", 3))
        self.assertNotEqual(all_ranks[1], all_ranks[2])
        self.assertEqual(json.loads(all_ranks[2].to_json())["rank"], 2)
        self.assertIn("digraph", schedule.to_dot(all_ranks))
        self.assertEqual(schedule.input(3), schedule.input(3))
        self.assertNotEqual(schedule.input(3), schedule.output(3))
        self.assertEqual(len({schedule.input(3), schedule.input(3), schedule.output(3)}), 2)
        self.assertEqual(len({*all_ranks, *schedule.of_all_ranks(star, "all_reduce", 3)}), 3)
        request = schedule.PlanRequest("all_reduce", 1, 2, 0, [4, 7])
        self.assertEqual(repr(request), 'PlanRequest("all_reduce", rank=1, ranks=2, root=0, groups=[4, 7])')
        request = schedule.PlanRequest("all_reduce", 1, 2, places=[1, 0])
        self.assertEqual((request.places, repr(request)),
                         ([1, 0], 'PlanRequest("all_reduce", rank=1, ranks=2, root=0, places=[1, 0])'))
        self.assertEqual(repr(schedule.in_rank_order(request, 5)), "[peer(0), input(5)]")
        self.assertEqual(tutti.schedule.of_all_ranks(lambda each: each.groups, "all_reduce", 2, groups=[4, 7]), [[4, 7]] * 2)

    def test_both_ways_are_proved_where_nothing_is_said(self):
        def in_turn(request):
            """An all_to_all whose output overwrites, in place, what is still to be sent."""
            ranks, rank = request.ranks, request.rank
            plan = schedule.ScheduleBuilder(request, chunks=ranks * ranks)
            lane = plan.lane()
            lane.step([schedule.input(rank * ranks + rank)], [schedule.output(rank * ranks + rank)], rank * ranks + rank)
            for distance in range(1, ranks):
                to, source = (rank + distance) % ranks, (rank - distance) % ranks
                lane.send(rank * ranks + to, [to])
                lane.receive(source, source * ranks + rank)
            return plan.finish()

        all_ranks = schedule.of_all_ranks(in_turn, "all_to_all", 3)
        self.assertTrue(schedule.verify(all_ranks, in_place=False))
        self.assertFalse(schedule.verify(all_ranks))

    def test_a_file_that_a_program_writes_runs(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write("[" + ",".join(each.to_json() for each in schedule.of_all_ranks(star, "all_reduce", 2)) + "]")
            file.flush()

            def body(comm):
                names = comm.add_schedules(file.name)
                data = numpy.ones(5)
                comm.all_reduce(data, algorithm=names[0])
                numpy.testing.assert_array_equal(data, 2.0)

            run(2, body)

    def test_planners_end_with_their_communicators(self):
        def make():
            planner = lambda request: star(request)  # noqa: E731: a function that is not the module's
            comms = tutti.Communicator.in_process(2)
            for comm in comms:
                comm.add_algorithm("star", planner)
            return comms, weakref.ref(planner)

        comms, planner = make()
        self.assertIsNotNone(planner())
        for comm in comms:
            comm.close()
        gc.collect()
        self.assertIsNone(planner())

    def test_circles_through_algorithms_and_reductions_are_found(self):
        class Job:
            def __init__(self):
                self.comm = tutti.Communicator.in_process(1)[0]
                self.comm.add_algorithm("own", self.plan)
                self.part = self.comm.dup()
                self.reduction = tutti.Reduction("own", self.reduce, "f64")

            def plan(self, request):
                return star(request)

            def reduce(self, left, right):
                raise AssertionError

        jobs = [weakref.ref(Job()) for _ in range(3)]
        gc.collect()
        self.assertEqual([job() for job in jobs], [None] * 3)

    def test_a_part_keeps_the_functions_of_the_whole(self):
        def body(comm):
            comm.add_algorithm("own", lambda request: star(request))
            part = comm.dup()
            comm.close()
            del comm
            gc.collect()
            data = numpy.ones(3)
            part.all_reduce(data, algorithm="own")
            numpy.testing.assert_array_equal(data, 2)
            part.close()

        run(2, body)

    def test_a_function_selects_the_algorithm_of_each_kind_of_call(self):
        asked = []

        def select(query):
            asked.append(query)
            return "one_shot" if query.bytes > 100 else "own" if query.operation == "all_reduce" else ""

        def body(comm):
            comm.add_algorithm("own", star)
            for count in (5, 500):
                data = numpy.ones(count, numpy.float32)
                comm.all_reduce(data, "max", accumulate="f32" if count == 5 else "step")
                comm.dup().reduce(data, 1)
                if comm.rank == 1:
                    numpy.testing.assert_array_equal(data, 2.0)
            return comm.explain("all_reduce", 500, op="max")

        for text in run(2, body, select=select):
            self.assertIn("algorithm one_shot", text)
        first = next(each for each in asked if each.operation == "all_reduce")
        self.assertEqual((first.type, first.op, first.root, first.count, first.bytes, first.ranks, first.accumulate),
                         ("f32", "max", 0, 5, 20, 2, "f32"))
        self.assertEqual(repr(first), "<SelectQuery: all_reduce of 5 x f32, max, 2 ranks>")
        self.assertEqual({each.root for each in asked if each.operation == "reduce"}, {1})

    def test_what_a_function_that_selects_does_wrong_is_usage_and_says_what(self):
        def throws(query):
            raise KeyError("no table")

        for select, what in ((throws, "KeyError"), (lambda query: 5, "returned 5, which is no str"),
                             (lambda query: "fastest", "fastest"), (lambda: "", "TypeError")):
            def body(comm):
                with self.assertRaises(tutti.UsageError) as caught:
                    comm.all_reduce(numpy.ones(3))
                self.assertIn(what, str(caught.exception))

            run(1, body, select=select)
        with self.assertRaises(tutti.UsageError) as caught:
            tutti.Communicator.in_process(1, select="ring")
        self.assertIn("select: 'ring' is no function", str(caught.exception))
        run(1, lambda comm: comm.all_reduce(numpy.ones(3)), select=None)

    def test_a_communicator_is_not_closed_while_its_explanation_asks_a_function(self):
        comm = None

        def closes(query):
            comm.close()
            return "ring"

        for form in ("explain", "prices"):
            comm, other = tutti.Communicator.in_process(2, select=closes)
            with self.assertRaises(tutti.UsageError) as caught:
                getattr(comm, form)("all_reduce", 100)
            self.assertIn("close: a thread is in a call", str(caught.exception))
            other.close()
            comm.close()

    def test_an_exception_that_is_no_error_of_a_function_that_selects_ends_the_explanation(self):
        def interrupted(query):
            raise KeyboardInterrupt

        def body(comm):
            for form in ("explain", "prices"):
                with self.assertRaises(KeyboardInterrupt):
                    getattr(comm, form)("all_reduce", 100)

        run(1, body, select=interrupted)

    def test_circles_through_persistent_calls_are_found(self):
        class Trainer:
            def __init__(self):
                self.comm = tutti.Communicator.in_process(1, select=self.select)[0]
                self.gradient = numpy.ones(10)
                self.step = self.comm.all_reduce_init(self.gradient)

            def select(self, query):
                return ""

        trainers = [weakref.ref(Trainer()) for _ in range(3)]
        gc.collect()
        self.assertEqual([each() for each in trainers], [None] * 3)

    def test_functions_that_select_live_as_long_as_communicators(self):
        class Job:
            def __init__(self):
                self.comms = tutti.Communicator.in_process(2, select=self.select)
                self.part = self.comms[0]

            def select(self, query):
                return "ring"

        job = Job()
        gone = weakref.ref(job)
        comms = job.comms
        del job
        gc.collect()
        self.assertIsNotNone(gone())
        for comm in comms:
            comm.close()
        del comm, comms
        gc.collect()
        self.assertIsNone(gone())

    def test_a_program_with_functions_of_its_module_ends_without_complaint(self):
        ended = scripts.run(
            "from tutti import schedule\n"
            "class Canary:\n    def __del__(self): print('ends', flush=True)\n"
            "canary = Canary()\n"
            "def star(request): return None\n"
            "def reduce(left, right): return None\n"
            "comm = tutti.Communicator.in_process(1)[0]\n"
            "comm.add_algorithm('star', star)\nreduction = tutti.Reduction('r', reduce, 'f64')\n", "-n", "1")
        self.assertEqual((ended.returncode, ended.stdout.count("ends")), (0, 1), ended.stdout + ended.stderr)
        self.assertNotIn("leaked", ended.stderr)

    def test_processes_run_an_algorithm_and_ctrl_c_in_a_planner_ends_the_call(self):
        ended = scripts.run(
            "import signal\nfrom tutti import schedule\n"
            "def star(request):\n"
            "    plan = schedule.ScheduleBuilder(request)\n    lane = plan.lane()\n"
            "    if request.rank == 0:\n"
            "        lane.reduce_copy_send(schedule.in_rank_order(request, 0), 0, [1]).completes()\n"
            "    else:\n        lane.send(0, [0])\n        lane.receive(0, 0)\n"
            "    return plan.finish()\n"
            "def interrupted(request):\n    signal.raise_signal(signal.SIGINT)\n    return star(request)\n"
            "comm = tutti.Communicator.from_env(timeout=60)\n"
            "comm.add_algorithm('star', star)\ncomm.add_algorithm('interrupted', interrupted)\n"
            "data = numpy.ones(1000, numpy.float32)\n"
            "try:\n    comm.all_reduce(data, algorithm='interrupted')\n"
            "except KeyboardInterrupt:\n    print('interrupted', flush=True)\n"
            "comm.all_reduce(data, algorithm='star')\n"
            "print('right' if (data == 2).all() else data, flush=True)\n", "-n", "2", "--timeout", "120")
        self.assertEqual((ended.returncode, ended.stdout.count("interrupted"), ended.stdout.count("right")), (0, 2, 2),
                         ended.stdout + ended.stderr)


def wild_other():
    return schedule.ScheduleBuilder(schedule.PlanRequest("all_reduce", 1, 2)).finish()


if __name__ == "__main__":
    report.main()
