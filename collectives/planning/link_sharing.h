// Shares the bandwidth of links among the messages that use them at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

/// Gives each message the rate of max-min fairness: no rate can grow unless one that is not greater
/// shrinks (Bertsekas, Gallager: Data Networks, 1992, section 6.5.2). Where a message starts or
/// ends, only the rates that this changes are computed again. One thread uses it.
class LinkSharing {
 public:
  /// A link that a flow uses. `weight` is how many flows like this one use the link: where one flow
  /// stands for many equal ones, several of these may share a link.
  struct Use {
    std::uint32_t link;
    double weight;
  };

  /// `capacities` are bytes a picosecond, by link, greater than 0. Rates that differ by less than
  /// the part `tolerance` are taken for equal; 0 to 0.1.
  LinkSharing(const std::vector<double>& capacities, double tolerance);

  /// Adds a flow, which is idle at first, and returns its number. It uses at least one link, and
  /// each at most once.
  std::uint32_t add(std::span<const Use> uses);

  void start(std::uint32_t flow);  ///< The flow is idle.
  void stop(std::uint32_t flow);   ///< The flow is active.

  /// Computes the rates after flows have started and stopped, and returns the active flows whose
  /// rates have changed. What it returns is valid until the next call.
  std::span<const std::uint32_t> settle();

  /// Returns bytes a picosecond; 0 for an idle flow. Valid after settle().
  double rate(std::uint32_t flow) const { return flows_[flow].rate; }
  std::size_t flows() const { return flows_.size(); }

 private:
  static constexpr std::uint32_t kNone = 0xffff'ffff;

  struct Flow {
    std::uint32_t first_use, uses;
    double most = 0;  // what it gets where no other flow is active
    double rate = 0;
    double before = 0;                 // its rate when the last settle() ended
    std::uint32_t bottleneck = kNone;  // the full link that holds it back; kNone: `most` does
    bool active = false, chosen = false, touched = false;
  };
  struct FlowUse {
    Use use;
    std::uint32_t flow;
    std::uint32_t place = kNone;  // its index in the link's list of active uses
  };
  struct Link {
    double capacity;
    double wanted = 0;  // the sum of what the active flows would get alone
    double load = 0;
    std::vector<std::uint32_t> active{};  // indices of uses
    std::uint32_t local = kNone;          // its index in `filled_` during settle()
    bool dirty = false;
  };
  /// A link while rates of chosen flows are computed.
  struct Filled {
    std::uint32_t link;
    double room;
    double weight;  // of flows whose rate is not known yet
  };

  // Says whether the link can hold back any flow now.
  bool contended(const Link& link) const {
    return link.wanted > link.capacity * (1 + 1e-12) && link.active.size() > 1;
  }
  std::span<FlowUse> uses_of(const Flow& flow) {
    return {uses_.data() + flow.first_use, flow.uses};
  }
  void mark(std::uint32_t link);
  void choose(std::uint32_t flow);
  void fill();
  void fix(std::uint32_t flow, double rate, std::uint32_t bottleneck);
  bool choose_more();
  bool choose_from(std::uint32_t link);

  const double tolerance_;
  std::vector<Link> links_;
  std::vector<Flow> flows_;
  std::vector<FlowUse> uses_;
  std::vector<std::uint32_t> dirty_;    // links that are to be looked at
  std::vector<std::uint32_t> chosen_;   // flows whose rates are computed
  std::vector<std::uint32_t> touched_;  // flows whose rates may have changed
  std::vector<Filled> filled_;
  std::vector<std::uint32_t> changed_;
};

}  // namespace tutti
