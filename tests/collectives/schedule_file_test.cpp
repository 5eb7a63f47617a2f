#include "collectives/formats/schedule_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <tutti/error.hpp>

#include "collectives/formats/print.h"
#include "schedule_texts.h"
#include "support.h"
#include "tests/common/errors.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

std::string shared_file(const std::string& name) {
  const std::string path = std::string(TUTTI_SHARED_DATA) + "/" + name;
  return std::filesystem::exists(path) ? path : std::string();
}

Verdict proved(const std::vector<Schedule>& schedules) {
  for (const bool in_place : {false, true})
    if (Verdict verdict = verify(schedules, {.in_place = in_place}); !verdict.ok) return verdict;
  return {};
}

class FilesOfOthers : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, FilesOfOthers,
                         ::testing::Values("msccl/alltoall-8n-0-9kb.xml",
                                           "msccl/allreduce-allpairs-8n-simple.xml",
                                           "msccl/all-reduce-ring-simple.xml",
                                           "mscclpp/allreduce.json",
                                           "mscclpp/allreduce_packet.json"),
                         [](const auto& file) {
                           std::string name = std::filesystem::path(file.param).stem();
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_P(FilesOfOthers, BecomeSchedulesThatAreProvedInPlaceAndOutOfPlace) {
  const std::string path = shared_file(GetParam());
  if (path.empty()) GTEST_SKIP() << "there is no " << GetParam() << " beside the sources";
  const ScheduleFile file = read_schedule_file(path);
  const Verdict verdict = proved(file.schedules);
  EXPECT_TRUE(verdict.ok) << verdict.why;
}

using schedule_texts::kMsccl;
using schedule_texts::kMscclAllToAll;
using schedule_texts::kMscclpp;
using ::testing::StartsWith;

std::string error_in(const std::string& text, ErrorKind kind = ErrorKind::usage) {
  SCOPED_TRACE(text.substr(0, 200));
  return message_of(kind, [&] { parse_schedule_file("file", text); });
}

TEST(ScheduleFile, OfMscclWhoseSumsLieWhereInputsWereWorksOutOfPlaceToo) {
  const ScheduleFile file = parse_schedule_file("file", kMsccl);
  EXPECT_EQ(file.name, "halves");
  EXPECT_EQ(file.format, "msccl");
  EXPECT_EQ(file.least_bytes, 64u);
  EXPECT_EQ(file.most_bytes, 4096u);
  ASSERT_EQ(file.schedules.size(), 2u);
  EXPECT_EQ(proved(file.schedules).why, "");
  // The sum is read from the output, and the input before from the input.
  EXPECT_THAT(to_text(file.schedules[1]),
              HasSubstr("rank 0 + input[1] -> output[1], rank 0; completes"));
  EXPECT_THAT(to_text(file.schedules[0]), HasSubstr("chunk 0: output[0] -> rank 1; after lane 2"));
}

TEST(ScheduleFile, OfMscclThatKnowsNoCallsInPlaceIsOrderedSoThatTheyWork) {
  const ScheduleFile file = parse_schedule_file("file", kMscclAllToAll);
  EXPECT_EQ(file.most_bytes, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(proved(file.schedules).why, "");
  EXPECT_THAT(to_text(file.schedules[0]), HasSubstr("-> output[2]; after lane 1 step 0"));
}

TEST(ScheduleFile, LanesThatShareScratchWaitForEachOtherBetweenPieces) {
  const ScheduleFile file = parse_schedule_file("file", kMscclpp);
  EXPECT_THAT(to_text(file.schedules[0]), HasSubstr("of 1 piece back"));
  std::vector<Schedule> loose = file.schedules;
  for (Lane& lane : loose[0].lanes)
    for (Step& step : lane.steps)
      if (step.after.pieces_back > 0) step.after = {};
  EXPECT_THAT(proved(loose).why, HasSubstr("race on rank 0: scratch[0]"));
}

TEST(ScheduleFile, OfMscclppIsMadeOfMessagesInTheOrderThatPacketsAndSignalsGive) {
  const ScheduleFile file = parse_schedule_file("file", kMscclpp);
  EXPECT_EQ(file.name, "packets");
  EXPECT_EQ(file.least_bytes, 128u);
  EXPECT_EQ(file.most_bytes, 65536u);
  EXPECT_EQ(proved(file.schedules).why, "");
}

TEST(ScheduleFile, OfTuttiSurvivesBeingWrittenAndRead) {
  ScheduleFile file{
      "file",
      "mine",
      "tutti",
      7,
      1 << 20,
      testing::plan_all(testing::algorithm_named("hierarchical"), Collective::all_reduce, 6)};
  const ScheduleFile again = parse_schedule_file("again", write_schedules(file));
  EXPECT_EQ(again.name, "mine");
  EXPECT_EQ(again.least_bytes, 7u);
  EXPECT_EQ(again.most_bytes, 1u << 20);
  EXPECT_EQ(again.schedules, file.schedules);
  for (const char* const text : {kMsccl.c_str(), kMscclpp.c_str()}) {
    file = parse_schedule_file("file", text);
    EXPECT_EQ(parse_schedule_file("again", write_schedules(file)).schedules, file.schedules);
  }
}

TEST(ScheduleFile, WrittenAsMscclIsReadAgainAsSchedulesThatAreProved) {
  int written = 0;
  for (const Algorithm& algorithm : algorithms())
    for (const Collective what : testing::all_collectives())
      for (const int ranks : {2, 3, 4, 8}) {
        if (!algorithm.knows(what, ranks)) continue;
        const ScheduleFile file{"file", "mine",   "tutti",
                                7,      1u << 20, testing::plan_all(algorithm, what, ranks)};
        std::string text;
        try {
          text = write_msccl(file);
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::unavailable);
          continue;
        }
        ++written;
        const ScheduleFile again = parse_schedule_file("again", text);
        EXPECT_EQ(again.least_bytes, 7u);
        EXPECT_EQ(again.most_bytes, 1u << 20);
        EXPECT_EQ(again.schedules[0].what, what);
        EXPECT_EQ(proved(again.schedules).why, "")
            << algorithm.name << " " << to_string(what) << " " << ranks;
      }
  EXPECT_GE(written, 40);
}

TEST(ScheduleFile, OfOneRankIsWrittenAsMscclAndReadAgainAsOneThatCompletes) {
  const ScheduleFile file{
      "file",  "alone",
      "tutti", 0,
      1 << 20, testing::plan_all(testing::algorithm_named("ring"), Collective::all_reduce, 1)};
  const ScheduleFile again = parse_schedule_file("again", write_msccl(file));
  ASSERT_EQ(again.schedules.size(), 1u);
  EXPECT_EQ(proved(again.schedules).why, "");
}

TEST(ScheduleFile, OfMscclSurvivesBeingWrittenAndRead) {
  for (const std::string& text : {kMsccl, kMscclAllToAll}) {
    const ScheduleFile file = parse_schedule_file("file", text);
    const ScheduleFile again = parse_schedule_file("again", write_msccl(file));
    EXPECT_EQ(proved(again.schedules).why, "");
    EXPECT_EQ(again.schedules.size(), file.schedules.size());
    EXPECT_EQ(again.name, file.name);
    EXPECT_EQ(again.most_bytes, file.most_bytes);
  }
}

TEST(ScheduleFile, WhatMscclCannotExpressIsRefusedWithTheLane) {
  const auto refused = [](const char* algorithm, Collective what, int root) {
    try {
      write_msccl({"file", "mine", "tutti", 0, 0,
                   testing::plan_all(testing::algorithm_named(algorithm), what, 4, root)});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unavailable);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused("one_shot", Collective::all_reduce, 0), HasSubstr("rank 0 lane 0"));
  EXPECT_THAT(refused("binomial_tree", Collective::broadcast, 1), HasSubstr("with root 1"));
  EXPECT_THAT(refused("recursive_doubling", Collective::barrier, 0), HasSubstr("no barrier"));
}

TEST(ScheduleFile, AnArrayOfSchedulesHasTheNameOfItsFile) {
  const auto schedules =
      testing::plan_all(testing::algorithm_named("ring"), Collective::all_gather, 2);
  const ScheduleFile file = parse_schedule_file(
      "folder/own_ring.json", fmt::format("[{},{}]", to_json(schedules[0]), to_json(schedules[1])));
  EXPECT_EQ(file.name, "own_ring");
  EXPECT_EQ(file.schedules, schedules);
}

TEST(ScheduleFile, StepsOfChunksThatAreNotConsecutiveAreCut) {
  // Rank 0 receives both chunks of the vector into scratch in the wrong order, two in one message.
  const std::string text =
      R"(<algo name="turned" ngpus="2" nchunksperloop="2" coll="broadcast" inplace="0" outofplace="1">
    <gpu id="0" i_chunks="2" o_chunks="2" s_chunks="2"><tb id="0" send="1" recv="-1" chan="0">
      <step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="s" dstoff="1" cnt="1"/>
      <step s="1" type="cpy" srcbuf="i" srcoff="1" dstbuf="s" dstoff="0" cnt="1"/>
      <step s="2" type="s" srcbuf="s" srcoff="0" dstbuf="s" dstoff="0" cnt="2"/>
      <step s="3" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="2"/></tb></gpu>
    <gpu id="1" i_chunks="2" o_chunks="2" s_chunks="2"><tb id="0" send="-1" recv="0" chan="0">
      <step s="0" type="r" srcbuf="s" srcoff="0" dstbuf="s" dstoff="0" cnt="2"/>
      <step s="1" type="cpy" srcbuf="s" srcoff="1" dstbuf="o" dstoff="0" cnt="1"/>
      <step s="2" type="cpy" srcbuf="s" srcoff="0" dstbuf="o" dstoff="1" cnt="1"/></tb></gpu></algo>)";
  const ScheduleFile file = parse_schedule_file("file", text);
  EXPECT_EQ(file.schedules[0].widest, 1);
  EXPECT_EQ(proved(file.schedules).why, "");
}

TEST(ScheduleFile, AWrongPlanBecomesSchedulesThatTheVerifierRejects) {
  const auto why = [](const std::string& text) {
    return proved(parse_schedule_file("file", text).schedules).why;
  };
  // Rank 1 sends its half back before it is complete.
  EXPECT_THAT(why(replaced(kMsccl, "type=\"rrcs\" srcbuf=\"i\" srcoff=\"1\"",
                           "type=\"rcs\" srcbuf=\"i\" srcoff=\"1\"")),
              HasSubstr("misses the contribution of rank"));
  // The sum does not wait for the message that it adds.
  EXPECT_THAT(why(replaced(kMsccl, "dstoff=\"0\" cnt=\"1\" depid=\"1\" deps=\"0\" hasdep=\"1\"",
                           "dstoff=\"0\" cnt=\"1\" depid=\"-1\" deps=\"-1\" hasdep=\"1\"")),
              HasSubstr("race on rank 0: scratch[0]"));
  // One that waits for a message that nobody sends.
  EXPECT_THAT(why(replaced(kMscclpp, "\"ppkt\", \"channel_type\": \"memory\", \"src_buff\"",
                           "\"copy\", \"channel_type\": \"memory\", \"src_buff\"")),
              ::testing::Not(::testing::IsEmpty()));
}

TEST(ScheduleFile, AMalformedMscclFileIsRefusedWithItsLineAndTheReason) {
  const auto with = [](const std::string& what, const std::string& by) {
    return error_in(replaced(kMsccl, what, by));
  };
  EXPECT_THAT(error_in(""), HasSubstr("the file is empty"));
  EXPECT_THAT(error_in("<algo>\n"), StartsWith("file, line "));
  EXPECT_THAT(error_in("<algos/>"), HasSubstr("expected <algo>"));
  EXPECT_THAT(with("coll=\"allreduce\"", "coll=\"custom\""),
              HasSubstr("line 1: coll='custom' is no collective that is read"));
  EXPECT_THAT(with("ngpus=\"2\"", "ngpus=\"1025\""), HasSubstr("ngpus='1025' of <algo>"));
  EXPECT_THAT(with("<gpu id=\"1\"", "<gpu id=\"0\""), HasSubstr("GPU 0 is there twice"));
  EXPECT_THAT(with("ngpus=\"2\"", "ngpus=\"3\""), HasSubstr("no <gpu> with the id 2"));
  EXPECT_THAT(with("<tb id=\"1\"", "<tb id=\"2\""), HasSubstr("line 7: expected id=\"1\""));
  EXPECT_THAT(with("<step s=\"1\"", "<step s=\"2\""), HasSubstr("line 5: expected s=\"1\""));
  EXPECT_THAT(with("type=\"re\"", "type=\"rexx\""), HasSubstr("'rexx' is no kind of step"));
  EXPECT_THAT(
      with("srcbuf=\"s\" srcoff=\"0\" dstbuf=\"i\"", "srcbuf=\"x\" srcoff=\"0\" dstbuf=\"i\""),
      HasSubstr("'x' is none of i, o and s"));
  EXPECT_THAT(with("srcoff=\"1\"", "srcoff=\"2\""),
              HasSubstr("line 4: 1 chunks from srcoff=2 are beyond the 2 of this buffer"));
  EXPECT_THAT(with("send=\"1\" recv=\"-1\"", "send=\"0\" recv=\"-1\""),
              HasSubstr("line 4: the step needs a peer"));
  EXPECT_THAT(with("depid=\"2\" deps=\"0\"", "depid=\"2\" deps=\"1\""),
              HasSubstr("line 5: depid=2, deps=1 is no step of this GPU"));
  EXPECT_THAT(with("depid=\"2\" deps=\"0\"", "depid=\"0\" deps=\"1\""),
              HasSubstr("line 5: the step waits for itself"));
  EXPECT_THAT(error_in(replaced(kMscclAllToAll, "i_chunks=\"2\"", "i_chunks=\"4\""),
                       ErrorKind::unavailable),
              HasSubstr("cuts blocks into chunks"));
}

// A few bytes of a file name millions of chunks.
TEST(ScheduleFile, OfASmallFileThatAsksForMuchIsRefusedAtOnce) {
  const std::string head = R"(<algo name="much" coll="broadcast" proto="Simple" nchannels="1" )";
  std::string steps = R"(ngpus="1" nchunksperloop="1048576"><gpu id="0" i_chunks="1048576" )"
                      R"(o_chunks="1048576" s_chunks="0"><tb id="0" send="-1" recv="-1" chan="0">)";
  for (int step = 0; step < 20; ++step)
    steps += fmt::format(R"(<step s="{}" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" )"
                         R"(cnt="1048576" depid="-1" deps="-1" hasdep="0"/>)",
                         step);
  EXPECT_THAT(error_in(head + steps + "</tb></gpu></algo>", ErrorKind::unavailable),
              HasSubstr("41943040 chunks in its steps"));
  std::string ranks = R"(ngpus="64" nchunksperloop="1048576">)";
  for (int rank = 0; rank < 64; ++rank)
    ranks +=
        fmt::format(R"(<gpu id="{}" i_chunks="1048576" o_chunks="1048576" s_chunks="0"/>)", rank);
  EXPECT_THAT(error_in(head + ranks + "</algo>", ErrorKind::unavailable),
              HasSubstr("134217728 chunks in the buffers"));
}

TEST(ScheduleFile, AMalformedPlanOfMscclppIsRefusedWithThePlaceAndTheReason) {
  const auto with = [](const std::string& what, const std::string& by,
                       ErrorKind kind = ErrorKind::usage) {
    return error_in(replaced(kMscclpp, what, by), kind);
  };
  EXPECT_THAT(error_in("{\"gpus\":"), HasSubstr("file: parse error at line 1"));
  EXPECT_THAT(error_in("{\"gpus\": []}"), HasSubstr("file/gpus: there are no GPUs"));
  EXPECT_THAT(with("\"allreduce\"", "\"sendrecv\""), HasSubstr("file/collective: no collective"));
  EXPECT_THAT(with("{\"id\": 1, \"input", "{\"id\": 2, \"input"), HasSubstr("expected 1"));
  EXPECT_THAT(with("\"index\": 1, \"size\": 1", "\"index\": 2, \"size\": 1"),
              HasSubstr("file/gpus/0/threadblocks/0/ops/2/src_buff/0: 1 chunks from 2 are beyond"));
  EXPECT_THAT(with("\"dst_buff\": [{\"buffer_id\": 0, \"index\": 0, \"size\": 1}",
                   "\"dst_buff\": [{\"buffer_id\": 0, \"index\": 0, \"size\": 2}"),
              HasSubstr("differ in their size"));
  EXPECT_THAT(
      with("\"channel_ids\": [0], \"channel_type\"", "\"channel_ids\": [1], \"channel_type\""),
      HasSubstr("no whole number from 0 to 0"));
  EXPECT_THAT(with("\"connected_to\": [1]", "\"connected_to\": [1, 1]"),
              HasSubstr("2 channels to GPU 1, which has 1 back"));
  EXPECT_THAT(with("\"connected_to\": [1]", "\"connected_to\": [0]"),
              HasSubstr("no peer of its own"));
  EXPECT_THAT(with("\"nop\"", "\"glres\"", ErrorKind::unavailable),
              HasSubstr("an op 'glres', for which tutti has no steps"));
  EXPECT_THAT(with("\"channel_type\": \"memory\", \"connected_to\"",
                   "\"channel_type\": \"switch\", \"connected_to\"", ErrorKind::unavailable),
              HasSubstr("channels of the type 'switch'"));
}

TEST(ScheduleFile, MalformedJsonOfSchedulesIsRefusedWithThePlaceAndTheReason) {
  const std::string good = write_schedules(
      {"file", "mine", "tutti", 0, 0,
       testing::plan_all(testing::algorithm_named("ring"), Collective::all_reduce, 2)});
  const auto with = [&](const std::string& what, const std::string& by) {
    return error_in(replaced(good, what, by));
  };
  EXPECT_THAT(error_in("[]"), HasSubstr("there are no schedules"));
  EXPECT_THAT(error_in("{}"), HasSubstr("'schedules' is missing"));
  EXPECT_THAT(with("\"all_reduce\"", "\"all\""),
              HasSubstr("schedules/0/collective: no collective"));
  EXPECT_THAT(with("\"whole\"", "\"half\""), HasSubstr("no layout is called 'half'"));
  EXPECT_THAT(with("\"peer\"", "\"pear\""), HasSubstr("no place is called 'pear'"));
  EXPECT_THAT(with("\"widest\"", "\"wide\""), HasSubstr("'wide' is no member"));
  EXPECT_THAT(with("\"rank\": 0", "\"rank\": -1"), HasSubstr("schedules/0/rank: this is no whole"));
  EXPECT_THAT(with("\"min_bytes\": 0", "\"min_bytes\": -1"), HasSubstr("file/min_bytes"));
}

TEST(ScheduleFile, AStepWithoutOperandsOnlyWaits) {
  ScheduleBuilder plan({Collective::all_reduce, 0, 1}, 1);
  const Verbs first = plan.lane(), second = plan.lane();
  const StepHandle early = first.copy(0);
  second.step({}, {}, 0).after(early);
  Schedule schedule = std::move(plan).finish();
  schedule.lanes[0].steps[0].completes = true;
  EXPECT_EQ(proved({schedule}).why, "");
  EXPECT_THAT(to_text(schedule), HasSubstr("  0  nothing; after lane 0 step 0\n"));
  schedule.lanes[1].steps[0].completes = true;
  EXPECT_THAT(proved({schedule}).why, HasSubstr("completes nothing: it has no operands"));
}

}  // namespace
}  // namespace tutti
