// tutti: collective communication for C++20. This header includes the others that most programs
// need.
//
// communicator.hpp declares the operations, options.hpp and work.hpp what they take and return.
// schedule.hpp is for algorithms of the program's own, ddp.hpp for training, tutti.h for C.
#pragma once

#include <string_view>

#include <tutti/buffer.hpp>
#include <tutti/communicator.hpp>
#include <tutti/config.hpp>
#include <tutti/error.hpp>
#include <tutti/export.hpp>
#include <tutti/options.hpp>
#include <tutti/reduction.hpp>
#include <tutti/store.hpp>
#include <tutti/types.hpp>
#include <tutti/work.hpp>

namespace tutti {

/// Returns tutti's version, "major.minor.patch".
TUTTI_API std::string_view version() noexcept;

}  // namespace tutti
