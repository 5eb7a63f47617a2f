#include "transport/registry.h"

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "common/text.h"
#include "transport/cuda_ipc/cuda_ipc.h"
#include "transport/local/local.h"
#include "transport/rdma/rdma.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"
#include "transport/ucx/ucx.h"

namespace tutti {
namespace {

TransportEntry find(std::string_view name, const std::vector<TransportEntry>& known) {
  std::string names = "auto";
  for (const TransportEntry& entry : known) {
    if (entry.name == name) return entry;
    names.append(", ").append(entry.name);
  }
  throw Error(ErrorKind::usage,
              fmt::format("TUTTI_TRANSPORTS names the transport '{}', which this build does not "
                          "have; it knows: {}",
                          name, names));
}

}  // namespace

std::vector<TransportEntry> transports() {
  return {
      local::entry(), shm::entry(), rdma::entry(), ucx::entry(), tcp::entry(), cuda_ipc::entry(),
  };
}

std::vector<TransportEntry> parse_transports(std::string_view names,
                                             std::vector<TransportEntry> known) {
  if (names == "auto") return known;
  std::vector<TransportEntry> chosen;
  for (const std::string_view name : split(names, ',')) chosen.push_back(find(name, known));
  return chosen;
}

}  // namespace tutti
