// Runs one target under libFuzzer: the one that TARGET names.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "compute/combine.h"
#include "targets.h"

// No target reduces anything, and the kernels take minutes to compile with instrumentation.
namespace tutti {
CombineFunction combine_function(DataType, Op) { std::abort(); }
CombineFunction combine_function(const UserReduction&) { std::abort(); }
}  // namespace tutti

namespace {

const tutti::fuzz::Target& target() {
  for (const auto& target : tutti::fuzz::targets())
    if (target.name == TARGET) return target;
  std::abort();
}

}  // namespace

// The first argument is the folder of the corpus, to which the seeds are written.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc < 2) return 0;
  const std::filesystem::path folder((*argv)[1]);
  std::filesystem::create_directories(folder);
  int number = 0;
  for (const std::string& seed : target().seeds())
    std::ofstream(folder / ("seed" + std::to_string(number++)), std::ios::binary) << seed;
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  target().run({reinterpret_cast<const char*>(bytes), count});
  return 0;
}
