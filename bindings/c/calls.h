// Translates a C call into a call of the C++ library, in each of its forms.
#pragma once

#include "bindings/c/guarded.h"
#include "bindings/c/handles.h"
#include "bindings/c/structs.h"
#include "bindings/c/work.h"

namespace tutti::c {

// A member of Communicator that takes the C++ counterparts of the C function's arguments.
template <typename Result, typename... Args>
using Member = Result (Communicator::*)(decltype(cpp(std::declval<Args>()))..., const CallOptions&);

// `Options` is what read_options() takes.
template <typename Blocked = void, typename Options, typename... Args>
tuttiResult_t call(tuttiComm_t comm, Options options, tuttiWork_t* work,
                   std::type_identity_t<Member<Blocked, Args...>> blocking,
                   std::type_identity_t<Member<Work, Args...>> asynchronous,
                   Args... args) noexcept {
  return guarded([&] {
    if (work != nullptr) *work = nullptr;
    Communicator& communicator = checked(comm, "comm").communicator;
    if (work == nullptr)
      (communicator.*blocking)(cpp(args)..., read_options(options));
    else
      *work = handle((communicator.*asynchronous)(cpp(args)..., read_options(options)));
  });
}

template <typename Options, typename... Args>
tuttiResult_t init(tuttiComm_t comm, Options options, tuttiPersistent_t* persistent,
                   std::type_identity_t<Member<Persistent, Args...>> member,
                   Args... args) noexcept {
  return guarded([&] {
    result(persistent, "persistent") = nullptr;
    tuttiComm& its = checked(comm, "comm");
    *persistent =
        new tuttiPersistent(its, (its.communicator.*member)(cpp(args)..., read_options(options)));
  });
}

}  // namespace tutti::c

// Turns the list (a, b) into `a, b,` and the empty list () into nothing.
#define TUTTI_LEADING(...) __VA_ARGS__ __VA_OPT__(, )

// Defines the two C functions of an operation: tutti<Name>, which is blocking or asynchronous, and
// tutti<Name>Init, which makes a persistent call. `parameters` is the list, in parentheses, of the
// parameters that come before the communicator. `chosen` is what read_options() takes. Then follow
// the arguments of the member of Communicator called `member`.
#define TUTTI_OPERATION_AS(Name, member, parameters, chosen, ...)                                 \
  tuttiResult_t tutti##Name(TUTTI_LEADING parameters tuttiComm_t comm,                            \
                            const tuttiOptions_t* options, tuttiWork_t* work) {                   \
    return call(comm, chosen, work, &tutti::Communicator::member,                                 \
                &tutti::Communicator::member##_async __VA_OPT__(, ) __VA_ARGS__);                 \
  }                                                                                               \
  tuttiResult_t tutti##Name##Init(TUTTI_LEADING parameters tuttiComm_t comm,                      \
                                  const tuttiOptions_t* options, tuttiPersistent_t* persistent) { \
    return init(comm, chosen, persistent,                                                         \
                &tutti::Communicator::member##_init __VA_OPT__(, ) __VA_ARGS__);                  \
  }
#define TUTTI_OPERATION(Name, member, parameters, ...) \
  TUTTI_OPERATION_AS(Name, member, parameters, options __VA_OPT__(, ) __VA_ARGS__)
// The same for an operation with a reduction of the program's own. The communicator ignores the
// type and the operation when the options carry a reduction.
#define TUTTI_OPERATION_WITH(Name, member, parameters, ...) \
  TUTTI_OPERATION_AS(Name##With, member, parameters, (With{options, reduction}), __VA_ARGS__)
