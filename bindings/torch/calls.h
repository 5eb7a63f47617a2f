// Macros with which backend.cpp, collectives.cpp and blocks.cpp write tutti's calls.
#pragma once

#include "backend.h"
#include "reductions.h"
#include "tensors.h"

namespace tutti::pytorch {

inline std::size_t count_of(const at::Tensor& tensor) { return elements(tensor).count; }

/// Translates torch's options of a call. They have async_op from torch 2.7 on; before that, a
/// blocking call is an asynchronous one for which torch waits.
template <typename Options>
Terms terms(const Options& options) {
  Terms terms;
  terms.timeout = options.timeout;
  if constexpr (requires { options.asyncOp; }) terms.async = options.asyncOp;
  return terms;
}
template <typename Options>
Terms terms(const Options& options, const Reduction& how) {
  Terms terms = pytorch::terms(options);
  terms.factor = how.factor();
  return terms;
}

}  // namespace tutti::pytorch

// The argument of Backend::issue(), which calls a Communicator's function by name in one of its two
// forms.
#define TUTTI_CALL(name, ...)                                    \
  [&](Communicator& comm, const CallOptions& told, bool async) { \
    if (async) return comm.name##_async(__VA_ARGS__, told);      \
    comm.name(__VA_ARGS__, told);                                \
    return tutti::Work();                                        \
  }

// The same for each k from 0 to count - 1, in one group.
#define TUTTI_CALLS(count, name, ...)                                       \
  [&](Communicator& comm, CallOptions told, bool) {                         \
    Group group;                                                            \
    const bool own = told.group == nullptr;                                 \
    if (own) told.group = &group;                                           \
    for (std::size_t k = 0; k < (count); ++k) comm.name(__VA_ARGS__, told); \
    return own ? group.end_async() : tutti::Work();                         \
  }
