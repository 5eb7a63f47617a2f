// One rank's end of the authenticated connections between all ranks of a job, which a transport
// makes when it connects.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/fd.h"
#include "transport/mesh/address.h"
#include "transport/mesh/join.h"

namespace tutti::mesh {

/// One thread uses it. The context outlives it.
class Mesh {
 public:
  /// Listens at a free port. `name` is that of the transport, in messages ("TCP"). Throws
  /// `unavailable` where the machine has no interface that TUTTI_INTERFACES allows.
  Mesh(const TransportContext& context, std::string name);

  /// Returns Transport::address().
  std::string address() const { return address_.to_string(); }

  /// Connects to all ranks that have an address, and closes the port. Throws as
  /// Transport::connect() does, and `usage` where ranks of several machines have no secret.
  Connections connect(std::span<const std::string> addresses, TimePoint deadline);

 private:
  std::vector<std::optional<Address>> parse(std::span<const std::string> addresses) const;
  Secret secret_for(const std::vector<std::optional<Address>>& peers) const;

  const TransportContext& context_;
  const std::string name_;
  Address address_;
  Fd listener_;  // open until connected
};

}  // namespace tutti::mesh
