// How backend.cpp, collectives.cpp and blocks.cpp write tutti's calls.
#pragma once

#include "backend.h"
#include "reductions.h"
#include "tensors.h"

namespace tutti::pytorch {

inline std::size_t count_of(const at::Tensor& tensor) { return elements(tensor).count; }

/// What torch's options of a call say. They know async_op from 2.7 on; before, a call that blocks
/// is an asynchronous one that torch waits for.
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

// For Backend::issue(): a call of Communicator by name, in one of its two forms.
#define TUTTI_CALL(name, ...)                                    \
  [&](Communicator& comm, const CallOptions& told, bool async) { \
    if (async) return comm.name##_async(__VA_ARGS__, told);      \
    comm.name(__VA_ARGS__, told);                                \
    return tutti::Work();                                        \
  }

// The same for k from 0 to count, made together.
#define TUTTI_CALLS(count, name, ...)                                       \
  [&](Communicator& comm, CallOptions told, bool) {                         \
    Group group;                                                            \
    const bool own = told.group == nullptr;                                 \
    if (own) told.group = &group;                                           \
    for (std::size_t k = 0; k < (count); ++k) comm.name(__VA_ARGS__, told); \
    return own ? group.end_async() : tutti::Work();                         \
  }
