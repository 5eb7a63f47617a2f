// Feeds the readers of schedules in all formats: a file is refused, or it becomes schedules on
// which the verifier decides, and which survive being written and read.
#include <cassert>

#include <tutti/error.hpp>

#include "collectives/formats/schedule_file.h"
#include "targets.h"
#include "tests/collectives/schedule_texts.h"

namespace tutti::fuzz {

void run_schedules(std::string_view bytes) {
  try {
    const ScheduleFile file = parse_schedule_file("fuzzed", std::string(bytes));
    assert(!file.schedules.empty());
    const ScheduleFile again = parse_schedule_file("again", write_schedules(file));
    assert(again.schedules == file.schedules);
    if (file.schedules.size() > 16) return;  // so that the verifier does not take the time
    for (const Schedule& schedule : file.schedules)
      if (schedule.chunks > 256 || schedule.scratch_chunks > 256) return;
    static_cast<void>(verify(file.schedules, {}));
  } catch (const Error& error) {
    assert(error.kind() == ErrorKind::usage || error.kind() == ErrorKind::unavailable);
  }
}

std::vector<std::string> schedule_seeds() {
  const std::string own = write_schedules(parse_schedule_file("own", schedule_texts::kMsccl));
  return {schedule_texts::kMsccl, schedule_texts::kMscclAllToAll, schedule_texts::kMscclpp, own};
}

}  // namespace tutti::fuzz
