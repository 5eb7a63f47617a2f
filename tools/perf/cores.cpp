#include "perf/cores.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <fstream>
#include <system_error>

namespace tutti::perf {
namespace {

/// Whether `cpu` is the first of its physical core in the kernel's list of siblings ("0,4").
bool is_first_thread(int core) {
  std::ifstream file(
      fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", core));
  int first = core;
  file >> first;
  return first == core;
}

}  // namespace

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  std::stable_partition(cores.begin(), cores.end(), is_first_thread);
  return cores;
}

void pin(std::span<const int> cores) {
  assert(!cores.empty());
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0)
    throw std::system_error(errno, std::generic_category(),
                            fmt::format("cannot stay on {} cores from core {} on", cores.size(),
                                        cores.empty() ? -1 : cores.front()));
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "cpu";
}

}  // namespace tutti::perf
