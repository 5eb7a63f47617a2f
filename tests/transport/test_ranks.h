// All ranks of a small job in one test, over any transport. One thread may drive them all, or each
// rank its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "transport/channel.h"
#include "transport/context.h"
#include "transport/doorbell.h"

namespace tutti {

/// A transport that tests run over.
struct TransportKind {
  std::string name;
  bool in_memory = true;  ///< Whether its channels have rings.
  /// Makes one transport for each rank, not connected yet. The seed determines the faults of
  /// transports that have any.
  std::vector<std::unique_ptr<Transport>> (*make_all)(std::span<const TransportContext> contexts,
                                                      std::uint64_t seed);
};
std::vector<TransportKind> transport_kinds();

inline std::ostream& operator<<(std::ostream& out, const TransportKind& kind) {
  return out << kind.name;
}

struct RanksOptions {
  int size = 2;
  std::size_t data_bytes = 3 * 4096;
  std::size_t max_message_bytes = 4096;
  std::uint64_t seed = 1;
  bool bells = false;  ///< Whether ranks may sleep; otherwise peers never look for sleepers.
};

class TestRanks {
 public:
  /// Returns all ranks, connected.
  explicit TestRanks(const TransportKind& kind, const RanksOptions& options = {});
  ~TestRanks();

  Transport& operator[](int rank) { return *transports_[rank]; }
  const Doorbell& bell(int rank) const { return *bells_[rank]; }
  void destroy(int rank) { transports_[rank].reset(); }

  /// Lets all ranks progress until `what` is true; returns false where that does not happen in very
  /// many turns.
  [[nodiscard]] bool eventually(const std::function<bool()>& what);

 private:
  SteadyClock clock_;
  SystemRandom random_;
  std::vector<std::shared_ptr<const Doorbell>> bells_;
  std::vector<std::unique_ptr<Transport>> transports_;
};

}  // namespace tutti
