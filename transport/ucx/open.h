// Opens UCX as a device. The library is loaded when it is first needed.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tutti/config.hpp>

#include "common/log.h"
#include "common/random.h"
#include "transport/queue_pair/device.h"

namespace tutti::ucx {

/// Settings of UCX that take the place of its defaults, under the names that stand behind "UCX_" in
/// the environment.
using Settings = std::vector<std::pair<std::string, std::string>>;

/// Says whether this build was made with UCX's headers.
bool is_built() noexcept;

/// Opens UCX. Throws `unavailable` with the reason where this build or this machine does not let it
/// be used. `random` and `log`, which may be null, outlive it.
std::shared_ptr<qp::Device> open_device(const Settings& settings, Random& random, Log* log);

}  // namespace tutti::ucx
