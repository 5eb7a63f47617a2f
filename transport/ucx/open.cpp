#include "transport/ucx/open.h"

#include <tutti/error.hpp>

#ifdef TUTTI_HAS_UCX
#include "transport/ucx/worker.h"

namespace tutti::ucx {

bool is_built() noexcept { return true; }

std::shared_ptr<qp::Device> open_device(const Settings& settings, Random& random, Log* log) {
  return std::make_shared<Worker>(load_libucp(), settings, random, log);
}

}  // namespace tutti::ucx

#else

namespace tutti::ucx {

bool is_built() noexcept { return false; }

std::shared_ptr<qp::Device> open_device(const Settings&, Random&, Log*) {
  throw Error(ErrorKind::unavailable,
              "this build was made without UCX's headers (libucx-dev), so it cannot use UCX");
}

}  // namespace tutti::ucx

#endif
