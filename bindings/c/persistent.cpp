// Implements what the C ABI does with persistent calls.
#include <tutti/persistent.h>

#include "bindings/c/calls.h"

using namespace tutti::c;

tuttiResult_t tuttiPersistentRun(tuttiPersistent_t persistent) {
  return guarded([&] { checked(persistent, "persistent").persistent.run(); });
}

tuttiResult_t tuttiPersistentStart(tuttiPersistent_t persistent, tuttiWork_t* work) {
  return guarded([&] {
    result(work, "work") = nullptr;
    *work = handle(checked(persistent, "persistent").persistent.start());
  });
}

tuttiResult_t tuttiPersistentAddTo(tuttiPersistent_t persistent, tuttiGroup_t group) {
  return guarded(
      [&] { checked(persistent, "persistent").persistent.add_to(checked(group, "group").group); });
}

tuttiResult_t tuttiPersistentFree(tuttiPersistent_t persistent) {
  return guarded([&] {
    if (persistent != nullptr) delete &checked(persistent, "persistent");
  });
}
