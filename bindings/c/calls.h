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
