#include "common/random.h"

#include <sys/random.h>

#include <tutti/error.hpp>

namespace tutti {

std::uint64_t SystemRandom::next() {
  std::uint64_t value = 0;
  if (getrandom(&value, sizeof value, 0) != static_cast<ssize_t>(sizeof value))
    throw Error(ErrorKind::unavailable, "the kernel gave no random bytes (getrandom)");
  return value;
}

}  // namespace tutti
