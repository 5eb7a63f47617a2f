// Measures what the combine kernels cost, and where streaming stores pay.
//
//     build/perf/combine_bench                      runs all benchmarks
//     build/perf/combine_bench --benchmark_filter=small
//
// It counts the bytes that the program reads and writes. A plain store also reads its cache line
// from memory; a streaming store does not.
#include <cstring>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include <tutti/error.hpp>

#include "compute/combine.h"
#include "tools/perf/pages.h"

namespace tutti {
namespace {

// Buffers of `bytes` each, which are written once, so that they have pages of their own.
class Buffers {
 public:
  Buffers(int number, std::size_t bytes) {
    for (int i = 0; i < number; ++i) {
      // They start at different places of a page, since they would otherwise compete for the same
      // cache sets.
      const std::size_t offset = 256 * static_cast<std::size_t>(i);
      owned_.push_back(perf::allocate_pages(bytes + offset));
      pointers_.push_back(owned_.back().get() + offset);
    }
  }
  void* const* data() { return pointers_.data(); }

 private:
  std::vector<perf::Pages> owned_;
  std::vector<void*> pointers_;
};

struct Shape {
  int inputs, outputs;
  std::uint64_t streamed;
};

// Combines `bytes` of elements of `type` in the given shape, and reports the bytes read and
// written.
void combine(benchmark::State& state, DataType type, Op op, Shape shape, std::size_t bytes) {
  Buffers in(shape.inputs, bytes), out(shape.outputs, bytes);
  const CombineFunction function = combine_function(type, op);
  const CombineArgs args{.in = in.data(),
                         .inputs = shape.inputs,
                         .out = out.data(),
                         .outputs = shape.outputs,
                         .count = bytes / size_of(type),
                         .divide_by = op == Op::avg ? 3u : 1u,
                         .stream_outputs = shape.streamed};
  for (auto _ : state) {
    function(args);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes) *
                          (shape.inputs + shape.outputs));
}

void library_memcpy(benchmark::State& state, std::size_t bytes) {
  Buffers in(1, bytes), out(1, bytes);
  for (auto _ : state) {
    std::memcpy(out.data()[0], in.data()[0], bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes) * 2);
}

std::string size_text(std::size_t bytes) {
  if (bytes >= 1 << 20) return std::to_string(bytes >> 20) + "MiB";
  if (bytes >= 1 << 10) return std::to_string(bytes >> 10) + "KiB";
  return std::to_string(bytes) + "B";
}

void add(const std::string& group, DataType type, Op op, Shape shape, std::size_t bytes) {
  const std::string name = group + "/" + std::string(to_string(type)) + "/" +
                           std::string(to_string(op)) + "/" + std::to_string(shape.inputs) + "to" +
                           std::to_string(shape.outputs) +
                           (shape.streamed != 0 ? "_streamed/" : "/") + size_text(bytes);
  benchmark::RegisterBenchmark(
      name.c_str(), [=](benchmark::State& state) { combine(state, type, op, shape, bytes); });
}

bool exists(DataType type, Op op) {
  try {
    return combine_function(type, op) != nullptr;
  } catch (const Error&) {
    return false;
  }
}

void add_all() {
  for (const std::size_t bytes : {4, 8, 16, 40, 64, 1024})
    for (const Shape shape : {Shape{1, 1, 0}, {2, 1, 0}, {2, 2, 0}, {3, 1, 0}, {5, 1, 0}})
      add("small", DataType::f32, Op::sum, shape, bytes);
  for (int t = 0; t < kDataTypes; ++t)
    for (int o = 0; o < kOps; ++o) {
      const auto type = static_cast<DataType>(t);
      const auto op = static_cast<Op>(o);
      if (!exists(type, op)) continue;
      add("small", type, op, {2, 1, 0}, 8);
      add("types", type, op, {2, 1, 0}, 64 << 10);
    }
  // The goal is at most 1.3 times the time of f32 for the same bytes with f16 and bf16, and 3 times
  // with fp8.
  for (const std::size_t bytes : {1 << 20, 4 << 20, 16 << 20, 64 << 20})
    for (const DataType type :
         {DataType::f32, DataType::f16, DataType::bf16, DataType::f8e4m3, DataType::f8e5m2})
      add("narrow", type, Op::sum, {2, 1, 0}, bytes);
  for (std::size_t bytes = 16 << 10; bytes <= 64 << 20; bytes *= 4) {
    benchmark::RegisterBenchmark(("stream/memcpy/" + size_text(bytes)).c_str(),
                                 [=](benchmark::State& state) { library_memcpy(state, bytes); });
    for (const Shape shape : {Shape{1, 1, 0},
                              {1, 1, 1},
                              {1, 2, 0},
                              {1, 2, 2},
                              {1, 2, 3},
                              {2, 1, 0},
                              {2, 1, 1},
                              {2, 2, 0},
                              {2, 2, 2},
                              {4, 1, 0},
                              {4, 1, 1}})
      add("stream", DataType::f32, Op::sum, shape, bytes);
  }
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  tutti::add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
