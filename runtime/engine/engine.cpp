#include "runtime/engine/engine.h"

namespace tutti {

void Engine::record() noexcept { recorder_.begin(StatusPage::entry_of(call()), number(), ticks()); }

void Engine::record_soon(const void* kind, const StatusPage::Entry& entry) noexcept {
  recorder_.begin_run(kind, entry, number(), ticks());
}

void Engine::record_failure(ErrorKind kind) noexcept {
  if (idle()) return;
  if (!recorder_.has(number())) record();  // one of the first polls has thrown
  recorder_.fail(kind);
}

}  // namespace tutti
