#include <tutti/tutti.hpp>

#include "common/build_info.h"

namespace tutti {

std::string_view version() noexcept { return TUTTI_VERSION; }

}  // namespace tutti
